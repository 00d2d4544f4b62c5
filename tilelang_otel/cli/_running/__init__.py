"""Running somebody's program traced: where the spans go, and what happens around it."""

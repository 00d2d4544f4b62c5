"""What the doctor looks at, what it advises, and the span that it sends."""

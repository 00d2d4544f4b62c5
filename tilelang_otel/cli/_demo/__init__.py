"""What the demo compiles: a transformer block with TVM, or kernels with TileLang."""

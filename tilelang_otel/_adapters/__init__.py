"""What is wrapped in TVM and TileLang: one file each, put on by the instrumentors."""

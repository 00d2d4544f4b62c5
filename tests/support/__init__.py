"""What several tests need: receivers, fakes, and ways to run programs."""

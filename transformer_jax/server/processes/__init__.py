"""Live streams in processes of their own, one on each core."""

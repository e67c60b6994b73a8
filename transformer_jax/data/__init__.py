"""The input pipeline, from text to batches of NumPy arrays. Nothing here imports jax."""

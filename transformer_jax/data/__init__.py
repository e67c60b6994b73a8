"""From text to batches of numpy arrays. Nothing here imports jax."""

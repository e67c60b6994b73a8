"""The train step, the training loop, and its input pipeline."""

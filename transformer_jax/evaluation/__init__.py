"""Scores of translations and of checkpoints."""

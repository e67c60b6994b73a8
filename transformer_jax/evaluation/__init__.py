"""Evaluation of checkpoints and of translations."""

"""Continuous batching of sentences in batches of few shapes."""

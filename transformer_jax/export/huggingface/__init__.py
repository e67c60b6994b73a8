"""Directories of Hugging Face's `transformers`, written and read."""

"""Export to and import from model directories of Hugging Face's `transformers`."""

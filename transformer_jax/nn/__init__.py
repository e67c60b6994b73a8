"""Building blocks of models: mathematics in plain functions, modules that only own parameters."""

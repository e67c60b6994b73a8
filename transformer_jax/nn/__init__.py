"""The parts of models: mathematics in plain functions, modules that only own parameters."""

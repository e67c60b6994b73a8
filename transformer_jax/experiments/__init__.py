"""Single runs: planned without training, prepared from a config, trained, and noted."""

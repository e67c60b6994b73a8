"""Single runs: planning without training, data preparation, training, and run history."""

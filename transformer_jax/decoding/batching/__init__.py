"""How sentences flow through batches of few shapes."""

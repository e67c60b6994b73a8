"""A trained model behind HTTP: what arrives is searched together, continuously."""

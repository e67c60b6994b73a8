"""A run on disk: its work directory, its checkpoints and their checksums."""

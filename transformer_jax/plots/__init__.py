"""Pictures of runs. matplotlib is imported only when one is drawn."""

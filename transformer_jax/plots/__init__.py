"""Pictures of runs, and pages. matplotlib is imported only when a picture is drawn."""

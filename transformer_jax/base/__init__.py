"""What everything stands on: errors, files, arrays, progress; it knows nothing of models."""

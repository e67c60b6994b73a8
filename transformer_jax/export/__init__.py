"""Export of trained models for other engines, and import of theirs."""

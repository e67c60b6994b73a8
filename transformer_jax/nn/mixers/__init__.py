"""Mixers: what mixes values along a sequence, and owns the memory that it needs for that."""

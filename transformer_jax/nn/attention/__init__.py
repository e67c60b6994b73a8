"""Attention: projections to heads, and the mechanisms that mix values."""

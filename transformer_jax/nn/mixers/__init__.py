"""Mixers: layers that mix values along a sequence, with the cache that each needs for that."""

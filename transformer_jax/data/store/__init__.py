"""Encoded pairs on disk: what is encoded once and memory-mapped."""

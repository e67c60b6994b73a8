"""Whole models: layers, stacks, and what training and decoding call."""

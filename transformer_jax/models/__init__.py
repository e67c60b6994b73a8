"""Whole models: layers, stacks, and the interfaces that training and decoding call."""

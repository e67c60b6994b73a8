"""Sweeps: many runs that differ in a few fields, their execution, and the table of results."""

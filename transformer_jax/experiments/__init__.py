"""Whole runs: parts made from a config and put together."""

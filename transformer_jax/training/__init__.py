"""The step, the loop around it, and what feeds it."""

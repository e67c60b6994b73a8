"""Searches, each a pure function of a Stepper: what advances hypotheses."""

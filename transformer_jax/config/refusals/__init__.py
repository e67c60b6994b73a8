"""Validation by section of the manual: impossible or ineffective values raise a UserError."""

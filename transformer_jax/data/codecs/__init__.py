"""Codecs, which turn one side's values into ids and back: `WORDS` of each module names its own."""

"""Codecs, which turn one side's text into ids and back; each is an entry of `pair.CODECS`."""

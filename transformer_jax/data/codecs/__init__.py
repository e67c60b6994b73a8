"""One side's text as ids and back: an entry of `pair.CODECS` for each way."""

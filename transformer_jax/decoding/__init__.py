"""Decoding: searches, the batches they run in, and the text that goes in and comes out."""

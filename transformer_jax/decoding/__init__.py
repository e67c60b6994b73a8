"""Decoding: search algorithms, the batches they run in, and the text going in and out."""

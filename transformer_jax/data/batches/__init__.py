"""From encoded pairs to batches: selection, order, packing, mixtures."""

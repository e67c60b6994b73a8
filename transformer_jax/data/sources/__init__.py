"""Where rows come from: files, TFDS, arrays or a generator; each is read as a `Corpus`."""

from transformer_jax.data.sources.corpus import (
    SOURCES,
    Corpus,
    Place,
    Split,
    checked,
    load,
    tasks,
    whole,
)  # fmt: skip

__all__ = ["SOURCES", "Corpus", "Place", "Split", "checked", "load", "tasks", "whole"]

"""The fields of an experiment that a resumed run may change."""

from typing import Any

from transformer_jax import parts
from transformer_jax.allowed import ANY, Allowed, allows

# Fields, and the values between which they may change: these affect what is monitored, and where
# and how fast the run executes, but not what is learned. All other fields must stay the same,
# including those that define the score of the best checkpoint.
MAY_CHANGE: Allowed = {
    "training.steps": ANY,
    "training.max_minutes": ANY,
    "training.early_stopping": ANY,
    "training.log_every": ANY,
    "training.max_bad_steps": ANY,
    "training.steps_per_execution": ANY,
    "training.loss_spike": ANY,
    "checkpoint.every_steps": ANY,
    "checkpoint.keep_last": ANY,
    "checkpoint.on_failed_save": ("continue", "stop"),
    "evaluation.every_steps": ANY,
    "evaluation.checkpoint": ANY,
    "evaluation.metrics": ("BLEU", "chrF", "TER", "labelled_F1", "WER", "CER"),
    "evaluation.season": ANY,
    "decoding.search": ("beam", "sample"),
    "decoding.beam_size": ANY,
    "decoding.length_penalty": ("gnmt", "power"),
    "decoding.alpha": ANY,
    "decoding.coverage_penalty": ANY,
    "decoding.stop": ("optimal", "width"),
    "decoding.max_length_ratio": ANY,
    "decoding.max_extra_length": ANY,
    "decoding.min_length_ratio": ANY,
    "decoding.no_repeat_ngram": ANY,
    "decoding.forbidden": ANY,
    "decoding.shortlist": ANY,
    "decoding.constraint": ("none", "tree"),
    "decoding.num_samples": ANY,
    "decoding.temperature": ANY,
    "decoding.top_k": ANY,
    "decoding.top_p": ANY,
    "decoding.seed": ANY,
    "decoding.rerank": ("none", "chrf", "bleu"),
    "decoding.draft": ANY,
    "decoding.draft_length": ANY,
    "decoding.ensemble": ("probabilities", "log_probabilities"),
    "decoding.cache": ("contiguous", "paged"),
    "decoding.cache_block": ANY,
    "decoding.tokens_per_batch": ANY,
    "mesh.data": ANY,
    "mesh.fsdp": ANY,
    "mesh.tensor": ANY,
    "profile.steps": ANY,
    "model.layer_loop": ("unrolled", "scan"),  # the same mathematics; so are the next two
    "model.remat": ("none", "dots", "full"),
    "model.feed_forward_chunks": ANY,
    "model.attention": ("dense", "fused"),
    "data.directory": ANY,  # the tokens themselves are compared
    "data.how_to_get": ANY,
    "data.test": ANY,
}


def may_change(path: str, old: Any, new: Any) -> bool:
    """Return whether a resumed run may have a different value of a field."""
    if parts.same(old, new):  # user-defined, in a file that has moved
        return True
    return all(allows(MAY_CHANGE.get(path, ()), value) for value in (old, new))

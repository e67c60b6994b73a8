"""CTranslate2 as far as an exported model concerns it: what it is told, and what it makes of it.

Written from its own specs (https://github.com/OpenNMT/CTranslate2, python/ctranslate2/specs) in
numpy, so that the default run needs no other package. Who exports more must teach it more.
"""

import types
from collections import defaultdict
from typing import Any

import numpy as np


class Part(types.SimpleNamespace):
    """A piece of a specification: it has whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, Part())
        return getattr(self, name)

    def __getitem__(self, key: int) -> "Part":
        return self.__dict__.setdefault("items", defaultdict(Part))[key]


class TransformerSpec(Part):
    """What `ctranslate2.specs.TransformerSpec` takes that we tell it, and nothing else."""

    written: "TransformerSpec"

    @classmethod
    def from_config(cls, num_layers, num_heads, *, pre_norm, alignment_heads):
        spec = cls(num_heads=num_heads, pre_norm=pre_norm)
        for side, count in zip((spec.encoder, spec.decoder), num_layers, strict=True):
            side.layer = [Part() for _ in range(count)]
        cls.written = spec
        return spec

    def validate(self) -> None: ...

    def optimize(self, quantization) -> None:
        assert quantization is None

    def save(self, _) -> None: ...


def logits(spec: TransformerSpec, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the logits [B T V] of what follows each of `target` [B T]; no token is padding."""
    memory = source
    for side, causal in ((spec.encoder, False), (spec.decoder, True)):
        ids = target if causal else source
        table = side.embeddings.weight if causal else side.embeddings[0].weight
        x = table[ids] * side.scale_embeddings + side.position_encodings.encodings[: ids.shape[1]]
        for layer in side.layer:
            x = _residual(spec, layer.self_attention, x, lambda y, p: _self(spec, p, y, causal))  # noqa: B023
            if causal:
                x = _residual(spec, layer.attention, x, lambda y, p: _cross(spec, p, y, memory))  # noqa: B023
            x = _residual(spec, layer.ffn, x, _feed_forward)
        memory = _norm(spec, side.layer_norm, x) if spec.pre_norm else x
    return memory @ spec.decoder.projection.weight.T


def _residual(spec, part, x, function):
    if spec.pre_norm:
        return x + function(_norm(spec, part.layer_norm, x), part)
    return _norm(spec, part.layer_norm, x + function(x, part))


def _norm(spec, part, x):
    centred = x - x.mean(-1, keepdims=True)
    scale = np.sqrt((centred**2).mean(-1, keepdims=True) + spec.config.layer_norm_epsilon)
    return centred / scale * part.gamma + part.beta


def _feed_forward(x, part):
    return _linear(part.linear_1, np.maximum(_linear(part.linear_0, x), 0))


def _self(spec, part, x, causal):
    q, k, v = np.split(_linear(part.linear[0], x), 3, axis=-1)
    return _linear(part.linear[1], _attend(spec, q, k, v, causal))


def _cross(spec, part, x, memory):
    k, v = np.split(_linear(part.linear[1], memory), 2, axis=-1)
    q = _linear(part.linear[0], x)
    return _linear(part.linear[2], _attend(spec, q, k, v, causal=False))


def _attend(spec, q, k, v, causal):
    q, k, v = (x.reshape(*x.shape[:2], spec.num_heads, -1) for x in (q, k, v))
    scores = np.einsum("btnh,bsnh->bnts", q, k) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(q.shape[1], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("bnts,bsnh->btnh", weights, v).reshape(*q.shape[:2], -1)


def _linear(part, x):
    return x @ part.weight.T + part.bias

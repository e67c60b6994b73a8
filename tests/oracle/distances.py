"""Independent relative positions: the code of `transformers` where it has them, else plain torch.

All take queries and keys [B N T H], with one key head per query head, and positions; they call none
of our code. Theirs may count columns instead, which is the same within a sentence.
"""

import types

import torch
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.wav2vec2_bert import modeling_wav2vec2_bert as wav2vec2_bert
from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

from transformer_jax.config import ModelConfig


def clipped(c: ModelConfig, pos: torch.Tensor) -> torch.Tensor:
    """Return the table row for each query i and key j, [B T S]."""
    away = pos[:, None, :] - pos[:, :, None]
    return away.clamp(-c.relative_clip, c.relative_clip) + c.relative_clip


def t5(c: ModelConfig, p: dict, q, k, pos: torch.Tensor, ahead: bool) -> torch.Tensor:
    """Return the term that T5 adds to scores."""
    buckets = T5Attention._relative_position_bucket(
        pos[:, None, :] - pos[:, :, None], ahead, c.relative_buckets, c.relative_max_distance
    )
    return p["table"][buckets].permute(0, 3, 1, 2)


def toeplitz(c: ModelConfig, p: dict, q, k, pos: torch.Tensor, ahead: bool) -> torch.Tensor:
    """Return a bias for each head and distance."""
    return p["table"][clipped(c, pos)].permute(0, 3, 1, 2)


def shaw(c: ModelConfig, p: dict, q, k, pos: torch.Tensor, ahead: bool) -> torch.Tensor:
    """Return the term that Wav2Vec2-BERT adds to scores."""
    module = types.SimpleNamespace(
        left_max_position_embeddings=c.relative_clip, right_max_position_embeddings=c.relative_clip,
        distance_embedding=p["keys"].__getitem__, scaling=q.shape[-1] ** -0.5,
    )  # fmt: skip
    return wav2vec2_bert._apply_relative_key_position_encoding(module, q, k)[1]


BIASES = {"t5": t5, "toeplitz": toeplitz, "shaw": shaw}


def shaw_values(c: ModelConfig, p: dict, q, k, v, seen, pos: torch.Tensor) -> torch.Tensor:
    """Compute equations 3 and 4 of the paper, [B N T H], vector by vector."""
    keys = k[:, :, None] + p["keys"][clipped(c, pos)][:, None]  # [B N T S H]
    values = v[:, :, None] + p["values"][clipped(c, pos)][:, None]
    scores = (q[:, :, :, None] * keys).sum(-1) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    return (weights[..., None] * values).sum(3)


def xlnet(c: ModelConfig, p: dict, q, k, v, seen, pos: torch.Tensor) -> torch.Tensor:
    """Return the output of XLNet's attention, [B N T H]."""
    length = q.shape[2]
    frequencies = 10_000 ** (-torch.arange(0, c.d_model, 2, dtype=q.dtype) / c.d_model)
    angles = torch.arange(length, -length, -1)[:, None] * frequencies  # as in its model
    waves = torch.cat([angles.sin(), angles.cos()], -1)[:, None].expand(-1, len(q), -1)
    of_distances = torch.einsum("ibh,hnd->ibnd", waves, p["kernel"])
    attention = types.SimpleNamespace(
        r_w_bias=p["content_bias"], r_r_bias=p["position_bias"], scale=q.shape[-1] ** -0.5,
        rel_shift_bnij=XLNetRelativeAttention.rel_shift_bnij, dropout=lambda x: x,
    )  # fmt: skip
    q, k, v = (x.permute(2, 0, 1, 3) for x in (q, k, v))
    hidden = (~seen).to(q.dtype).permute(2, 3, 0, 1)
    mixed = XLNetRelativeAttention.rel_attn_core(attention, q, k, v, of_distances, attn_mask=hidden)
    return mixed.permute(1, 2, 0, 3)


WHOLE = {"shaw_values": shaw_values, "xlnet": xlnet}

"""A small GPT in PyTorch, built from its fastest modules: the peer of speed/language_model.py."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from transformer_jax.base.vocabulary import PAD
from transformer_jax.config import ModelConfig


class Layer(nn.Module):
    """Pre-norm: causal attention, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d, self.num_heads = config.d_model, config.num_heads
        self.norms = nn.ModuleList(nn.LayerNorm(d, eps=config.norm_epsilon) for _ in range(2))
        self.query_key_value, self.output = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, config.d_ff), nn.Linear(config.d_ff, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.query_key_value(self.norms[0](x)).unflatten(-1, (3, self.num_heads, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.relu(self.up(self.norms[1](x))))


class GPT(nn.Module):
    """Learned positions, tied input and output embeddings, no dropout."""

    def __init__(self, config: ModelConfig, pieces: int) -> None:
        super().__init__()
        d = config.d_model
        self.table, self.positions = nn.Embedding(pieces, d), nn.Embedding(config.max_positions, d)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_decoder_layers))
        self.norm = nn.LayerNorm(d, eps=config.norm_epsilon)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy over non-padding labels [B T]."""
        x = self.table(ids) * self.table.embedding_dim**0.5
        x = x + self.positions.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.table.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD)

    @torch.no_grad()
    def take(self, params: Mapping[str, Any]) -> None:
        """Copy the parameters of our model."""
        decoder = params["decoder"]
        _copy(self.table.weight, params["embedding"]["table"])
        _copy(self.positions.weight, params["positions"]["table"])
        _copy_norm(self.norm, decoder["final_norm"])
        for number, layer in enumerate(self.layers):
            ours: Any = decoder[f"layer_{number}"]
            attention, feed_forward = ours["self_attention"], ours["feed_forward"]
            _copy_maps(layer.query_key_value, *(attention[x] for x in ("query", "key", "value")))
            _copy_maps(layer.output, attention["output"])
            _copy_maps(layer.up, feed_forward["up"])
            _copy_maps(layer.down, feed_forward["down"])
            _copy_norm(layer.norms[0], ours["self_attention_residual"]["norm"])
            _copy_norm(layer.norms[1], ours["feed_forward_residual"]["norm"])


def _copy(parameter: torch.Tensor, array: Any) -> None:
    parameter.copy_(torch.from_numpy(np.array(array)))


def _copy_norm(norm: nn.LayerNorm, ours: Mapping[str, Any]) -> None:
    _copy(norm.weight, ours["scale"])
    _copy(norm.bias, ours["bias"])


def _copy_maps(linear: nn.Linear, *ours: Mapping[str, Any]) -> None:
    """Copy linear maps of one input; our kernels are [in... out...], with heads unfolded."""
    kernels = [np.reshape(one["kernel"], (linear.in_features, -1)) for one in ours]
    _copy(linear.weight, np.concatenate(kernels, 1).T)
    _copy(linear.bias, np.concatenate([np.ravel(one["bias"]) for one in ours]))

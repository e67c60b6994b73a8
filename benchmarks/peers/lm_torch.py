"""GPT-2 and Llama in PyTorch, built from its fastest modules: the peer of speed/gpu_lm.py."""

import torch
from torch import nn
from torch.nn import functional as F


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return heads [B N T H] with channels i and i + H/2 rotated by their position's angles."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).type_as(x)


class Layer(nn.Module):
    """Pre-norm: causal attention, then feed-forward."""

    def __init__(self, width: int, hidden: int, heads: int, kv_heads: int, llama: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        norm = nn.RMSNorm if llama else nn.LayerNorm
        self.norms = nn.ModuleList(norm(width, eps=1e-5) for _ in range(2))
        bias, inward = not llama, (heads + 2 * kv_heads) * self.size
        self.query_key_value = nn.Linear(width, inward, bias=bias)
        self.output = nn.Linear(width, width, bias=bias)
        self.up = nn.Linear(width, 2 * hidden if llama else hidden, bias=bias)  # with the gate
        self.down = nn.Linear(hidden, width, bias=bias)
        self.llama = llama

    def forward(self, x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor] | None):
        parts = self.heads, self.kv_heads, self.kv_heads
        projected = self.query_key_value(self.norms[0](x)).unflatten(-1, (-1, self.size))
        q, k, v = (part.transpose(1, 2) for part in projected.split(parts, 2))
        if angles is not None:
            q, k = rotated(q, *angles), rotated(k, *angles)
        grouped = self.kv_heads != self.heads
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        hidden = self.up(self.norms[1](x))
        if self.llama:
            gate, up = hidden.chunk(2, -1)
            return x + self.down(F.silu(gate) * up)
        return x + self.down(F.gelu(hidden, approximate="tanh"))


class LanguageModel(nn.Module):
    """GPT-2 with learned positions and one table, or Llama with rotary ones and two tables."""

    def __init__(
        self, pieces: int, width: int, hidden: int, layers: int, heads: int, kv_heads: int,
        length: int, llama: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        self.table = nn.Embedding(pieces, width)
        self.logits = nn.Linear(width, pieces, bias=False)
        self.positions = None if llama else nn.Embedding(length, width)
        self.layers = nn.ModuleList(
            Layer(width, hidden, heads, kv_heads, llama) for _ in range(layers)
        )
        self.norm = (nn.RMSNorm if llama else nn.LayerNorm)(width, eps=1e-5)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)
        if not llama:
            self.logits.weight = self.table.weight
        size = width // heads
        frequencies = 10_000.0 ** (-torch.arange(0, size, 2) / size)
        turns = torch.arange(length)[:, None] * frequencies
        self.register_buffer("cos", turns.cos(), persistent=False)
        self.register_buffer("sin", turns.sin(), persistent=False)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy of the labels [B T], nats."""
        x, angles = self.table(ids), None
        if torch.is_autocast_enabled(x.device.type):  # the residual stream too, as ours
            x = x.to(torch.get_autocast_dtype(x.device.type))
        if self.positions is None:
            angles = self.cos, self.sin
        else:
            x = x + self.positions.weight[: ids.shape[1]].to(x.dtype)
        for layer in self.layers:
            x = layer(x, angles)
        logits = self.logits(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

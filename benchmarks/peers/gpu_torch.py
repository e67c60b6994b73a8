"""The paper's model in PyTorch, built from its fastest modules: the peer of speed/gpu.py."""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Multi-head attention by scaled_dot_product_attention; batches have no padding."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(d_model, d_model)
        self.key_value = nn.Linear(d_model, 2 * d_model)
        self.output = nn.Linear(d_model, d_model)

    def forward(self, x: torch.Tensor, memory: torch.Tensor, causal: bool) -> torch.Tensor:
        q = self.query(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        k, v = self.key_value(memory).unflatten(-1, (2, self.num_heads, -1)).unbind(2)
        mixed = F.scaled_dot_product_attention(
            q, k.transpose(1, 2), v.transpose(1, 2), is_causal=causal
        )
        return self.output(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """A post-norm layer: attention sublayers, then feed-forward."""

    def __init__(self, d_model: int, d_ff: int, num_heads: int, attentions: int) -> None:
        super().__init__()
        self.attentions = nn.ModuleList(Attention(d_model, num_heads) for _ in range(attentions))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(attentions + 1))
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        decoder = memory is not None
        x = self.norms[0](x + self.dropout(self.attentions[0](x, x, causal=decoder)))
        if memory is not None:
            x = self.norms[1](x + self.dropout(self.attentions[1](x, memory, causal=False)))
        return self.norms[-1](x + self.dropout(self.down(F.relu(self.up(x)))))


class Transformer(nn.Module):
    """Encoder and decoder, with one table for all embeddings and the output."""

    def __init__(self, vocab: int, d_model: int, d_ff: int, num_heads: int, layers: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab, d_model)
        nn.init.normal_(self.table.weight, std=d_model**-0.5)
        self.positions = nn.Parameter(torch.randn(512, d_model), requires_grad=False)
        self.dropout = nn.Dropout(0.1)
        self.encoder = nn.ModuleList(Layer(d_model, d_ff, num_heads, 1) for _ in range(layers))
        self.decoder = nn.ModuleList(Layer(d_model, d_ff, num_heads, 2) for _ in range(layers))

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids) * self.table.embedding_dim**0.5 + self.positions[: ids.shape[1]]
        return self.dropout(x)

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        """Return the logits [B T V]."""
        memory, x = self.embed(src), self.embed(tgt)
        for layer in self.encoder:
            memory = layer(memory)
        for layer in self.decoder:
            x = layer(x, memory)
        return x @ self.table.weight.T

"""Mixers with a state, in torch: sums over all pairs, loops, and torch's own cells.

All take a config, their own parameters under our names, inputs [B T D], the mask of visible pairs
[B T T] and positions [B T]; they call none of our code.
"""

import functools

import numpy as np
import torch
from oracle import state_spaces
from oracle.state_spaces import segments
from torch.func import functional_call
from torch.nn import functional as F

from transformer_jax.config import ModelConfig


def _map(p: dict, name: str, x: torch.Tensor, axes: int = 1) -> torch.Tensor:
    product = torch.tensordot(x, p[f"{name}/kernel"], dims=axes)
    return product + p[f"{name}/bias"] if f"{name}/bias" in p else product


def _heads(c: ModelConfig, p: dict, x: torch.Tensor) -> list[torch.Tensor]:
    q, k, v = (_map(p, name, x).transpose(1, 2) for name in ("query", "key", "value"))
    if c.query_key_norm == "per_head":
        q, k = (
            F.rms_norm(y, y.shape[-1:], p[f"{name}_norm/scale"], c.norm_epsilon)
            for name, y in (("query", q), ("key", k))
        )
    k, v = (y.repeat_interleave(c.num_heads // y.shape[1], 1) for y in (k, v))
    return [F.elu(q) + 1, F.elu(k) + 1, v]


def random_features(
    c: ModelConfig, p: dict, x: torch.Tensor, seen: torch.Tensor, pos: torch.Tensor
) -> torch.Tensor:
    """Attend over all pairs by sines and cosines; with gates, times (1 - g_s) g_s+1 ... g_t."""
    q, k, v = (_map(p, name, x).transpose(1, 2) for name in ("query", "key", "value"))
    along = _drawn(c, orthogonal=False) * p["sigma"][:, None]
    along, k, v = (
        y.repeat_interleave(c.num_heads // c.kv_heads, axis)
        for y, axis in ((along, 0), (k, 1), (v, 1))
    )
    waves = []
    for y in (q, k):
        angles = torch.einsum("bnth,nmh->bntm", F.normalize(y, dim=-1), along)
        waves.append(torch.cat([angles.sin(), angles.cos()], -1) / c.num_features**0.5)
    scores = (waves[0] @ waves[1].transpose(2, 3)) * seen[:, None]
    if "gate/kernel" in p:
        gate = torch.sigmoid(_map(p, "gate", x)).transpose(1, 2)  # [B K T]
        gate = gate.repeat_interleave(c.num_heads // c.kv_heads, 1)
        length = x.shape[1]
        rows = [[gate[:, :, s + 1 : t + 1].prod(-1) * (1 - gate[:, :, s]) for s in range(length)]
                for t in range(length)]  # fmt: skip
        scores = scores * torch.stack([torch.stack(row, -1) for row in rows], -2)
    total = scores.sum(-1, keepdim=True)
    least = torch.where(total < 0, total.clamp(max=-1e-6), total.clamp(min=1e-6))
    return _map(p, "output", ((scores / least) @ v).transpose(1, 2), axes=2)


def favor(
    c: ModelConfig, p: dict, x: torch.Tensor, seen: torch.Tensor, pos: torch.Tensor
) -> torch.Tensor:
    """Attend over all pairs by positive features (Choromanski et al., lemma 1)."""
    q, k, v = (_map(p, name, x).transpose(1, 2) for name in ("query", "key", "value"))
    k, v = (y.repeat_interleave(c.num_heads // c.kv_heads, 1) for y in (k, v))
    along = _drawn(c, orthogonal=True).repeat_interleave(c.num_heads // c.kv_heads, 0)
    q, k = (
        torch.exp(torch.einsum("bnth,nmh->bntm", y, along) - y.square().sum(-1, keepdim=True) / 2)
        for y in (q / c.key_size**0.25, k / c.key_size**0.25)
    )
    scores = (q @ k.transpose(2, 3)) * seen[:, None]
    total = scores.sum(-1, keepdim=True)
    weights = scores / torch.where(total == 0, 1, total)
    return _map(p, "output", (weights @ v).transpose(1, 2), axes=2)


def aft(
    c: ModelConfig, p: dict, x: torch.Tensor, seen: torch.Tensor, pos: torch.Tensor, near: bool
) -> torch.Tensor:
    """Compute the formula of Zhai et al., with a weight for each pair and channel."""
    q, k, v = (_map(p, name, x).transpose(1, 2) for name in ("query", "key", "value"))
    away = pos[:, None, :] - pos[:, :, None]
    w = torch.zeros(away.shape, dtype=x.dtype)[:, None]
    if "query_places" in p:
        w = (p["query_places"][pos] @ p["key_places"][pos].transpose(1, 2))[:, None]
    if "distances" in p:
        most = c.window - 1
        w = p["distances"][away.clamp(-most, most) + most].permute(0, 3, 1, 2)
    if near:
        w = w * (away.abs() < c.window)[:, None]
    weights = torch.exp(w[..., None] + k[:, :, None]) * seen[:, None, :, :, None]
    total = weights.sum(3)
    mixed = (weights * v[:, :, None]).sum(3) / torch.where(total == 0, 1, total)
    return _map(p, "output", (torch.sigmoid(q) * mixed).transpose(1, 2), axes=2)


def lsh(
    c: ModelConfig, p: dict, x: torch.Tensor, seen: torch.Tensor, pos: torch.Tensor
) -> torch.Tensor:
    """Attend in sorted chunks, text by text and round by round (Kitaev et al. 2020)."""
    q, v = (_map(p, name, x).transpose(1, 2) for name in ("query_key", "value"))
    shape = (c.num_heads, c.key_size, c.hash_rounds, c.hash_buckets // 2)
    turned = torch.tensor(np.random.default_rng(c.feature_seed).normal(size=shape))
    mixed = torch.zeros(*v.shape, dtype=x.dtype)
    for row, begin, end in segments(seen):
        for head in range(c.num_heads):
            here, values = q[row, head, begin:end], v[row, head, begin:end]
            logits = here @ F.normalize(here, dim=-1).T
            logits = logits.masked_fill(torch.eye(end - begin, dtype=torch.bool), -1e5)
            outs, totals = [], []
            for number in range(c.hash_rounds):
                sides = here.detach() @ turned[head, :, number]
                buckets = torch.cat([sides, -sides], -1).argmax(-1).tolist()
                order = sorted(range(end - begin), key=lambda i, b=buckets: (b[i], i))
                chunk = torch.empty(end - begin, dtype=torch.long)
                chunk[order] = torch.arange(end - begin) // c.block_size
                away = chunk[:, None] - chunk[None]
                near = seen[row, begin:end, begin:end] & ((away == 0) | (away == 1))
                scores = logits.masked_fill(~near, -torch.inf)
                outs.append(torch.softmax(scores, -1) @ values)
                totals.append(torch.logsumexp(scores, -1))
            share = torch.softmax(torch.stack(totals), 0)
            whole = mixed.clone()
            whole[row, head, begin:end] = (share[..., None] * torch.stack(outs)).sum(0)
            mixed = whole
    return _map(p, "output", mixed.transpose(1, 2), axes=2)


def _drawn(c: ModelConfig, orthogonal: bool) -> torch.Tensor:
    """Return the directions used in evaluation, drawn by NumPy with the config's seed."""
    chance, size = np.random.default_rng(c.feature_seed), c.key_size
    drawn = chance.normal(size=(c.kv_heads, c.num_features, size))
    if orthogonal:
        blocks = chance.normal(size=(c.kv_heads, -(-c.num_features // size), size, size))
        bases, triangles = np.linalg.qr(blocks)  # uniform with the signs of the diagonal
        bases = bases * np.sign(np.einsum("kbii->kbi", triangles))[:, :, None]
        rows = bases.reshape(c.kv_heads, -1, size)[:, : c.num_features]
        drawn = rows * np.linalg.norm(drawn, axis=-1, keepdims=True)
    return torch.tensor(drawn)


def linear(
    c: ModelConfig, p: dict, x: torch.Tensor, seen: torch.Tensor, pos: torch.Tensor
) -> torch.Tensor:
    """Attend over all pairs by features, with weights divided by their sum."""
    q, k, v = _heads(c, p, x)
    scores = (q @ k.transpose(2, 3)) * seen[:, None]
    total = scores.sum(-1, keepdim=True)
    weights = scores / torch.where(total == 0, 1, total)
    return _map(p, "output", (weights @ v).transpose(1, 2), axes=2)


def delta_rule(
    c: ModelConfig, p: dict, x: torch.Tensor, seen: torch.Tensor, pos: torch.Tensor
) -> torch.Tensor:
    """Step through each sentence, correcting one matrix per head (Schlag et al., eq. 23, 24)."""
    q, k, v = _heads(c, p, x)
    q, k = (y / y.sum(-1, keepdim=True) for y in (q, k))
    strength = torch.sigmoid(_map(p, "strength", x)).transpose(1, 2)
    strength = strength.repeat_interleave(c.num_heads // strength.shape[1], 1)
    mixed = [[torch.zeros_like(v[0, :, 0])] * x.shape[1] for _ in x]
    for row, begin, end in segments(seen):
        weight = torch.zeros(c.num_heads, v.shape[-1], k.shape[-1], dtype=x.dtype)
        for t in range(begin, end):
            old = torch.einsum("nvf,nf->nv", weight, k[row, :, t])
            change = strength[row, :, t, None] * (v[row, :, t] - old)
            weight = weight + change[:, :, None] * k[row, :, t, None]
            mixed[row][t] = torch.einsum("nvf,nf->nv", weight, q[row, :, t])
    return _map(p, "output", torch.stack([torch.stack(row) for row in mixed]), axes=2)


def ssru(
    c: ModelConfig, p: dict, x: torch.Tensor, seen: torch.Tensor, pos: torch.Tensor
) -> torch.Tensor:
    """Step through each sentence (Kim et al. 2019, section 3.1)."""
    forget, new = torch.sigmoid(_map(p, "forget", x)), _map(p, "input", x)
    out = [[torch.zeros_like(x[0, 0])] * x.shape[1] for _ in x]
    for row, begin, end in segments(seen):
        cell = torch.zeros_like(x[0, 0])
        for t in range(begin, end):
            f = forget[row, t]
            cell = f * cell + (1 - f) * new[row, t]
            out[row][t] = F.relu(cell)
    return torch.stack([torch.stack(row) for row in out])


def _recurrent(module: type, two_way: bool):
    """Return a mixer that runs torch's own recurrent layer sentence by sentence."""

    def mix(
        c: ModelConfig, p: dict, x: torch.Tensor, seen: torch.Tensor, pos: torch.Tensor
    ) -> torch.Tensor:
        cells = ("forward", "backward") if two_way else ("cell",)
        size = c.d_model // len(cells)
        layer = module(c.d_model, size, batch_first=True, bidirectional=two_way).double()
        given = {}
        for cell, suffix in zip(cells, ("", "_reverse"), strict=False):
            weights = {name: p[f"{cell}/{ours}"] for name, ours in (
                ("weight_ih", "kernel"), ("weight_hh", "recurrent_kernel"),
                ("bias_ih", "bias"), ("bias_hh", "recurrent_bias"),
            )}  # fmt: skip
            for name, value in weights.items():
                rows = value.flatten() if value.ndim == 2 else value.flatten(1).T
                given[f"{name}_l0{suffix}"] = rows
        out = torch.zeros_like(x)
        for row, begin, end in segments(seen):
            found, _ = functional_call(layer, given, (x[row : row + 1, begin:end],))
            out = out.clone()
            out[row, begin:end] = found[0]
        return out

    return mix


def bigbird(c: ModelConfig, seen: torch.Tensor) -> torch.Tensor:
    """Return the mask of pairs visible in BigBird's blocks, for one text per row."""
    found = torch.zeros_like(seen)
    for row, begin, end in segments(seen):
        assert begin == 0
        count = -(-end // c.block_size)
        for i in range(count):
            fixed = {0, i - 1, i, i + 1, count - 1}
            chance = np.random.default_rng([c.feature_seed, i]).random(count)
            others = sorted({*range(count)} - fixed, key=lambda j: -chance[j])
            attended_blocks = fixed | {*others[: c.random_blocks]}
            if i in (0, count - 1):
                attended_blocks = {*range(count)}
            for j in attended_blocks & {*range(count)}:
                rows, columns = (slice(n * c.block_size, (n + 1) * c.block_size) for n in (i, j))
                found[row, rows, columns] = True
    return found


def differential(
    c: ModelConfig, p: dict, x: torch.Tensor, seen: torch.Tensor, pos: torch.Tensor
) -> torch.Tensor:
    """Attend twice for each pair of heads, and subtract (Ye et al. 2024, section 2.1)."""
    q, k, v = (_map(p, name, x).transpose(1, 2) for name in ("query", "key", "value"))
    k, v = (y.repeat_interleave(c.num_heads // c.kv_heads, 1) for y in (k, v))
    seen = (seen | ~seen.any(-1, keepdim=True))[:, None]  # padding may attend to nothing
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    first, second = (
        p[f"lambda_{name}_query"] @ p[f"lambda_{name}_key"] for name in ("first", "second")
    )
    share, half, mixed = first.exp() - second.exp() + 0.8, c.num_heads // 2, []
    for i in range(half):
        both = torch.cat([v[:, i], v[:, i + half]], -1)
        y = (weights[:, i] - share * weights[:, i + half]) @ both
        mixed.append((1 - 0.8) * F.rms_norm(y, y.shape[-1:], eps=c.norm_epsilon))
    joined = torch.stack(mixed, 2).reshape(*x.shape[:2], c.num_heads, -1)
    return _map(p, "output", joined, axes=2)


MIXERS = {
    "differential": differential,
    "linear": linear,
    "delta_rule": delta_rule,
    "random_features": random_features,
    "gated_random_features": random_features,
    "favor": favor,
    "lsh": lsh,
    "aft_full": functools.partial(aft, near=False),
    "aft_local": functools.partial(aft, near=True),
    "aft_conv": functools.partial(aft, near=True),
    "aft_simple": functools.partial(aft, near=False),
    "ssru": ssru,
    "elman": _recurrent(torch.nn.RNN, two_way=False),
    "lstm": _recurrent(torch.nn.LSTM, two_way=False),
    "gru": _recurrent(torch.nn.GRU, two_way=False),
    "bielman": _recurrent(torch.nn.RNN, two_way=True),
    "bilstm": _recurrent(torch.nn.LSTM, two_way=True),
    "bigru": _recurrent(torch.nn.GRU, two_way=True),
    **state_spaces.MIXERS,
}

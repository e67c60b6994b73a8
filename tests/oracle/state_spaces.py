"""State spaces and their kin in torch, sentence by sentence and step by step.

They have the interface of the functions in `mixers.py`, and call none of our code.
"""

import functools

import torch
from torch.nn import functional as F

from transformer_jax.config import ModelConfig


def segments(seen: torch.Tensor) -> list[tuple[int, int, int]]:
    """Return (row, begin, end) of the sentences, without padding, which attends to nothing."""
    found = []
    for row, pairs in enumerate(seen):
        begin, length = 0, pairs.shape[0]
        while begin < length:
            end = begin + 1
            while end < length and pairs[end, begin]:
                end += 1
            if pairs[begin, begin]:
                found.append((row, begin, end))
            begin = end
    return found


def by_sentence(mix):
    """Return a mixer of batches from one of a sentence: (config, parameters, x [T D])."""

    def mixed(
        c: ModelConfig, p: dict, x: torch.Tensor, seen: torch.Tensor, pos: torch.Tensor
    ) -> torch.Tensor:
        out = torch.zeros_like(x)
        for row, begin, end in segments(seen):
            out = out.clone()
            out[row, begin:end] = mix(c, p, x[row, begin:end])
        return out

    return mixed


def both_ends(mix):
    """Return the sum of a mixer of sentences and of one that reads them from their end."""

    def mixed(c: ModelConfig, p: dict, x: torch.Tensor) -> torch.Tensor:
        ahead, behind = (
            {k.removeprefix(f"{side}/"): v for k, v in p.items() if k.startswith(side)}
            for side in ("forward", "backward")
        )
        return mix(c, ahead, x) + mix(c, behind, x.flip(0)).flip(0)

    return mixed


def _map(p: dict, name: str, x: torch.Tensor, axes: int = 1) -> torch.Tensor:
    product = torch.tensordot(x, p[f"{name}/kernel"], dims=axes)
    return product + p[f"{name}/bias"] if f"{name}/bias" in p else product


def _convolved(p: dict, name: str, x: torch.Tensor) -> torch.Tensor:
    """Return SiLU of torch's convolution over the last positions, for each channel alone."""
    kernel = p[f"{name}_convolution/depthwise"].flatten(1)
    bias = p.get(f"{name}_convolution/bias")
    flat = x.flatten(1)
    padded = F.pad(flat.T[None], (len(kernel) - 1, 0))
    y = F.conv1d(padded, kernel.T[:, None], None if bias is None else bias.flatten(),
                 groups=flat.shape[1])  # fmt: skip
    return F.silu(y[0].T.reshape(x.shape))


def _heads(p: dict, x: torch.Tensor) -> list[torch.Tensor]:
    """Return queries, keys and values after their convolutions, for each head."""
    q, k, v = (_convolved(p, name, _map(p, name, x)) for name in ("query", "key", "value"))
    return [y.repeat_interleave(v.shape[1] // y.shape[1], 1) for y in (q, k, v)]


def mamba2(c: ModelConfig, p: dict, x: torch.Tensor) -> torch.Tensor:
    """Step through a sentence (Dao and Gu 2024, section 7)."""
    q, k, v = _heads(p, x)
    dt = F.softplus(_map(p, "rate", x) + p["rate_bias"])
    state, out = torch.zeros(*v.shape[1:], k.shape[-1], dtype=x.dtype), []
    for t in range(len(x)):
        kept = torch.exp(-dt[t] * torch.exp(p["log_decay"]))
        new = torch.einsum("n,np,nf->npf", dt[t], v[t], k[t])
        state = kept[:, None, None] * state + new
        out.append(torch.einsum("npf,nf->np", state, q[t]) + p["skip"][:, None] * v[t])
    gated = torch.stack(out) * F.silu(_map(p, "gate", x))
    grouped = gated.reshape(len(x), c.state_groups or 1, -1)
    normal = F.rms_norm(grouped, grouped.shape[-1:], eps=c.norm_epsilon).reshape(gated.shape)
    return _map(p, "output", normal * p["scale"], axes=2)


def gated_delta(c: ModelConfig, p: dict, x: torch.Tensor) -> torch.Tensor:
    """Step through a sentence (Yang et al. 2024, equation 10)."""
    q, k, v = _heads(p, x)
    q, k = (y / (y.square().sum(-1, keepdim=True) + 1e-6).sqrt() for y in (q, k))
    decay = -torch.exp(p["log_decay"]) * F.softplus(_map(p, "rate", x) + p["rate_bias"])
    strength = torch.sigmoid(_map(p, "strength", x))
    state, out = torch.zeros(*v.shape[1:], k.shape[-1], dtype=x.dtype), []
    for t in range(len(x)):
        erased = torch.eye(k.shape[-1], dtype=x.dtype) - strength[t, :, None, None] * (
            k[t, :, :, None] * k[t, :, None]
        )
        state = torch.exp(decay[t])[:, None, None] * state @ erased
        state = state + torch.einsum("n,np,nf->npf", strength[t], v[t], k[t])
        out.append(torch.einsum("npf,nf->np", state, q[t]) / k.shape[-1] ** 0.5)
    normal = F.rms_norm(torch.stack(out), v.shape[-1:], p["norm/scale"], c.norm_epsilon)
    return _map(p, "output", normal * F.silu(_map(p, "gate", x)), axes=2)


def mamba(c: ModelConfig, p: dict, x: torch.Tensor) -> torch.Tensor:
    """Step through a sentence (Gu and Dao 2023, algorithm 2)."""
    v = _convolved(p, "value", _map(p, "value", x))
    q, k, rate = (_map(p, name, v) for name in ("query", "key", "rate_latent"))
    dt = F.softplus(_map(p, "rate", rate) + p["rate_bias"])
    state, out = torch.zeros_like(p["log_decay"]), []
    for t in range(len(x)):
        kept = torch.exp(-dt[t, :, None] * torch.exp(p["log_decay"]))
        state = kept * state + (dt[t] * v[t])[:, None] * k[t]
        out.append(state @ q[t] + p["skip"] * v[t])
    return _map(p, "output", torch.stack(out) * F.silu(_map(p, "gate", x)))


def _lags(p: dict, side: str, length: int) -> torch.Tensor:
    """Return the kernels of S4D's channels [T D] (Gu et al. 2022, listing 1)."""
    dt = torch.exp(p["time_step"])[:, None]
    a = -torch.exp(p["log_decay"]) + 1j * p["frequency"]
    weights = torch.complex(p[f"{side}real"], p[f"{side}imaginary"]) * (torch.exp(dt * a) - 1) / a
    powers = torch.exp((dt * a)[None] * torch.arange(length)[:, None, None])
    return 2 * (weights * powers).sum(-1).real


def _glu(p: dict, y: torch.Tensor) -> torch.Tensor:
    y = F.gelu(y)
    return _map(p, "output", y) * torch.sigmoid(_map(p, "gate", y))


def s4d(c: ModelConfig, p: dict, x: torch.Tensor) -> torch.Tensor:
    """Add up the inputs before each position."""
    kernel, y = _lags(p, "", len(x)), []
    for t in range(len(x)):
        y.append(sum(kernel[t - s] * x[s] for s in range(t + 1)) + p["skip"] * x[t])
    return _glu(p, torch.stack(y))


def bis4d(c: ModelConfig, p: dict, x: torch.Tensor) -> torch.Tensor:
    """Add up all inputs; the kernel of later ones begins at a distance of 1."""
    ahead, behind = _lags(p, "", len(x)), _lags(p, "backward_", len(x))
    y = []
    for t in range(len(x)):
        past = sum(ahead[t - s] * x[s] for s in range(t + 1))
        future = sum((behind[s - t - 1] * x[s] for s in range(t + 1, len(x))), start=0 * past)
        y.append(past + future + p["skip"] * x[t])
    return _glu(p, torch.stack(y))


def retention(c: ModelConfig, p: dict, x: torch.Tensor) -> torch.Tensor:
    """Weight all pairs (Sun et al. 2023, equation 5), with rotations as complex numbers."""
    q, k, v = (_map(p, name, x) for name in ("query", "key", "value"))
    turns = 10000 ** -torch.linspace(0, 1, k.shape[-1] // 2, dtype=torch.float64)
    turned = torch.exp(1j * torch.arange(len(x))[:, None, None] * turns)
    q, k = (torch.view_as_complex(y.reshape(*y.shape[:2], -1, 2)) * turned for y in (q, k))
    away = torch.arange(len(x))[:, None] - torch.arange(len(x))
    kept = 1 - 2.0 ** (-5 - torch.arange(q.shape[1], dtype=torch.float64))
    decay = torch.where(away >= 0, kept[:, None, None] ** away.clamp(min=0), 0)
    scores = torch.einsum("tnf,snf->nts", q, k.conj()).real * decay
    mixed = torch.einsum("nts,snp->tnp", scores / c.state_size**0.5, v)
    normal = F.rms_norm(mixed, mixed.shape[-1:], eps=c.norm_epsilon)
    return _map(p, "output", normal * F.silu(_map(p, "gate", x)), axes=2)


def _averaged(c: ModelConfig, p: dict, side: str, x: torch.Tensor) -> torch.Tensor:
    """Step through damped moving averages (Ma et al. 2022, equations 3 and 4)."""
    alpha, delta = (torch.sigmoid(p[f"average/{side}{name}"]) for name in ("weight", "damping"))
    beta, eta = (p[f"average/{side}{name}"] for name in ("expansion", "projection"))
    h, out = torch.zeros_like(alpha), []
    for u in x:
        h = alpha * beta * u[:, None] + (1 - alpha * delta) * h
        out.append((eta * h).sum(-1) / c.state_size**0.5)
    return torch.stack(out)


def mega(c: ModelConfig, p: dict, x: torch.Tensor, chunked: bool = False) -> torch.Tensor:
    """Attend by moving averages (equations 8 to 15), from both ends if there are two; in chunks
    (section 3.5), only to positions of one's own.
    """
    y = _averaged(c, p, "", x)
    both = "average/backward_weight" in p
    if both:
        y = y + _averaged(c, p, "backward_", x.flip(0)).flip(0)
    y = F.silu(y + p["average/skip"] * x)
    z = F.silu(_map(p, "shared", y))[:, None]
    q, k = (z * p[f"{name}/scale"] + p[f"{name}/bias"] for name in ("query", "key"))
    scores = torch.einsum("tnh,snh->nts", q, k) / z.shape[-1] ** 0.5
    seen = torch.ones(len(x), len(x), dtype=torch.bool)
    if chunked:
        chunk = torch.arange(len(x)) // c.block_size
        seen = chunk[:, None] == chunk[None]
    weights = scores.masked_fill(~(seen if both else seen.tril()), -torch.inf).softmax(-1)
    mixed = torch.einsum("nts,snp->tnp", weights, F.silu(_map(p, "value", x)))
    gated = _map(p, "output", F.silu(_map(p, "reset", y)) * mixed, axes=2)
    new = F.silu(_map(p, "candidate", y) + gated)
    return torch.sigmoid(_map(p, "update", y)) * (new - x)


def rwkv7(c: ModelConfig, p: dict, x: torch.Tensor) -> torch.Tensor:
    """Step through a sentence, with matrices [value key] as in the authors' code (Peng et al. 2025,
    equations 3 to 22), but for the mixing of values with those of the first layer.
    """
    before = torch.cat([torch.zeros_like(x[:1]), x[:-1]])
    xr, xw, xk, xv, xa, xg = (x + (before - x) * mix for mix in p["mixtures"])
    r, k, v = _map(p, "query", xr), _map(p, "key", xk), _map(p, "value", xv)
    w = p["decay_bias"] + _map(p, "decay", torch.tanh(_map(p, "decay_latent", xw)))
    w = torch.exp(-torch.exp(-F.softplus(-w) - 0.5))
    a = torch.sigmoid(p["rate_bias"] + _map(p, "rate", _map(p, "rate_latent", xa)))
    gate = _map(p, "gate", torch.sigmoid(_map(p, "gate_latent", xg)))
    u = F.normalize(k * p["erased"], dim=-1)
    k = k * (1 + (a - 1) * p["replaced"])
    state, out = torch.zeros(*k.shape[1:], k.shape[-1], dtype=x.dtype), []
    for t in range(len(x)):
        decayed = state @ torch.diag_embed(w[t])
        erased = state @ (-u[t, :, :, None]) @ (u[t] * a[t])[:, None]
        state = decayed + erased + v[t, :, :, None] @ k[t, :, None]
        out.append((state @ r[t, :, :, None])[..., 0])
    y = F.group_norm(torch.stack(out).flatten(1), r.shape[1], eps=64e-5).reshape(r.shape)
    y = y * p["scale"] + p["bias"] + (r * k * p["bonus"]).sum(-1, keepdim=True) * v
    return _map(p, "output", y * gate, axes=2)


_ONE_WAY = {
    "mamba2": mamba2,
    "gated_delta": gated_delta,
    "mamba": mamba,
    "retention": retention,
    "rwkv7": rwkv7,
}
MIXERS = {
    **{word: by_sentence(mix) for word, mix in _ONE_WAY.items()},
    **{f"bi{word}": by_sentence(both_ends(mix)) for word, mix in _ONE_WAY.items()},
    "s4d": by_sentence(s4d),
    "bis4d": by_sentence(bis4d),
    "mega": by_sentence(mega),
    "bimega": by_sentence(mega),
    "mega_chunk": by_sentence(functools.partial(mega, chunked=True)),
    "bimega_chunk": by_sentence(functools.partial(mega, chunked=True)),
}

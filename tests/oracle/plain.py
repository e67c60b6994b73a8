"""Any of our models in plain torch, for variants that no library computes as we do.

Masks are explicit, heads and activations are torch's own, rotations those of `transformers`, slopes
literals. It reads our config and uses our parameter names, but calls none of our code.
"""

import functools
import math
from typing import Any

import torch
from flax.traverse_util import flatten_dict
from oracle.distances import BIASES, WHOLE
from oracle.mixers import MIXERS, bigbird
from oracle.peers import paper_positions
from torch.nn import functional as F
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as rotate_pairs
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as rotate_halves

from transformer_jax.config import ModelConfig

SLOPES = {4: [1 / 4, 1 / 16, 1 / 64, 1 / 256], 6: [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]}

# DeepNorm's alphas by architecture and layers: 0.81 (3^4 2)^(1/16) and 6^(1/4); 6^(1/4).
ALPHAS = {
    ("encoder_decoder", 3, 2): {"encoder": 1.113216685842863, "decoder": 1.5650845800732873},
    ("decoder", 6, 3): {"decoder": 1.5650845800732873},
    ("encoder", 3, 6): {"encoder": 1.5650845800732873},
}


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": _gelu_tanh,
    "relu_squared": lambda x: F.relu(x).square(),
    "silu": F.silu,
    "mish": F.mish,
    "swiglu": F.silu,
    "reglu": F.relu,
    "geglu": F.gelu,
    "geglu_tanh": _gelu_tanh,
}


class Plain(torch.nn.Module):
    """A model whose parameters have our names and shapes."""

    def __init__(self, config: ModelConfig, shapes: Any) -> None:
        super().__init__()
        self.config, self.theta = config, None
        self.p = torch.nn.ParameterDict({
            path: (torch.ones if path.endswith("scale") else torch.zeros)(leaf.shape)
            for path, leaf in flatten_dict(shapes, sep="/").items()
        })  # fmt: skip

    def tensors(self) -> dict[str, torch.nn.Parameter]:
        """Return the trainable parameters by our paths."""
        return dict(self.p.items())

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        self.ranked = "tgt_rank" in batch
        seg, pos = batch["tgt_seg"], batch["tgt_pos"]
        memory = across = None
        if self.config.architecture == "encoder_decoder":
            src_seg, src_pos = batch["src_seg"], batch["src_pos"]
            x = self._embedded("src", batch["src_ids"], src_pos)
            memory = self._stack("encoder", x, src_pos, alike(src_seg, src_seg))
            across = alike(seg, src_seg)
        if self.ranked:
            earlier = batch["tgt_rank"][:, None, :] <= batch["tgt_rank"][:, :, None]
        else:
            earlier = torch.ones(seg.shape[1], seg.shape[1], dtype=torch.bool).tril()
        x = self._embedded("tgt", batch["tgt_in"], pos)
        x = self._stack("decoder", x, pos, alike(seg, seg) & earlier, memory, across)
        tables = ("output/table", "tgt_embedding/table", "embedding/table")
        c = self.config
        if c.logits_scale:
            x = x / math.sqrt(c.d_model)
        logits = c.logits_factor * x @ self._table(next(t for t in tables if t in self.p)).T
        logits = logits + self.p["logits_bias/bias"] if c.logits_bias else logits
        return _capped(logits, c.logits_softcap)

    def _table(self, path: str) -> torch.Tensor:
        fixed = self.config.embedding_norm == "fix_norm"
        return F.normalize(self.p[path], dim=-1) if fixed else self.p[path]

    def _embedded(self, side: str, ids: torch.Tensor, pos: torch.Tensor) -> torch.Tensor:
        own, shared = f"{side}_embedding/table", "embedding/table"
        table, width = self._table(own if own in self.p else shared), self.config.d_model
        x = table[ids] * (math.sqrt(width) if self.config.embedding_scale else 1)
        if self.config.positions != "none" and self.config.layer_sharing != "universal":
            x = x + self._positions(int(pos.max()) + 1, width)[pos]
        names = (f"{side}_input_norm", "input_norm")  # an encoder's follows its token types
        norm = next((name for name in names if f"{name}/scale" in self.p), None)
        alone = self.config.architecture == "encoder"
        return x if alone or norm is None else self._norm(norm, x)

    def _positions(self, count: int, width: int) -> torch.Tensor:
        if self.config.positions == "sinusoidal":
            return paper_positions(count, width)
        assert self.config.positions == "sinusoidal_tensor2tensor"
        scale = 10000 ** (torch.arange(width // 2, dtype=torch.float64) / (width // 2 - 1))
        angles = torch.arange(count)[:, None] / scale
        return torch.cat([angles.sin(), angles.cos()], 1)

    def _stack(self, name, x, pos, seen, memory=None, across=None) -> torch.Tensor:
        c = self.config
        pattern = getattr(c, f"{name}_pattern")
        away = pos[:, :, None] - pos[:, None, :]
        if c.residual == "reversible":
            x = torch.cat([x, x], -1)
        for number in range(getattr(c, f"num_{name}_layers")):
            kind = pattern[number % len(pattern)]
            self.theta = c.local_rope_theta if kind == "local" else None
            visible, steps = seen, c.dilation if kind == "dilated" else 1
            if kind in ("local", "dilated"):
                visible = seen & (away.abs() < steps * c.window) & (away % steps == 0)
            shared = c.layer_sharing != "none"
            layer = f"{name}/layer_{number % len(pattern) if shared else number}"
            if c.layer_sharing == "universal":
                assert c.positions == "sinusoidal"
                vectors = paper_positions(32, c.d_model)
                x = x + vectors[pos] + vectors[1 + number]
            part = f"{layer}/self_attention"
            if kind == "bigbird":
                visible = seen & bigbird(c, seen)
            if kind in MIXERS:
                own = {k.removeprefix(f"{part}/"): v for k, v in self.p.items() if part in k}
                mix = functools.partial(MIXERS[kind], c, own, seen=visible, pos=pos)
            else:
                attend = self._longformer if kind == "longformer" else self._mix
                mix = functools.partial(attend, part, seen=visible, pos=pos)
            before, x = x, self._residual(part, x, mix)
            if memory is not None:
                part = f"{layer}/cross_attention"
                x = self._residual(part, x, lambda y, p=part: self._attend(p, y, memory, across))
            part, attended = f"{layer}/feed_forward", part
            kind = c.feed_forward_pattern[number % len(c.feed_forward_pattern)]
            if kind != "none" and c.residual in ("parallel", "parallel_norms"):
                one = attended if c.residual == "parallel" else part
                x = x + self._feed_forward(part, self._norm(f"{one}_residual/norm", before))
            elif kind != "none":
                x = self._residual(part, x, lambda y, p=part: self._feed_forward(p, y))
        if c.residual == "reversible":
            x = sum(x.chunk(2, -1)) / 2
        ends_in_norm = c.residual not in ("post_norm", "deep_norm")
        return self._norm(f"{name}/final_norm", x) if ends_in_norm else x

    def _residual(self, part: str, x: torch.Tensor, f) -> torch.Tensor:
        norm, c = f"{part}_residual/norm", self.config
        if c.residual == "reversible":
            one, other = x.chunk(2, -1)
            return torch.cat([other, one + f(self._norm(norm, other))], -1)
        if c.residual in ("pre_norm", "parallel", "parallel_norms"):
            return x + f(self._norm(norm, x))
        if c.residual == "sandwich":
            return x + self._norm(f"{part}_residual/output_norm", f(self._norm(norm, x)))
        if c.residual == "reordered_norm":
            return x + self._norm(norm, f(x))
        if c.residual == "deep_norm":
            layers = c.num_encoder_layers, c.num_decoder_layers
            return self._norm(norm, x * ALPHAS[c.architecture, *layers][part.split("/")[0]] + f(x))
        return self._norm(norm, x + f(x))

    def _norm(self, path: str, x: torch.Tensor) -> torch.Tensor:
        shape, scale, eps = x.shape[-1:], self.p[f"{path}/scale"], self.config.norm_epsilon
        if self.config.norm == "rms_norm":
            return F.rms_norm(x, shape, scale, eps)
        if self.config.norm == "zero_centered_rms_norm":
            return F.rms_norm(x, shape, 1 + scale, eps)
        if self.config.norm == "scale_norm":
            return scale * F.normalize(x, dim=-1, eps=eps)
        if self.config.norm == "layer_norm_no_bias":
            return F.layer_norm(x, shape, scale, eps=eps)
        return F.layer_norm(x, shape, scale, self.p[f"{path}/bias"], eps)

    def _map(self, path: str, x: torch.Tensor, axes: int = 1) -> torch.Tensor:
        product = torch.tensordot(x, self.p[f"{path}/kernel"], dims=axes)
        return product + self.p[f"{path}/bias"] if f"{path}/bias" in self.p else product

    def _experts(self, path: str, x: torch.Tensor) -> torch.Tensor:
        """Compute all experts for all positions, and select from their outputs."""
        c, own = self.config, {"sigmoid": torch.sigmoid, "softmax": lambda y: y.softmax(-1)}
        scores = own[c.expert_scores](x @ self.p[f"{path}/router/kernel"])
        biased = scores + self.p[f"{path}/router/load_bias"]
        chosen = biased.topk(c.experts_per_token, -1).indices
        weights = scores.gather(-1, chosen)
        if c.normalize_expert_weights:
            weights = weights / weights.sum(-1, keepdim=True)

        def one(number: int) -> torch.Tensor:
            maps = {}
            for name in ("gate", "up", "down"):
                kernels, bias = (self.p.get(f"{path}/{name}/{x}") for x in ("kernels", "bias"))
                if kernels is not None:
                    maps[name] = functools.partial(
                        F.linear, weight=kernels[number].T,
                        bias=None if bias is None else bias[number],
                    )  # fmt: skip
            activation = ACTIVATIONS[c.activation]
            if "gate" in maps:
                return maps["down"](activation(maps["gate"](x)) * maps["up"](x))
            return maps["down"](activation(maps["up"](x)))

        outputs = torch.stack([one(number) for number in range(c.num_experts)], -2)
        places = chosen[..., None].expand(*chosen.shape, x.shape[-1])
        y = (weights[..., None] * outputs.gather(-2, places)).sum(-2)
        if not c.shared_experts:
            return y
        shared = self._dense(f"{path}/shared", x)
        if c.shared_expert_gate:
            shared = shared * (x @ self.p[f"{path}/shared_gate/kernel"]).sigmoid()
        return y + shared

    def _feed_forward(self, path: str, x: torch.Tensor) -> torch.Tensor:
        experts = f"{path}/router/kernel" in self.p
        return self._experts(path, x) if experts else self._dense(path, x)

    def _dense(self, path: str, x: torch.Tensor) -> torch.Tensor:
        hidden = self._map(f"{path}/up", x)
        activation = ACTIVATIONS[self.config.activation]
        if f"{path}/gate/kernel" in self.p:
            return self._map(f"{path}/down", activation(self._map(f"{path}/gate", x)) * hidden)
        return self._map(f"{path}/down", activation(hidden))

    def _mix(self, path: str, x, seen, pos) -> torch.Tensor:
        return self._attend(path, x, x, seen, pos)

    def _longformer(self, path: str, x, seen, pos) -> torch.Tensor:
        c = self.config
        first, away = pos < c.global_tokens, pos[:, :, None] - pos[:, None, :]
        near = (away.abs() < c.window) | first[:, None, :]
        everywhere = self._attend(path, x, x, seen, pos, "global_")
        return torch.where(first[..., None], everywhere, self._mix(path, x, seen & near, pos))

    def _attend(self, path: str, x, source, seen, pos=None, maps_of="") -> torch.Tensor:
        """Return attention to the source; with positions, the source is x itself."""
        scheme = self.config.relative_positions
        maps = ("query", x), ("key", source), ("value", source)
        q, k, v = (
            self._head_norm(f"{path}/{name}", self._map(f"{path}/{maps_of}{name}", y))
            for name, y in maps
        )
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        # Padding may attend to nothing, which gives NaN: let it attend everywhere.
        seen = (seen | ~seen.any(-1, keepdim=True))[:, None]
        mask = torch.zeros(seen.shape, dtype=q.dtype).masked_fill(~seen, -torch.inf)
        if pos is not None and scheme.startswith("rope"):
            q, k = self._turned(q, k, pos)
        if pos is not None and scheme == "alibi":
            slopes = torch.tensor(SLOPES[self.config.num_heads], dtype=q.dtype)
            away = (pos[:, :, None] - pos[:, None, :]).abs()
            mask = mask - slopes[:, None, None] * away[:, None]
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        size = self.config.score_size or q.shape[-1]
        scale = size**-0.5 if self.config.score_scale != "none" else 1.0
        scale = scale / self.config.attention_temperature
        of_distances, ahead = self._of_distances(path), self.ranked or path.startswith("encoder")
        if pos is not None and scheme in BIASES:
            mask = mask + BIASES[scheme](self.config, of_distances, q, k, pos, ahead)
        if self.config.attention_softcap is not None:
            scores = _capped(q @ k.mT * scale, self.config.attention_softcap)
            mixed = (scores + mask).softmax(-1) @ v
        elif pos is not None and scheme in WHOLE:
            mixed = WHOLE[scheme](self.config, of_distances, q, k, v, seen, pos)
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        mixed = mixed.transpose(1, 2)
        if f"{path}/gate/kernel" in self.p:
            gate = self._map(f"{path}/gate", x).sigmoid()
            mixed = mixed * (gate if gate.ndim == 4 else gate[..., None])
        return self._map(f"{path}/output", mixed, axes=2)

    def _head_norm(self, path: str, x: torch.Tensor) -> torch.Tensor:
        """Return queries or keys [B T N H], normalised according to the config."""
        if f"{path}_norm/scale" not in self.p:
            return x
        scale = self.p[f"{path}_norm/scale"]
        scale = 1 + scale if self.config.norm == "zero_centered_rms_norm" else scale
        return F.rms_norm(x, scale.shape, scale, self.config.norm_epsilon)

    def _of_distances(self, path: str) -> dict[str, torch.Tensor]:
        """Return the parameters of a layer, or those its stack shares, by name."""
        own, shared = f"{path}/relative_positions/", f"{path.split('/')[0]}/relative_positions/"
        return {
            name.removeprefix(prefix): tensor
            for prefix in (own, shared)
            for name, tensor in self.p.items()
            if name.startswith(prefix)
        }

    def _turned(self, q, k, pos) -> tuple[torch.Tensor, torch.Tensor]:
        c = self.config
        channels = int(q.shape[-1] * c.rope_fraction)
        exponents = torch.arange(0, channels, 2, dtype=q.dtype) / channels
        angles = pos[:, :, None] / (self.theta or c.rope_theta) ** exponents
        (q, q_rest), (k, k_rest) = ((x[..., :channels], x[..., channels:]) for x in (q, k))
        if c.relative_positions == "rope":
            angles = torch.cat([angles, angles], -1)
            q, k = rotate_halves(q, k, angles.cos(), angles.sin())
        else:
            q, k = (
                rotate_pairs(x.transpose(1, 2), angles.sin(), angles.cos()).transpose(1, 2)
                for x in (q, k)
            )
        return torch.cat([q, q_rest], -1), torch.cat([k, k_rest], -1)


def _capped(x: torch.Tensor, cap: float | None) -> torch.Tensor:
    return x if cap is None else cap * torch.tanh(x / cap)


def alike(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Return [B T S], True where query and key belong to the same sentence."""
    return (queries[:, :, None] == keys[:, None, :]) & (keys > 0)[:, None, :]

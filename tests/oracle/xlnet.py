"""XLNet of `transformers`, in float64, without relative positions. It calls none of our code."""

import math

import numpy as np
import torch
import transformers
from oracle.weights import XLNET

from transformer_jax.config import ModelConfig

UNUSED = ("rel_attn.r", "r_r_bias", "r_s_bias", "seg_embed", "lm_loss.bias")


class XLNet(torch.nn.Module):
    """XLNet whose streams both read a table of positions, as ours do; relative terms are zero.

    In the score (q + u) k, the vector u, `r_w_bias`, is the bias of our queries.
    """

    words = XLNET

    def __init__(self, c: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.scale = math.sqrt(c.d_model)
        self.model = transformers.XLNetLMHeadModel(transformers.XLNetConfig(
            vocab_size=vocab_size, d_model=c.d_model, n_layer=c.num_decoder_layers,
            n_head=c.num_heads, d_inner=c.d_ff, ff_activation=c.activation, dropout=0.0,
            layer_norm_eps=c.norm_epsilon, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        )).eval()  # fmt: skip
        self.positions = torch.nn.Embedding(c.max_positions, c.d_model)
        parts = self.model.transformer
        self.mask_emb = parts._parameters.pop("mask_emb")
        parts.relative_positional_encoding = lambda qlen, klen, bsz, device: torch.zeros(
            qlen + klen, bsz, c.d_model, dtype=torch.float64
        )
        for name, tensor in self.model.named_parameters():
            if name.endswith(UNUSED):
                torch.nn.init.zeros_(tensor)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the query stream's logits at every position."""
        places = self.positions(batch["tgt_pos"])
        self.model.transformer.mask_emb = self.mask_emb + places.transpose(0, 1)
        words = self.model.transformer.word_embedding(batch["tgt_in"]) * self.scale
        seg, rank = batch["tgt_seg"], batch["tgt_rank"]
        apart = seg[:, :, None] != seg[:, None, :]
        later = rank[:, None, :] >= rank[:, :, None]
        hidden = apart | (later & (rank > 0)[:, None, :])
        everywhere = torch.eye(seg.shape[1], dtype=words.dtype).expand(len(seg), -1, -1)
        return self.model(
            inputs_embeds=words + places, perm_mask=hidden.to(words.dtype),
            target_mapping=everywhere, use_mems=False,
        ).logits  # fmt: skip

    def tensors(self) -> dict[str, torch.nn.Parameter]:
        """Return the trainable parameters by name."""
        return {n: p for n, p in self.named_parameters() if not n.endswith(UNUSED)}

    def apart(self, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return matrices as [out in]; all four of attention are [d_model heads head_dim] there."""
        found = {}
        for name, tensor in tensors.items():
            stem, _, last = name.rpartition(".")
            if last in ("q", "k", "v"):
                found[f"{stem}.{last}_proj.weight"] = tensor.reshape(len(tensor), -1).T
            elif last == "o":
                found[f"{stem}.o_proj.weight"] = tensor.reshape(len(tensor), -1)
            elif last == "r_w_bias":
                found[f"{stem}.q_proj.bias"] = tensor
            else:
                found[name] = tensor
        return found

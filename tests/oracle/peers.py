"""The same model in `transformers` and in torch.nn's own layers. They call none of our code."""

import math

import numpy as np
import torch
import transformers
from oracle.batches import flat
from torch.nn import functional as F
from transformers.models.fsmt import modeling_fsmt as fsmt
from transformers.models.marian import modeling_marian as marian

from transformer_jax.config import ModelConfig
from transformer_jax.data.batches.batch import Batch


def paper_positions(count: int, d_model: int) -> torch.Tensor:
    """Return the table of the paper's section 3.5, interleaved, in float64."""
    table = torch.empty(count, d_model, dtype=torch.float64)
    for position in range(count):
        for i in range(0, d_model, 2):
            angle = position / 10000 ** (i / d_model)
            table[position, i], table[position, i + 1] = math.sin(angle), math.cos(angle)
    return table


class Transformers(torch.nn.Module):
    """Marian (post-norm) or Pegasus (pre-norm), with every difference from ours removed."""

    def __init__(self, c: ModelConfig, vocab_size: int, positions: int = 32) -> None:
        super().__init__()
        kind, settings = {
            "post_norm": (transformers.MarianMTModel, transformers.MarianConfig),
            "pre_norm": (transformers.PegasusForConditionalGeneration, transformers.PegasusConfig),
        }[c.residual]
        sides = {}
        for side, layers in (("encoder", c.num_encoder_layers), ("decoder", c.num_decoder_layers)):
            sides[f"{side}_layers"] = layers
            sides[f"{side}_ffn_dim"] = c.d_ff
            sides[f"{side}_attention_heads"] = c.num_heads
        self.model = kind(settings(
            vocab_size=vocab_size, d_model=c.d_model, max_position_embeddings=positions, **sides,
            activation_function=c.activation, scale_embedding=True, dropout=0.0,
            pad_token_id=0, decoder_start_token_id=1, eos_token_id=2, forced_eos_token_id=None,
            attn_implementation="eager",
        ))  # fmt: skip
        for module in self.model.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.eps = c.norm_epsilon
        for stack in (self.model.model.encoder, self.model.model.decoder):
            stack.embed_positions.weight.data = paper_positions(positions, c.d_model)
        assert not self.model.final_logits_bias.any()  # the paper has none

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.model(
            input_ids=batch["src_ids"],
            attention_mask=batch["src_seg"] > 0,
            decoder_input_ids=batch["tgt_in"],
            use_cache=False,
        ).logits

    def tensors(self) -> dict[str, torch.nn.Parameter]:
        """Return the trainable parameters by name: tied tables once, positions not at all."""
        return {n: p for n, p in self.model.named_parameters() if p.requires_grad}


class TorchLayers(torch.nn.Module):
    """Stacks of torch.nn layers; torch.nn.Transformer would add a final norm to post-norm ones."""

    def __init__(self, c: ModelConfig, src_vocab: int, tgt_vocab: int, positions: int = 32) -> None:
        super().__init__()
        pre = c.residual == "pre_norm"
        layer = {
            "d_model": c.d_model, "nhead": c.num_heads, "dim_feedforward": c.d_ff, "dropout": 0.0,
            "layer_norm_eps": c.norm_epsilon, "batch_first": True, "norm_first": pre,
        }  # fmt: skip

        def final_norm():
            return torch.nn.LayerNorm(c.d_model, c.norm_epsilon) if pre else None

        self.encoder = torch.nn.TransformerEncoder(
            torch.nn.TransformerEncoderLayer(**layer), c.num_encoder_layers, final_norm(),
            enable_nested_tensor=False,
        )  # fmt: skip
        self.decoder = torch.nn.TransformerDecoder(
            torch.nn.TransformerDecoderLayer(**layer), c.num_decoder_layers, final_norm()
        )
        self.heads, self.tied = c.num_heads, c.tied_embeddings
        self.learned = c.positions == "learned"
        if self.tied == "all":
            self.embedding = torch.nn.Embedding(tgt_vocab, c.d_model)
        else:
            self.src_embedding = torch.nn.Embedding(src_vocab, c.d_model)
            self.tgt_embedding = torch.nn.Embedding(tgt_vocab, c.d_model)
        if self.tied == "none":  # the name to which weights.py translates "output"
            self.out_proj = torch.nn.Linear(c.d_model, tgt_vocab, bias=False)
        if self.learned:
            self.src_positions = torch.nn.Embedding(c.max_positions, c.d_model)
            self.tgt_positions = torch.nn.Embedding(c.max_positions, c.d_model)
        else:
            self.register_buffer("sinusoids", paper_positions(positions, c.d_model))

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        src_seg, tgt_seg = batch["src_seg"], batch["tgt_seg"]
        src = self.embedding if self.tied == "all" else self.src_embedding
        tgt = self.embedding if self.tied == "all" else self.tgt_embedding
        src_pos = self.src_positions.weight if self.learned else self.sinusoids
        tgt_pos = self.tgt_positions.weight if self.learned else self.sinusoids
        scale = math.sqrt(src.embedding_dim)
        memory = self.encoder(
            src(batch["src_ids"]) * scale + src_pos[batch["src_pos"]],
            mask=self._blocked(src_seg, src_seg),
        )
        x = self.decoder(
            tgt(batch["tgt_in"]) * scale + tgt_pos[batch["tgt_pos"]],
            memory,
            tgt_mask=self._blocked(tgt_seg, tgt_seg, causal=True),
            memory_mask=self._blocked(tgt_seg, src_seg),
        )
        return x @ (self.out_proj if self.tied == "none" else tgt).weight.T

    def _blocked(self, queries, keys, causal: bool = False) -> torch.Tensor:
        """Return [B*N T S], True where a query may not attend.

        Padding attends everywhere, since a softmax over nothing is NaN, in every gradient too.
        """
        blocked = (queries[:, :, None] != keys[:, None, :]) & (queries > 0)[:, :, None]
        if causal:
            blocked |= torch.ones(blocked.shape[1:], dtype=torch.bool).triu(1)
        return blocked.repeat_interleave(self.heads, dim=0)

    def tensors(self) -> dict[str, torch.nn.Parameter]:
        """Return the trainable parameters by name."""
        return dict(self.named_parameters())


def randomise(model: torch.nn.Module, seed: int = 0) -> None:
    """Randomise every weight so that it matters: no bias stays 0, no norm's scale stays 1."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in model.tensors().values():
        noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float32)
        with torch.no_grad():
            if tensor.ndim <= 1:
                tensor += 0.1 * noise
            else:
                tensor.copy_(noise * tensor.shape[-1] ** -0.5)


def to_numpy(tensors: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Copy tensors to NumPy, by name."""
    return {name: tensor.detach().numpy().copy() for name, tensor in tensors.items()}


def run(model: torch.nn.Module, batch: Batch, epsilon: float):
    """Return logits [tokens V], {smoothing: loss}, {smoothing: {torch name: gradient}}."""
    logits, targets = _real(model, batch)
    losses, gradients = {}, {}
    for smoothing, loss in smoothed_losses(logits, targets, epsilon).items():
        model.zero_grad()
        loss.backward(retain_graph=True)
        losses[smoothing] = loss.item()
        gradients[smoothing] = to_numpy(
            {
                name: torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
                for name, tensor in model.tensors().items()
            }
        )
    return logits.detach().numpy(), losses, gradients


def logits(model: torch.nn.Module, batch: Batch) -> np.ndarray:
    """Return logits [tokens V]."""
    with torch.no_grad():
        return _real(model, batch)[0].numpy()


def _real(model, batch):
    """Return the logits and targets of predicted tokens."""
    fields = {name: torch.from_numpy(array).long() for name, array in flat(batch).items()}
    ((_, weight),) = batch.targets.values()
    real = torch.from_numpy(weight > 0)
    return model(fields)[real], fields["tgt_out"][real]


def smoothed_losses(logits, targets, epsilon: float) -> dict[str, torch.Tensor]:
    """Return the mean loss by convention, from torch's own cross-entropy."""
    others = torch.full_like(logits, epsilon / (logits.shape[1] - 1))
    return {
        "tensor2tensor": F.cross_entropy(logits, others.scatter(1, targets[:, None], 1 - epsilon)),
        "uniform": F.cross_entropy(logits, targets, label_smoothing=epsilon),
    }


def position_tables(count: int, d_model: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Marian's table (sines first, the paper's exponents) and FSMT's (tensor2tensor's)."""
    kind = marian.MarianSinusoidalPositionalEmbedding
    table = fsmt.SinusoidalPositionalEmbedding.get_embedding(count, d_model, None)
    return kind(count, d_model).create_weight().numpy(), table.numpy()

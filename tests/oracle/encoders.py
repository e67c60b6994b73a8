"""Encoder-only models: BERT of `transformers`, and plain torch. They call none of our code."""

import math

import numpy as np
import torch
import transformers
from oracle.plain import ACTIVATIONS, Plain, alike
from oracle.weights import BERT, LONGFORMER

from transformer_jax.config import ModelConfig


class Bert(torch.nn.Module):
    """BERT with its masked-LM head, unmodified."""

    words = BERT
    kind: type = transformers.BertForMaskedLM
    labels: int | None = None  # None: the vocabulary size

    def __init__(self, c: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.model = self.kind(transformers.BertConfig(
            vocab_size=vocab_size, hidden_size=c.d_model, num_hidden_layers=c.num_encoder_layers,
            num_attention_heads=c.num_heads, intermediate_size=c.d_ff, hidden_act=c.activation,
            max_position_embeddings=c.max_positions, type_vocab_size=c.token_types,
            layer_norm_eps=c.norm_epsilon, num_labels=self.labels or vocab_size,
            attn_implementation="sdpa",
        )).eval()  # fmt: skip

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.model(**self.read(batch)).logits

    def read(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the model's inputs; padding attends everywhere."""
        seg = batch["src_seg"]
        seen = (seg[:, :, None] == seg[:, None, :]) | (seg == 0)[:, :, None]
        return {
            "input_ids": batch["src_ids"], "position_ids": batch["src_pos"],
            "token_type_ids": batch["src_kind"], "attention_mask": seen[:, None],
        }  # fmt: skip

    def tensors(self) -> dict[str, torch.nn.Parameter]:
        """Return the trainable parameters by name; tied tables once."""
        return dict(self.model.named_parameters())

    def apart(self, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the tensors unchanged; matrices are [out in]."""
        return tensors


class BertOfClasses(Bert):
    """BERT with a pooler and a classification head, one text per row."""

    kind = transformers.BertForSequenceClassification

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return super().forward(batch)[:, None]


class Longformer(Bert):
    """Longformer with its masked-LM head, one text per row."""

    words = LONGFORMER

    def __init__(self, c: ModelConfig, vocab_size: int) -> None:
        torch.nn.Module.__init__(self)
        assert c.window is not None
        self.first = c.global_tokens
        self.model = transformers.LongformerForMaskedLM(transformers.LongformerConfig(
            vocab_size=vocab_size, hidden_size=c.d_model, num_hidden_layers=c.num_encoder_layers,
            num_attention_heads=c.num_heads, intermediate_size=c.d_ff, hidden_act=c.activation,
            max_position_embeddings=c.max_positions, type_vocab_size=c.token_types,
            layer_norm_eps=c.norm_epsilon, attention_window=2 * (c.window - 1), pad_token_id=0,
        )).eval()  # fmt: skip
        for module in self.model.modules():
            if isinstance(module, torch.nn.Embedding):
                module.padding_idx = None  # or its row would have no gradient

    def read(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """See Bert."""
        everywhere = (batch["src_pos"] < self.first) & (batch["src_seg"] > 0)
        return super().read(batch) | {
            "attention_mask": (batch["src_seg"] > 0).long(),
            "global_attention_mask": everywhere.long(),
        }


class BertOfPairs(Bert):
    """BERT with its pre-training heads."""

    kind = transformers.BertForPreTraining


class BertOfTags(Bert):
    """BERT with a label at each position."""

    kind = transformers.BertForTokenClassification
    labels = 5


class BertOfValues(Bert):
    """BERT with a number for each text."""

    kind = transformers.BertForSequenceClassification
    labels = 1


class BertOfSpans(Bert):
    """BERT with the two ends of an answer."""

    kind = transformers.BertForQuestionAnswering
    labels = 2


POOLED = {"first": lambda x: x[0], "last": lambda x: x[-1], "mean": lambda x: x.mean(0)}


class PlainEncoder(Plain):
    """Any of our encoders."""

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        self.ranked = False
        c, seg, pos = self.config, batch["src_seg"], batch["src_pos"]
        x = self._embedded("src", batch["src_ids"], pos)
        if c.token_dropout is not None:
            assert c.positions == "none"
            x = x * self._kept(batch["src_ids"] == c.token_dropout, seg)
        if c.token_types:
            scale = math.sqrt(c.d_model) if c.embedding_scale else 1
            x = x + self._table("kinds/table")[batch["src_kind"]] * scale
        if c.input_norm:
            x = self._norm("input_norm", x)
        x = self._stack("encoder", x, pos, alike(seg, seg))
        if "class_head/table" in self.p:
            return self.of_classes(x, batch)
        x = self._norm(
            "piece_head/norm", ACTIVATIONS[c.activation](self._map("piece_head/dense", x))
        )
        x = x / math.sqrt(c.d_model) if c.logits_scale else x
        name = "output" if "output/table" in self.p else "embedding"
        return x @ self._table(f"{name}/table").T + self.p["piece_head/bias"]

    def _kept(self, hidden: torch.Tensor, seg: torch.Tensor) -> torch.Tensor:
        """Return what the vector of each piece is multiplied by; zeros for a text of masks only."""
        found = torch.zeros(*seg.shape, 1, dtype=torch.float64)
        for row, column in np.argwhere(~hidden.numpy()):
            share = hidden[row][seg[row] == seg[row, column]].double().mean()
            found[row, column] = (1 - 0.12) / (1 - share)
        return found

    def of_classes(self, x: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        asked = batch["tgt_seg"]
        found = torch.zeros(*asked.shape, x.shape[-1], dtype=x.dtype)
        for row, column in np.argwhere(asked.numpy() > 0):
            places = x[row][batch["src_seg"][row] == asked[row, column]]
            pooled = POOLED[self.config.pooling](places)
            whole = self.config.architecture == "decoder"  # GPT has no pooler
            found[row, column] = pooled if whole else torch.tanh(self._map("pooler", pooled))
        return found @ self.p["class_head/table"].T + self.p["class_head/bias"]


class PlainDecoderOfClasses(PlainEncoder):
    """A decoder that predicts the class of each text."""

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        self.ranked = False
        seg, pos = batch["src_seg"], batch["src_pos"]
        earlier = torch.ones(seg.shape[1], seg.shape[1], dtype=torch.bool).tril()
        x = self._embedded("src", batch["src_ids"], pos)
        return self.of_classes(self._stack("decoder", x, pos, alike(seg, seg) & earlier), batch)


PEERS = {"bert": Bert, "bert, classes": BertOfClasses, "longformer": Longformer}

"""ELMo with torch's LSTMs, sentence by sentence, in each direction. It calls none of our code."""

import numpy as np
import torch
from oracle.mixers import segments
from oracle.plain import Plain, alike
from torch.func import functional_call


class PlainElmo(Plain):
    """A model whose parameters have our names and shapes."""

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        layers = self.layers(batch)
        share = torch.softmax(self.p["mixture/weights"], 0)
        mixed = sum(one * torch.cat(pair, -1) for one, pair in zip(share, layers, strict=True))
        mixed = self.p["mixture/gamma"] * mixed
        asked = batch["tgt_seg"]
        found = torch.zeros(*asked.shape, self.config.d_model, dtype=mixed.dtype)
        kernel, bias = (self.p[f"pooler/{leaf}"] for leaf in ("kernel", "bias"))
        for row, column in np.argwhere(asked.numpy() > 0):
            places = mixed[row][batch["src_seg"][row] == asked[row, column]]
            pooled = places[0] if self.config.pooling == "first" else places.mean(0)
            found[row, column] = torch.tanh(pooled @ kernel.flatten(0, 1) + bias)
        return found @ self.p["class_head/table"].T + self.p["class_head/bias"]

    def predictions(self, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        """Return the logits of the next and of the previous pieces."""
        table = "output/table" if "output/table" in self.p else "embedding/table"
        return [x @ self._table(table).T for x in self.layers(batch)[-1]]

    def layers(self, batch: dict[str, torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the first layer's input, twice, and the outputs of each layer in both stacks."""
        x = self._table("embedding/table")[batch["src_ids"]]
        x = x * (self.config.d_model**0.5 if self.config.embedding_scale else 1)
        texts = segments(alike(batch["src_seg"], batch["src_seg"]))
        found = [(x, x)]
        for number in range(self.config.num_encoder_layers):
            both = []
            for way, before in zip(("forward", "backward"), found[-1], strict=True):
                y = self._through(f"{way}/layer_{number}/cell", before, texts, way == "backward")
                both.append(y + before if number else y)
            found.append((both[0], both[1]))
        return found

    def _through(self, cell: str, x: torch.Tensor, texts: list, turned: bool) -> torch.Tensor:
        layer = torch.nn.LSTM(x.shape[-1], x.shape[-1], batch_first=True).double()
        given = {}
        for theirs, name in (("weight_ih", "kernel"), ("weight_hh", "recurrent_kernel"),
                             ("bias_ih", "bias"), ("bias_hh", "recurrent_bias")):  # fmt: skip
            value = self.p[f"{cell}/{name}"]
            given[f"{theirs}_l0"] = value.flatten() if value.ndim == 2 else value.flatten(1).T
        out = torch.zeros_like(x)
        for row, begin, end in texts:
            text = x[row : row + 1, begin:end]
            found, _ = functional_call(layer, given, (text.flip(1) if turned else text,))
            out = out.clone()
            out[row, begin:end] = (found.flip(1) if turned else found)[0]
        return out

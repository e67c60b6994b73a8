"""Decomposable attention in torch, pair by pair as in the paper. It calls none of our code."""

import math

import numpy as np
import torch
from oracle.plain import Plain
from torch.nn import functional as F


class PlainDecomposable(Plain):
    """A model whose parameters have our names and shapes."""

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        asked, rows = batch["tgt_seg"], []
        for row in range(len(asked)):
            x = self._table("embedding/table")[batch["src_ids"][row]]
            x = x * (math.sqrt(self.config.d_model) if self.config.embedding_scale else 1)
            hidden = [torch.zeros(self.config.d_ff, dtype=x.dtype)] * asked.shape[1]
            for column in np.flatnonzero(asked[row].numpy()):
                here = batch["src_seg"][row] == asked[row, column]
                kind = batch["src_kind"][row]
                hidden[column] = self._compared(x[here & (kind == 0)], x[here & (kind == 1)])
            rows.append(torch.stack(hidden))
        return torch.stack(rows) @ self.p["class_head/table"].T + self.p["class_head/bias"]

    def _compared(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        scores = self._two_layers("attend", a) @ self._two_layers("attend", b).T
        beta, alpha = torch.softmax(scores, 1) @ b, torch.softmax(scores, 0).T @ a
        one = self._two_layers("compare", torch.cat([a, beta], -1)).sum(0)
        two = self._two_layers("compare", torch.cat([b, alpha], -1)).sum(0)
        return self._two_layers("aggregate", torch.cat([one, two], -1))

    def _two_layers(self, name: str, x: torch.Tensor) -> torch.Tensor:
        for part in ("up", "down"):
            kernel, bias = (self.p[f"{name}/{part}/{leaf}"] for leaf in ("kernel", "bias"))
            x = F.relu(x @ kernel.reshape(-1, kernel.shape[-1]) + bias)
        return x

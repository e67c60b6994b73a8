"""Recurrent translation models in torch, sentence by sentence and step by step.

Cells are torch's own functions; attention and predictions follow the formulas of the papers.
"""

import math

import torch
from oracle.plain import Plain
from torch.nn import functional as F

# Cells by torch's names.
CELLS = {"elman": "rnn_tanh_cell", "gru": "gru_cell", "lstm": "lstm_cell"}


class PlainRecurrent(Plain):
    """A recurrent model whose parameters have our names and shapes; one text per row."""

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        rows = []
        for row in range(len(batch["src_ids"])):
            source = batch["src_ids"][row][batch["src_seg"][row] > 0]
            target = batch["tgt_in"][row][batch["tgt_seg"][row] > 0]
            hidden = self._translated(source, target)
            rest = batch["tgt_in"].shape[1] - len(target)
            rows.append(F.pad(hidden, (0, 0, 0, rest)))
        tables = ("output/table", "tgt_embedding/table", "embedding/table")
        return torch.stack(rows) @ self._table(next(t for t in tables if t in self.p)).T

    def _translated(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        c = self.config
        if c.reverse_source:
            source = source.flip(0)
        if "encoder/layer_0/self_attention/query/kernel" in self.p:
            x, kind = self._by_layers(source), ""
        else:
            x, kind = self._by_cells(source)
        half = c.d_model // 2
        summary = torch.cat([x[-1, :half], x[0, half:]]) if kind.startswith("bi") else x[-1]
        if c.reverse_source:
            x = x.flip(0)
        kinds = [
            c.decoder_pattern[number % len(c.decoder_pattern)]
            for number in range(c.num_decoder_layers)
        ]
        states = []
        for number, kind in enumerate(kinds):
            first = torch.tanh(self._map(f"decoder/start_{number}", summary))
            states.append((first[0], first[1]) if kind == "lstm" else first[0])
        carried = torch.zeros(c.d_model, dtype=x.dtype)
        if c.recurrence == "bahdanau" and c.source_attention == "none":
            carried = summary
        out = []
        for position, y in enumerate(self._looked_up("tgt", target)):
            turn = getattr(self, f"_{c.recurrence}")
            hidden, carried = turn(states, kinds, carried, y, x, position)
            out.append(hidden)
        return torch.stack(out)

    def _by_layers(self, source: torch.Tensor) -> torch.Tensor:
        """Return the output of the Transformer's encoder for a source."""
        self.ranked, length = False, len(source)
        pos, seen = torch.arange(length)[None], torch.ones(1, length, length, dtype=torch.bool)
        x = self._embedded("src", source[None], pos)
        return self._stack("encoder", x, pos, seen)[0]

    def _by_cells(self, source: torch.Tensor) -> tuple[torch.Tensor, str]:
        c, x = self.config, self._looked_up("src", source)
        for number in range(c.num_encoder_layers):
            kind = c.encoder_pattern[number % len(c.encoder_pattern)]
            y = self._read(f"encoder/layer_{number}", kind, x)
            x = x + y if c.recurrence in ("gnmt", "rnmt_plus") and number > 1 else y
        return x, kind

    def _looked_up(self, side: str, ids: torch.Tensor) -> torch.Tensor:
        own, shared = f"{side}_embedding/table", "embedding/table"
        scale = math.sqrt(self.config.d_model) if self.config.embedding_scale else 1
        return self._table(own if own in self.p else shared)[ids] * scale

    def _read(self, path: str, kind: str, x: torch.Tensor) -> torch.Tensor:
        if not kind.startswith("bi"):
            return self._one_way(f"{path}/cell", kind, x)
        kind = kind.removeprefix("bi")
        back = self._one_way(f"{path}/backward", kind, x.flip(0)).flip(0)
        return torch.cat([self._one_way(f"{path}/forward", kind, x), back], -1)

    def _one_way(self, path: str, kind: str, x: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros(self.p[f"{path}/kernel"].shape[-1], dtype=x.dtype)
        state, out = (zeros, zeros) if kind == "lstm" else zeros, []
        for y in x:
            state = self._step(path, kind, y, state)
            out.append(state[0] if kind == "lstm" else state)
        return torch.stack(out)

    def _step(self, path: str, kind: str, x: torch.Tensor, state):
        inward, around = (
            self.p[f"{path}/{name}"].flatten(1).T for name in ("kernel", "recurrent_kernel")
        )
        biases = (self.p[f"{path}/{name}"].flatten() for name in ("bias", "recurrent_bias"))
        function, pair = getattr(torch, CELLS[kind]), kind == "lstm"
        before = [s[None] for s in state] if pair else state[None]
        new = function(x[None], before, inward, around, *biases)
        return (new[0][0], new[1][0]) if pair else new[0]

    def _layers(self, states: list, kinds: list[str], x: torch.Tensor) -> torch.Tensor:
        for number, kind in enumerate(kinds):
            states[number] = self._step(f"decoder/cells_{number}", kind, x, states[number])
            x = states[number][0] if kind == "lstm" else states[number]
        return x

    def _look(self, query: torch.Tensor, memory: torch.Tensor, position: int) -> torch.Tensor:
        c, p = self.config, self.p
        kind, path = c.source_attention, "decoder/attention"
        places = torch.arange(len(memory), dtype=memory.dtype)
        keys = memory if kind == "dot" else self._map(f"{path}/key", memory)
        scores = keys @ query
        seen, factor = torch.ones(len(memory), dtype=torch.bool), 1
        if kind == "additive":
            scores = torch.tanh(query @ p[f"{path}/query"] + keys) @ p[f"{path}/score"]
        if kind == "local_monotonic":
            seen = (places - position).abs() <= c.window
        if kind == "local_predictive":
            hidden = torch.tanh(query @ p[f"{path}/place_map"]) @ p[f"{path}/place"]
            middle = len(memory) * torch.sigmoid(hidden)
            seen = (places - middle).abs() <= c.window
            factor = torch.exp(-((places - middle) ** 2) / (2 * (c.window / 2) ** 2))
        if not seen.any():
            return 0 * query
        weights = torch.softmax(scores.masked_fill(~seen, -torch.inf), -1) * factor
        return weights @ memory

    def _luong(self, states, kinds, fed, y, memory, position):
        h = self._layers(states, kinds, torch.cat([y, fed]) if self.config.input_feeding else y)
        if self.config.source_attention == "none":
            return h, fed
        joined = torch.cat([self._look(h, memory, position), h])
        out = torch.tanh(joined @ self.p["decoder/join/kernel"].flatten(0, 1))
        return out, out

    def _bahdanau(self, states, kinds, summary, y, memory, position):
        context = summary
        if self.config.source_attention != "none":
            top = states[-1][0] if kinds[-1] == "lstm" else states[-1]
            context = self._look(top, memory, position)
        h = self._layers(states, kinds, torch.cat([y, context]))
        kernel, bias = (self.p[f"decoder/readout/{name}"] for name in ("kernel", "bias"))
        units = torch.tensordot(torch.stack([h, y, context]), kernel, dims=2) + bias
        return units.max(-1).values, summary

    def _heads(self, query: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        """Return multi-head attention by scores v tanh(W q + U h), each head on its own part."""
        p, path, found = self.p, "decoder/attention", []
        count = self.config.num_heads
        keys, values = (self._map(f"{path}/{name}", memory) for name in ("key", "value"))
        asked = query @ p[f"{path}/query"]
        parts = (y.chunk(count, -1) for y in (asked, p[f"{path}/score"], keys, values))
        for one, score, key, value in zip(*parts, strict=True):
            found.append(torch.softmax(torch.tanh(one + key) @ score, -1) @ value)
        return torch.cat(found) @ p[f"{path}/outward"]

    def _rnmt_plus(self, states, kinds, context, y, memory, position):
        x = y
        for number, (h, c) in enumerate(states):
            cell, norm = f"decoder/cells_{number}", f"decoder/norms_{number}"
            gates = self._map(cell, torch.cat([x, context]))
            kernel, bias = (self.p[f"{cell}/recurrent_{leaf}"] for leaf in ("kernel", "bias"))
            gates = gates + torch.tensordot(h, kernel, dims=1) + bias
            gates = F.layer_norm(gates, gates.shape[-1:], eps=self.config.norm_epsilon)
            gates = gates * self.p[f"{norm}/scale"] + self.p[f"{norm}/bias"]
            i, f, g, o = gates
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            states[number] = h, c
            if number == 0:
                context = self._heads(h, memory)
            x = h + x if number > 1 else h
        joined = torch.cat([x, context]) @ self.p["decoder/join/kernel"].flatten(0, 1)
        return joined + self.p["decoder/join/bias"], context

    def _gnmt(self, states, kinds, context, y, memory, position):
        x = y
        for number, kind in enumerate(kinds):
            given = torch.cat([x, context])
            states[number] = self._step(f"decoder/cells_{number}", kind, given, states[number])
            out = states[number][0] if kind == "lstm" else states[number]
            if number == 0:
                context = self._look(out, memory, position)
            x = out + x if number > 1 else out
        return x, context

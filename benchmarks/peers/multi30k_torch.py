"""Multi30k lc-tok by the published recipe in plain PyTorch: the peer of configs/multi30k.py:lc.

    python benchmarks/peers/multi30k_torch.py --data=DIR --state=FILE.pt [--core_minutes=120]

Transformer-Tiny of Wu et al. 2021 (arXiv:2105.14462): post-norm, 4 + 4 layers, d_model 128, d_ff
256, 4 heads, one table for all embeddings, joint BPE of 10,000, dropout 0.3 on embeddings and
sublayers, label smoothing 0.1, Adam 0.9/0.98, inverse-square-root schedule with peak 5e-3 after
2,000 steps, float32. Batches have 4,096 positions per side instead of the published 8,192, which
gets further in the same time. Trains `torch.nn.Transformer` unchanged, on batches of similar
lengths padded to the longest, using nothing of our program but its tokenizer and its batch order.

After every fourth epoch it prints one JSON line: minutes of training (without validation) in
wall-clock time and in processor time over all threads, which other work on the machine does not
lengthen; real target tokens, loss, and BLEU of greedy translations of the validation split
(tokenize=none). It then saves --state, from which the same command resumes. DIR holds
train.lc.norm.tok.en and so on. Needs the extra `bench`.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import sacrebleu
import torch
from torch import nn
from torch.nn import functional as F

from transformer_jax.base.disk import cache_dir
from transformer_jax.base.vocabulary import BOS, EOS, PAD
from transformer_jax.config import DataConfig, TokenizerConfig
from transformer_jax.data import sources
from transformer_jax.data.batches.batching import BucketPlan
from transformer_jax.data.codecs.pair import train_pair
from transformer_jax.data.store.token_store import open_store, select

EPOCHS = 4  # between validations


class Transformer(nn.Module):
    """`torch.nn.Transformer` with embeddings."""

    def __init__(self, vocab_size: int, d_model: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        rates = 10_000 ** (-torch.arange(0, d_model, 2) / d_model)
        angles = torch.arange(512)[:, None] * rates
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], 1))
        self.dropout = nn.Dropout(0.3)
        self.body = nn.Transformer(d_model, 4, 4, 4, 256, 0.3, batch_first=True)
        for module in self.body.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0  # the recipe has no attention dropout
            if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = 0.0  # nor after the ReLU

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the input of the first layer."""
        x = self.embedding(ids) * self.embedding.embedding_dim**0.5
        return self.dropout(x + self.positions[: ids.shape[1]])

    def decode(self, memory: torch.Tensor, padding: Any, tgt: torch.Tensor) -> torch.Tensor:
        """Return the decoder's output [B T D]."""
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
        return self.body.decoder(
            self.embed(tgt), memory, tgt_mask=mask, memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )  # fmt: skip

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        """Return the logits [B T V]."""
        padding = torch.zeros(src.shape).masked_fill(src == PAD, -torch.inf)
        memory = self.body.encoder(self.embed(src), src_key_padding_mask=padding)
        return self.decode(memory, padding, tgt) @ self.embedding.weight.T

    @torch.no_grad()
    def greedy(self, src: torch.Tensor, limit: int) -> list[list[int]]:
        """Return greedy translations, decoded until every row has ended."""
        padding = torch.zeros(src.shape).masked_fill(src == PAD, -torch.inf)
        memory = self.body.encoder(self.embed(src), src_key_padding_mask=padding)
        ids = torch.full((len(src), 1), BOS)
        while ids.shape[1] < limit and not (ids == EOS).any(1).all():
            x = self.decode(memory, padding, ids)[:, -1]
            ids = torch.cat([ids, (x @ self.embedding.weight.T).argmax(-1, keepdim=True)], 1)
        return ids[:, 1:].tolist()


def padded(rows: list[np.ndarray]) -> torch.Tensor:
    """Return rows of ids as one array, padded to the longest."""
    return nn.utils.rnn.pad_sequence([torch.tensor(row).long() for row in rows], True, PAD)


def side(ragged: Any, pairs: np.ndarray) -> list[np.ndarray]:
    """Return the sequences of these pairs."""
    return [ragged.sequence(i) for i in pairs]


def validate(network: Transformer, tokenizer: Any, corpus: Any) -> float:
    """Return BLEU of greedy translations."""
    network.eval()
    sources = tokenizer.encode(corpus.src)
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    texts: dict[int, str] = {}
    for start in range(0, len(order), 64):
        part = order[start : start + 64]
        src = padded([np.array(sources[i]) for i in part])
        for i, ids in zip(part, network.greedy(src, src.shape[1] + 20), strict=True):
            texts[i] = tokenizer.decode(ids)
    network.train()
    hypotheses = [texts[i] for i in range(len(order))]
    return sacrebleu.corpus_bleu(hypotheses, [list(corpus.tgt)], tokenize="none", force=True).score


def main() -> None:
    """Train until the time is up."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--state", required=True, type=Path)
    parser.add_argument("--core_minutes", type=float, default=120)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(arguments.threads)

    data = DataConfig(
        directory=arguments.data, train=("train.lc.norm.tok",), validation=("val.lc.norm.tok",),
        tokens_per_batch=4096, max_length=128, num_buckets=24, rows_divisible_by=1,
    )  # fmt: skip
    corpus, validation = sources.load(data, "train"), sources.load(data, "validation")
    tokenizers = train_pair(TokenizerConfig(vocab_size=10_000), corpus.src, corpus.tgt)
    store = open_store(corpus, tokenizers, cache_dir())
    plan = BucketPlan(store, select(store, data).pairs, data, arguments.seed)

    network = Transformer(tokenizers.src.size)
    optimizer = torch.optim.Adam(network.parameters(), 5e-3, (0.9, 0.98), foreach=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda count: min((count + 1) / 2000, (2000 / (count + 1)) ** 0.5)
    )
    parts = {"network": network, "optimizer": optimizer, "schedule": schedule}
    step, seconds, core_seconds, tokens = 0, 0.0, 0.0, 0
    if arguments.state.exists():
        saved = torch.load(arguments.state)
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        step, seconds, core_seconds, tokens = saved["counts"]

    losses = []
    while core_seconds < 60 * arguments.core_minutes:
        began, core_began = time.perf_counter(), time.process_time()
        pairs = plan.batch(step)[1].pairs
        targets = side(store.tgt, pairs)
        tgt_out = padded(targets)
        tgt_in = padded([np.concatenate([[BOS], row[:-1]]) for row in targets])
        logits = network(padded(side(store.src, pairs)), tgt_in)
        loss = F.cross_entropy(
            logits.flatten(0, 1), tgt_out.flatten(), ignore_index=PAD, label_smoothing=0.1
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 25.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        step, tokens = step + 1, tokens + sum(map(len, targets))
        seconds += time.perf_counter() - began
        core_seconds += time.process_time() - core_began
        if step % (EPOCHS * len(plan)) == 0:
            row = {
                "step": step,
                "minutes": round(seconds / 60, 2),
                "core_minutes": round(core_seconds / 60, 2),
                "target_tokens": tokens,
                "loss": round(float(np.mean(losses)), 4),
                "bleu": round(validate(network, tokenizers.tgt, validation), 2),
            }
            print(json.dumps(row), flush=True)
            losses.clear()
            states = {name: part.state_dict() for name, part in parts.items()}
            torch.save({**states, "counts": (step, seconds, core_seconds, tokens)}, arguments.state)


if __name__ == "__main__":
    main()

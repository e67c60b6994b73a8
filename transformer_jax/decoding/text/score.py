"""Log-probabilities of given translations, or of given texts."""

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float
from transformer_jax.base.errors import UserError
from transformer_jax.data.batches.batch import Batch, Ragged
from transformer_jax.data.codecs.codec import Codec, shortened
from transformer_jax.data.objectives.masked_lm import one_by_one
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.teacher_forced import each_item
from transformer_jax.models.model import Model


class PairScore(NamedTuple):
    """A model's score of one pair."""

    ids: list[int]  # the target's pieces, EOS included
    log_probs: list[float]  # of each piece, nats
    pieces: list[str]

    @property
    def total(self) -> float:
        """The log-probability of the whole target, nats."""
        return sum(self.log_probs)


class TextScore(NamedTuple):
    """A language model's score of one text."""

    # All that are predicted: EOS too if documents are lines, never what documents begin with, or
    # the first piece of the text if that is nothing.
    ids: list[int]
    log_probs: list[float]  # of each piece, nats
    pieces: list[str]
    # How many characters and bytes they represent, EOS as one; None if the codec does not
    # preserve the text.
    characters: int | None
    bytes: int | None

    @property
    def total(self) -> float:
        """The log-probability of the whole text, nats."""
        return sum(self.log_probs)

    @property
    def perplexity(self) -> float:
        """The inverse of the geometric mean of the pieces' probabilities."""
        return math.exp(min(-self.total / max(len(self.ids), 1), 700.0))

    @property
    def bits_per_character(self) -> float | None:
        """Bits needed to code the text, per character."""
        return -self.total / math.log(2) / self.characters if self.characters else None

    @property
    def bits_per_byte(self) -> float | None:
        """Bits needed to code the text, per byte of UTF-8."""
        return -self.total / math.log(2) / self.bytes if self.bytes else None


def score_pairs(
    loaded: Loaded, src: Sequence[str], tgt: Sequence[str], tokens_per_batch: int = 4096
) -> list[PairScore]:
    """Return the log-probabilities of each target's pieces, given its source, which is cut as in
    training.
    """
    if not src:
        return []
    reads, writes = loaded.codecs
    sources, targets, most = reads.encode(src), writes.encode(tgt), loaded.cut_at
    if most is not None:
        sources = [shortened(ids, most) for ids in sources]
    rows = log_probs_of(loaded, sources, targets, tokens_per_batch)
    return [
        PairScore(ids, log_probs.tolist(), writes.pieces(ids))
        for ids, log_probs in zip(targets, rows, strict=True)
    ]


def score_texts(
    loaded: Loaded, texts: Sequence[str], tokens_per_batch: int = 4096
) -> list[TextScore]:
    """Return the log-probability of each piece of each text, given those before it.

    Texts are framed and cut into windows as in training, so each piece counts once, but each text
    by itself, even if training joins them.

    Raises:
      UserError: if the objective does not predict every piece.
    """
    codec, objective = loaded.codecs.tgt, loaded.objective
    if not objective.record.likelihood:
        raise loaded.refusal(
            f"{objective.record.predicts}, and gives no probability of a text; see validation_loss"
        )
    if not texts:
        return []
    if "" in texts and objective.document == "file":  # not even EOS is predicted
        raise UserError(
            f"score: text {list(texts).index('') + 1} is empty, so the model predicts none of it; "
            "leave it out"
        )
    if objective.document == "joined":
        objective = replace(objective, document="line")
        loaded = replace(loaded, objective=objective)
    frame = loaded.task.frame(objective)
    encoded = codec.encode(texts, frame.bos, frame.eos)
    parts = log_probs_of(loaded, [], encoded, tokens_per_batch)
    joined = np.concatenate([*parts, np.zeros(0)])  # windows are in the order of the texts
    labels = [ids[1:] for ids in encoded]
    ends = np.cumsum([len(ids) for ids in labels])[:-1]
    scores = []
    each = zip(texts, encoded, labels, np.split(joined, ends), strict=True)
    for text, whole, ids, log_probs in each:
        units = _units(codec, text, whole, ids, frame.eos)
        scores.append(TextScore(ids, log_probs.tolist(), codec.pieces(ids), *units))
    return scores


def _units(
    codec: Codec, text: str, whole: list[int], ids: list[int], eos: bool
) -> tuple[int, int] | tuple[None, None]:
    """Return how many characters and bytes the predicted pieces of a text represent, if known."""
    if codec.decode(ids) != text:
        first = codec.decode(whole[:1])
        if codec.decode(whole) != text or not text.startswith(first):
            return None, None
        text = text.removeprefix(first)
    return len(text) + eos, len(text.encode()) + eos


def validation_log_probs(
    loaded: Loaded, texts: Sequence[str], tokens_per_batch: int = 4096
) -> list[np.ndarray]:
    """Return the log-probability of each piece predicted in validation, where texts may be joined,
    masked, noised or missing spans; by window.
    """
    return log_probs_of_items(loaded, validation_items(loaded, texts), tokens_per_batch)


def backward_log_probs(
    loaded: Loaded, texts: Sequence[str], tokens_per_batch: int = 4096
) -> list[np.ndarray]:
    """Return the log-probability of each piece given those after it, for a model that reads from
    both ends; by window.
    """
    return log_probs_of_items(loaded, validation_items(loaded, texts), tokens_per_batch, _backward)


def pseudo_log_probs(
    loaded: Loaded, texts: Sequence[str], most: int, tokens_per_batch: int = 4096
) -> list[np.ndarray]:
    """Return the log-probability of each piece of some windows with only itself hidden: the terms
    of the pseudo-log-likelihood (Salazar et al. 2020, arXiv:1910.14659); by window, none for the
    others. See `one_by_one`.
    """
    items = validation_items(loaded, texts)
    alone = one_by_one(items, most)
    scored = log_probs_of_items(loaded, alone, tokens_per_batch)
    # An empty window begins where the next one does, and comes before it.
    window = {begin: i for i, begin in enumerate(items.src.starts.tolist())}
    parts: list[list[np.ndarray]] = [[np.zeros(0)] for _ in range(len(items))]
    for begin, part in zip(alone.src.starts.tolist(), scored, strict=True):
        parts[window[begin]].append(part)
    return [np.concatenate(part) for part in parts]


def validation_items(loaded: Loaded, texts: Sequence[str]) -> TokenStore:
    """Return the items that some texts are cut into."""
    frame = loaded.task.frame(loaded.objective)
    template = loaded.codecs.template if frame.cut == "turns" else None
    if template is None:
        encoded = loaded.codecs.tgt.encode(texts, frame.bos, frame.eos)
    else:
        encoded = template.encode(loaded.codecs.tgt, texts)
    return loaded.items(Ragged.from_lists([]), Ragged.from_lists(encoded))


def log_probs_of(
    loaded: Loaded, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]],
    tokens_per_batch: int,
) -> list[np.ndarray]:  # fmt: skip
    """Return the log-probabilities (nats) of what is predicted in each item that the objective
    makes of encoded sources, none if there is one side, and targets, in batches of
    `tokens_per_batch` positions.
    """
    items = loaded.items(Ragged.from_lists(src), Ragged.from_lists(tgt))
    return log_probs_of_items(loaded, items, tokens_per_batch)


def log_probs_of_items(
    loaded: Loaded, items: TokenStore, tokens_per_batch: int, log_probs: Any = None
) -> list[np.ndarray]:
    """Return what `log_probs` computes of a batch, by default the log-probabilities of labels, at
    the positions of each item where something is predicted.
    """
    rows, compute = [np.zeros(0)] * len(items), log_probs or _log_probs
    for item, row, predicted in each_item(compute, loaded, items, tokens_per_batch):
        rows[item] = row[predicted]
    return rows


@functools.partial(jax.jit, static_argnums=0)
def _log_probs(model: Model, params: Any, batch: Batch) -> Float[Array, "B T"]:
    return label_log_probs(model, params, batch, "tokens")


@functools.partial(jax.jit, static_argnums=0)
def _backward(model: Model, params: Any, batch: Batch) -> Float[Array, "B T"]:
    """Return each at the position of the predicted piece, from which another is predicted."""
    return jnp.roll(label_log_probs(model, params, batch, "backward"), -1, axis=1)


def label_log_probs(model: Model, params: Any, batch: Batch, name: str) -> Float[Array, "B T"]:
    """Return the log-probability of each label of the target of that name."""
    logits = model.outputs(params, batch, None)[name].logits()
    labels = jnp.asarray(batch.targets[name].labels)
    return jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=2)[..., 0]

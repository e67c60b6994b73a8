"""Log-probabilities of given translations, or of given texts."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float
from transformer_jax.base.errors import UserError
from transformer_jax.config import ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Ragged
from transformer_jax.data.codecs.codec import Codec, shortened, special_of
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.objectives import objective_named
from transformer_jax.data.objectives.masked_lm import one_by_one
from transformer_jax.data.store.token_store import TokenStore
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
    model: Model,
    params: Any,
    tokenizers: TokenizerPair,
    src: Sequence[str],
    tgt: Sequence[str],
    tokens_per_batch: int = 4096,
    objective: ObjectiveConfig = ObjectiveConfig(),  # noqa: B008 (immutable)
    cut_at: int | None = None,
) -> list[PairScore]:
    """Return the log-probabilities of each target's pieces, given its source, cut at `cut_at`."""
    sources, targets = tokenizers.src.encode(src), tokenizers.tgt.encode(tgt)
    if cut_at is not None:
        sources = [shortened(ids, cut_at) for ids in sources]
    read, written = map(Ragged.from_lists, (sources, targets))
    store = TokenStore(read, written, special_of(tokenizers.tgt))
    found = log_probs_of(model, params, objective, store, tokens_per_batch)
    return [
        PairScore(ids, log_probs.tolist(), tokenizers.tgt.pieces(ids))
        for ids, log_probs in zip(targets, found, strict=True)
    ]


def score_texts(
    model: Model,
    params: Any,
    codec: Codec,
    objective: ObjectiveConfig,
    texts: Sequence[str],
    tokens_per_batch: int = 4096,
) -> list[TextScore]:
    """Return the log-probability of each piece of each text, given those before it.

    Texts are framed and cut into windows as in training, so each piece counts once, but each text
    by itself, even if training joins them.

    Raises:
      UserError: if the objective does not predict every piece.
    """
    if not objective.record.likelihood:
        raise UserError(
            f"config.objective.name={objective.name!r}: such a model "
            f"{objective.record.predicts}, and gives no probability of a text; "
            "see validation_loss"
        )
    if not texts:
        return []
    if "" in texts and objective.document == "file":  # not even EOS is predicted
        raise UserError(
            f"score: text {list(texts).index('') + 1} is empty, so the model predicts none of it; "
            "leave it out"
        )
    if objective.document == "joined":
        objective = dataclasses.replace(objective, document="line")
    frame = objective_named(objective.name).frame(objective)
    encoded = codec.encode(texts, frame.bos, frame.eos)
    store = TokenStore(Ragged.from_lists([]), Ragged.from_lists(encoded), special_of(codec))
    parts = log_probs_of(model, params, objective, store, tokens_per_batch)
    joined = np.concatenate([*parts, np.zeros(0)])  # windows are in the order of the texts
    labels = [ids[1:] for ids in encoded]
    ends = np.cumsum([len(ids) for ids in labels])[:-1]
    scores = []
    each = zip(texts, encoded, labels, np.split(joined, ends), strict=True)
    for text, whole, ids, found in each:
        units = _units(codec, text, whole, ids, frame.eos)
        scores.append(TextScore(ids, found.tolist(), codec.pieces(ids), *units))
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
    model: Model,
    params: Any,
    codec: Codec,
    objective: ObjectiveConfig,
    texts: Sequence[str],
    tokens_per_batch: int = 4096,
) -> list[np.ndarray]:
    """Return the log-probability of each piece predicted in validation, where texts may be joined,
    masked, noised or missing spans; by window.
    """
    items = validation_items(codec, objective, texts)
    return _of_items(model, params, objective, items, tokens_per_batch)


def backward_log_probs(
    model: Model,
    params: Any,
    codec: Codec,
    objective: ObjectiveConfig,
    texts: Sequence[str],
    tokens_per_batch: int = 4096,
) -> list[np.ndarray]:
    """Return the log-probability of each piece given those after it, for a model that reads from
    both ends; by window.
    """
    items = validation_items(codec, objective, texts)
    return _of_items(model, params, objective, items, tokens_per_batch, _backward)


def pseudo_log_probs(
    model: Model,
    params: Any,
    codec: Codec,
    objective: ObjectiveConfig,
    texts: Sequence[str],
    most: int,
    tokens_per_batch: int = 4096,
) -> list[np.ndarray]:
    """Return the log-probability of each piece of some windows with only itself hidden: the terms
    of the pseudo-log-likelihood (Salazar et al. 2020, arXiv:1910.14659); by window, none for the
    others. See `one_by_one`.
    """
    items = validation_items(codec, objective, texts)
    alone = one_by_one(items, most)
    found = _of_items(model, params, objective, alone, tokens_per_batch)
    # An empty window begins where the next one does, and comes before it.
    window = {begin: i for i, begin in enumerate(items.src.starts.tolist())}
    parts: list[list[np.ndarray]] = [[np.zeros(0)] for _ in range(len(items))]
    for begin, part in zip(alone.src.starts.tolist(), found, strict=True):
        parts[window[begin]].append(part)
    return [np.concatenate(part) for part in parts]


def validation_items(codec: Codec, config: ObjectiveConfig, texts: Sequence[str]) -> TokenStore:
    """Return the items that some texts are cut into."""
    objective = objective_named(config.name)
    frame = objective.frame(config)
    encoded = Ragged.from_lists(codec.encode(texts, frame.bos, frame.eos))
    store = TokenStore(Ragged.from_lists([]), encoded, special_of(codec))
    return objective.items(store, config, codec)


def log_probs_of(
    model: Model, params: Any, config: ObjectiveConfig, store: TokenStore, tokens_per_batch: int
) -> list[np.ndarray]:
    """Return the log-probabilities (nats) of what is predicted in each item that the objective
    makes of a store, in batches of `tokens_per_batch` positions.
    """
    items = objective_named(config.name).items(store, config)
    return _of_items(model, params, config, items, tokens_per_batch)


def _of_items(
    model: Model,
    params: Any,
    config: ObjectiveConfig,
    items: TokenStore,
    tokens_per_batch: int,
    log_probs: Any = None,
) -> list[np.ndarray]:
    objective = objective_named(config.name)
    found = [np.zeros(0)] * len(items)
    given = model, params, objective, items, tokens_per_batch
    for item, row, predicted in each_item(log_probs or _log_probs, *given):
        found[item] = row[predicted]
    return found


@functools.partial(jax.jit, static_argnums=0)
def _log_probs(model: Model, params: Any, batch: Batch) -> Float[Array, "B T"]:
    return _of(model, params, batch, "tokens")


@functools.partial(jax.jit, static_argnums=0)
def _backward(model: Model, params: Any, batch: Batch) -> Float[Array, "B T"]:
    """Return each at the position of the predicted piece, from which another is predicted."""
    return jnp.roll(_of(model, params, batch, "backward"), -1, axis=1)


def _of(model: Model, params: Any, batch: Batch, name: str) -> Float[Array, "B T"]:
    logits = model.outputs(params, batch, None)[name].logits()
    labels = jnp.asarray(batch.targets[name].labels)
    return jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=2)[..., 0]

"""Reinforcement: answers that earned more than others to the same prompt become likelier."""

from collections.abc import Callable, Sequence

import numpy as np

from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Placement, Ragged, Side, Target, lay_out
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.objectives.chatting import Chat, Conversations, plain
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import Selection, TokenStore, without

_TINY = 1e-4  # added to a standard deviation, as in TRL
_FACTS = 8  # numbers known of each piece; see `Answers`


class Prompts(Conversations):
    """Conversations as Chat has them, with what is read before their last answers."""

    origin: np.ndarray  # [n], the number of the text that an item is of
    begins: np.ndarray  # [n], pieces before the last answer
    window: int = 256
    answer: int = 64  # the most pieces of an answer

    def prompt(self, item: int) -> list[int]:
        """Return the pieces that are read before the last answer."""
        return plain(self.tgt.sequence(item)[: self.begins[item]]).tolist()

    def answers(self, item: int) -> int:
        """Return how many answers of the assistant an item has."""
        said = self.tgt.ids[self.tgt.starts[item] :][: self.tgt.lengths[item] + 1] < 0
        return int((said[1:] & ~said[:-1]).sum())


class Answers(TokenStore):
    """Conversations whose last answers the model wrote, with what is known of each piece.

    facts [N 8], beside the ids: how much the piece counts in the sum of the loss, 0 if it is not
    predicted; the advantage of its answer; its log-probability when it was written, and under the
    reference; the weight of the divergence from that; how far its probability may fall and rise, as
    shares of it; and its part of the number that the sum is divided by.
    """

    facts: np.ndarray


class Reinforce(Chat):
    """Make answers likelier that earned more than others to the same prompt, and the others less
    likely (GRPO: Shao et al. 2024, arXiv:2402.03300, equation 3).

    Its batches are of Answers, an answer in each row. The labels are, at each position, the piece
    that is predicted and the first seven of its facts. Of conversations as the data have them they
    are those of Chat.
    """

    noun = "prompt"

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective."""
        talks = super().items(store, config, codec)
        items = Prompts(talks.src, talks.tgt, talks.special)
        items.window, items.answer = config.window, config.answer_length
        items.origin = np.searchsorted(store.tgt.starts, items.tgt.starts, side="right") - 1
        ids, starts = store.tgt.ids, items.tgt.starts
        read = np.maximum.accumulate(np.where(ids < 0, -1, np.arange(len(ids))))
        ends = starts + items.tgt.lengths  # of the last piece, which is predicted
        items.begins = read[ends] + 1 - starts if len(items) else np.zeros(0, np.int64)
        return items

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: conversations that leave room for the longest answer."""
        if not isinstance(items, Prompts):
            return super().select(items, config)
        most = items.window - items.answer + 1
        return without({f"whose prompt is longer than {most} pieces": items.begins > most})

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        if isinstance(items, Conversations):
            return super().batch(items, placement, rows, src_length, tgt_length, draw)
        shape = rows, tgt_length
        if not isinstance(items, Answers):  # a batch without examples
            inputs, pos, seg = (np.zeros(shape, np.int32) for _ in range(3))
            labels, weight = np.zeros((*shape, _FACTS), np.float32), np.zeros(shape, np.float32)
            return Batch(None, Side(inputs, pos, seg), {"policy": Target(labels, weight)})
        where = placement, placement.tgt_offset, shape
        read = lay_out(items.tgt, *where)
        said = lay_out(items.tgt, *where, ahead=1).inputs
        facts = lay_out(items.tgt._replace(ids=items.facts), *where, ahead=1).inputs
        pieces = np.where(said < 0, plain(said), 0).astype(np.float32)
        labels = np.concatenate([pieces[..., None], facts[..., :-1]], axis=-1)
        side = read._replace(inputs=plain(read.inputs))
        return Batch(None, side, {"policy": Target(labels, facts[..., -1])})


# How much a piece counts, by the words of `objective.policy_loss`, given the pieces of its answer
# and the most that one may have.
SHARES: dict[str, Callable[[int, int], float]] = {
    "grpo": lambda pieces, most: 1 / pieces,
    "dr_grpo": lambda pieces, most: 1 / most,
    "dapo": lambda pieces, most: 1.0,
}


def advantages(rewards: np.ndarray, config: ObjectiveConfig) -> np.ndarray:
    """Return how much more each answer earned than the mean of its group [n G], in units of the
    group's standard deviation unless `policy_loss` is "dr_grpo".
    """
    gain = rewards - rewards.mean(axis=1, keepdims=True)
    if config.policy_loss == "dr_grpo":
        return gain
    return gain / (rewards.std(axis=1, ddof=1, keepdims=True) + _TINY)


def answers(
    prompts: Sequence[Sequence[int]],
    said: Sequence[Sequence[int]] | Sequence[np.ndarray],
    advantage: np.ndarray,
    old: Sequence[np.ndarray],
    reference: Sequence[np.ndarray] | None,
    config: ObjectiveConfig,
) -> Answers:
    """Return the rows of a batch: answers `said` after prompts, their advantages [n], and the
    log-probabilities of their pieces when they were written and under the reference, if that
    counts.
    """
    texts = Ragged.from_lists(
        [[*prompt, *(~piece for piece in ids)]
         for prompt, ids in zip(prompts, said, strict=True)]
    )  # fmt: skip
    facts = np.zeros((len(texts.ids), _FACTS), np.float32)
    for row, own in enumerate(old):  # as long as what is said
        begin = texts.starts[row] + len(prompts[row])
        part = facts[begin : begin + len(own)]
        share = SHARES[config.policy_loss](len(own), config.answer_length)
        part[:, 0], part[:, 1] = share, advantage[row]
        part[:, 2] = own
        if reference is not None:
            part[:, 3], part[:, 4] = reference[row], config.kl_weight
        part[:, 5], part[:, 6] = config.clip_below, config.clip_above
        part[: len(part) if config.policy_loss == "dapo" else 1, 7] = 1
    rows = texts._replace(lengths=texts.lengths - 1)
    found = Answers(rows.emptied(), rows)
    found.facts = facts
    return found


WORDS = {"reinforce": Reinforce()}

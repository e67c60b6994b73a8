"""Which target pieces go with which source pieces: IBM Model 1 (Brown et al. 1993), by EM.

Each target piece is written by one of the source pieces, or by the empty word, all alike probable:
p(targets | sources) = product over j of the mean over i of p(t_j | s_i). A round gives each piece's
probability to the links that it may come by, in shares, and makes new probabilities of their sums.
"""

import io
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from transformer_jax.data.token_store import TokenStore
from transformer_jax.disk import write_bytes, writing
from transformer_jax.errors import UserError

FILE = "shortlist.npz"  # in a work directory
ROUNDS = 5  # as in Moses and fast_align
_LINKS = 1 << 25  # pairs of a source piece and a target piece at most: bounds memory and time
_CHUNK = 1 << 22  # links at a time
_LEAST = 1e-5  # probabilities below it are left out
_SEEN = 1e-6  # of what nothing is known but how often it occurs


@dataclass(frozen=True)
class Lexicon:
    """Probabilities of the target pieces by each source piece; those of source piece s stand from
    starts[s] to starts[s + 1].
    """

    digest: str  # of the tokenizers whose pieces they are
    empty: Float[np.ndarray, "V"]  # by the empty word
    starts: Int[np.ndarray, "S+1"]
    pieces: Int[np.ndarray, "N"]
    probabilities: Float[np.ndarray, "N"]

    def shortlist(
        self, ids: Sequence[int], size: int, needed: Sequence[int] = ()
    ) -> Int[np.ndarray, "K"]:
        """Return the pieces that the model finds likeliest in a translation of some, in the order
        of their ids: so many, or all there are if these are fewer, among them what is needed.
        """
        if size >= len(self.empty):
            return np.arange(len(self.empty), dtype=np.int32)
        rows = [slice(*self._bounds[i : i + 2]) for i in ids]
        pieces = np.concatenate([self.pieces[row] for row in rows])
        weights = np.concatenate([self.probabilities[row] for row in rows])
        scores = self.empty + np.bincount(pieces, weights, len(self.empty))
        scores[list(needed)] = np.inf
        # What is not as likely as so many are by the empty word alone is none of the best.
        among = np.flatnonzero(scores >= self._ranked[size - 1])
        best = np.argpartition(scores[among], len(among) - size)[len(among) - size :]
        return np.sort(among[best]).astype(np.int32)

    @cached_property
    def _bounds(self) -> list[int]:
        return self.starts.tolist()

    @cached_property
    def _ranked(self) -> Float[np.ndarray, "V"]:
        return np.sort(self.empty)[::-1]

    def save(self, directory: Path) -> Path:
        """Write the file of a work directory, and return its path.

        Raises:
          DiskError: if the disk does not take it.
        """
        content = io.BytesIO()
        np.savez_compressed(
            content, digest=self.digest, empty=self.empty, starts=self.starts, pieces=self.pieces,
            probabilities=self.probabilities,
        )  # fmt: skip
        path = directory / FILE
        with writing(str(path), directory):
            write_bytes(path, content.getvalue())
        return path

    @classmethod
    def load(cls, directory: Path, digest: str) -> "Lexicon":
        """Read what `save` wrote, for tokenizers with a digest.

        Raises:
          UserError: if there is none, or it is of other tokenizers.
        """
        path = directory / FILE
        remedy = f"run transformer-jax shortlist --workdir={directory}"
        if not path.exists():
            raise UserError(f"{path}: no such file; {remedy}")
        try:
            with np.load(path, allow_pickle=False) as file:
                found = cls(
                    str(file["digest"]), file["empty"], file["starts"], file["pieces"],
                    file["probabilities"],
                )  # fmt: skip
        except (OSError, ValueError, LookupError, EOFError, zipfile.BadZipFile):
            raise UserError(f"{path}: is not what was written; {remedy}") from None
        if found.digest != digest:
            raise UserError(f"{path}: is of other tokenizers than the model's; {remedy}")
        return found


class _Links(NamedTuple):
    """Links of some pairs, those of one target piece side by side, as places in a table."""

    places: Int[np.ndarray, "N"]
    sizes: Int[np.ndarray, "T"]  # how many links each target piece has


def estimate(
    store: TokenStore,
    sizes: tuple[int, int],
    digest: str,
    rounds: int = ROUNDS,
    links: int = _LINKS,
    progress: Callable[[int], None] = lambda done: None,
) -> Lexicon:
    """Return the lexicon of pairs of texts; of a random part, if all have more than so many links.

    `sizes` are those of both vocabularies; `progress` is called with how many pairs were gone
    through, those of every pass: of `passes(store)` in all.
    """
    chunks = [*_chunks(store, sample(store, links))]
    done, table = 0, np.zeros(0, np.int64)
    for chunk in chunks:
        table = np.union1d(table, _keys(store, chunk, sizes)[0])
        progress(done := done + len(chunk))
    linked = []
    for chunk in chunks:
        keys, each = _keys(store, chunk, sizes)
        linked.append(_Links(np.searchsorted(table, keys).astype(np.int32), each))
    owner, piece = np.divmod(table, sizes[1])
    p, seen = np.ones(len(table)), np.zeros(len(table))
    for _ in range(rounds):
        counts = np.zeros(len(table))
        for chunk, (places, each) in zip(chunks, linked, strict=True):
            shares = p[places]
            shares /= np.repeat(np.add.reduceat(shares, np.cumsum(each) - each), each)
            counts += np.bincount(places, shares, len(table))
            progress(done := done + len(chunk))
        p, seen = counts / np.bincount(owner, counts)[owner], counts
    empty = _SEEN * np.bincount(piece, seen, sizes[1]) / max(seen.sum(), 1)
    by_empty = owner == sizes[0]
    empty[piece[by_empty]] += p[by_empty]
    kept = ~by_empty & (p >= _LEAST)
    starts = np.searchsorted(owner[kept], np.arange(sizes[0] + 1))
    return Lexicon(
        digest, empty.astype(np.float32), starts, piece[kept].astype(np.int32),
        p[kept].astype(np.float32),
    )  # fmt: skip


def passes(store: TokenStore, rounds: int = ROUNDS, links: int = _LINKS) -> int:
    """Return how many pairs `estimate` goes through in all its passes."""
    return (rounds + 1) * len(sample(store, links))


def sample(store: TokenStore, links: int) -> Int[np.ndarray, "n"]:
    """Return the pairs that are looked at: all that have both sides, or a random part of them."""
    src, tgt = store.lengths
    pairs = np.flatnonzero((src > 1) & (tgt > 1))
    counts = _counts(store, pairs)
    if counts.sum() <= links:
        return pairs
    order = np.random.default_rng(0).permutation(len(pairs))
    return np.sort(pairs[order[np.cumsum(counts[order]) <= links]])


def _counts(store: TokenStore, pairs: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
    """Return how many links pairs have."""
    src, tgt = store.lengths
    return (src[pairs] + 1) * tgt[pairs]


def _chunks(store: TokenStore, pairs: Int[np.ndarray, "n"]) -> Iterator[Int[np.ndarray, "m"]]:
    """Yield the pairs in parts of about so many links as are worked on at a time."""
    part = np.cumsum(_counts(store, pairs)) // _CHUNK
    yield from filter(len, np.split(pairs, np.flatnonzero(np.diff(part)) + 1))


def _keys(
    store: TokenStore, pairs: Int[np.ndarray, "n"], sizes: tuple[int, int]
) -> tuple[Int[np.ndarray, "N"], Int[np.ndarray, "T"]]:
    """Return (source piece, target piece) of each link as one number, source pieces first, the
    empty word behind all others; and how many links each target piece has.
    """
    keys, each, (empty, targets) = [], [], sizes
    for pair in pairs.tolist():
        src, tgt = store.src.sequence(pair), store.tgt.sequence(pair)
        keys.append((np.append(src, empty).astype(np.int64) * targets + tgt[:, None]).reshape(-1))
        each.append(np.full(len(tgt), len(src) + 1))
    return np.concatenate(keys), np.concatenate(each)

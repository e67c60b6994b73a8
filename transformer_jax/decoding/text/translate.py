"""Translation of lines of text, in input order."""

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from transformer_jax.base.errors import UserError
from transformer_jax.config import DecodingConfig
from transformer_jax.config.registry import pick
from transformer_jax.data.codecs.codec import VectorCodec, special_of
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.store.lexicon import Lexicon
from transformer_jax.decoding.batching.stream import Sentence, stream
from transformer_jax.decoding.ctc import joint
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.search.acceptance import Acceptance
from transformer_jax.decoding.search.beam import BeamSearch
from transformer_jax.decoding.search.constraints import CONSTRAINTS
from transformer_jax.decoding.search.penalties import divisor
from transformer_jax.decoding.search.state import NOTHING
from transformer_jax.decoding.text.attention import alignments, check_attention
from transformer_jax.decoding.text.lines import Lines
from transformer_jax.decoding.text.long_lines import alike
from transformer_jax.decoding.text.rerank import RERANKERS
from transformer_jax.decoding.text.searching import (
    Draft,
    check_contiguous,
    check_n_best,
    drafting_in,
    fewest_positions,
    foreseeing,
    held,
    make_engine,
    make_search,
    until_eos,
)
from transformer_jax.decoding.text.translation import (
    Translation,
    first_of_each,
    join,
    on_one_line,
)
from transformer_jax.decoding.weights import computing_in
from transformer_jax.models.model import Model

log = logging.getLogger("transformer_jax")

NO_TRANSLATION = Translation("", [], NOTHING, log_prob=NOTHING)
LONGEST = 1024  # pieces of a source, by default


class Translator(Lines):
    """A model, its tokenizers, and compiled searches.

    Several models form an ensemble; their parameters are then a list as well. `n_best` is the
    number of hypotheses wanted per line. A source of more than `longest` pieces is translated in
    parts, with a warning if `warn`; if `cut`, it is truncated instead. The work is shared among
    `devices`, by default this process's. `draft` is the model that `decoding.draft` names,
    `lexicon` what `decoding.shortlist` takes pieces from.

    Raises:
      UserError: if more hypotheses are wanted than the search keeps, or a forbidden piece does
        not exist.
    """

    def __init__(
        self,
        model: Model | Sequence[Model],
        tokenizers: TokenizerPair,
        config: DecodingConfig,
        n_best: int = 1,
        devices: Sequence[jax.Device] | None = None,
        longest: int = LONGEST,
        warn: bool = True,
        cut: bool = False,
        draft: Draft | None = None,
        lexicon: Lexicon | None = None,
    ) -> None:
        check_n_best(config, n_best)
        check_contiguous(config, "a translation")
        models = list(model) if isinstance(model, Sequence) else [model]
        config = foreseeing(config, models)
        self.models = joint(config.ctc_weight, computing_in(config.compute_dtype, models))
        self._tokenizers, self.config, self._n_best = tokenizers, config, n_best
        self._longest, self._warn, self._cuts = longest, warn, cut
        self._lexicon = lexicon if config.shortlist else None
        self.mesh = Mesh(devices or jax.local_devices(), "rows")
        self._special = special_of(tokenizers.tgt)
        forbidden = [tokenizers.tgt.piece_id(piece) for piece in config.forbidden]
        wanted = n_best if config.rerank == "none" else config.hypotheses
        make = pick(CONSTRAINTS, config.constraint, "config.decoding.constraint")
        self._constraint = make(tokenizers.tgt)
        self.search = make_search(config, wanted, forbidden, self._special, self._constraint)
        self.positions = fewest_positions(self.models)
        self.draft, self.acceptance = drafting_in(config, draft), Acceptance()
        arguments = tuple(self.models), config.ensemble, self.mesh
        self.engine = make_engine(*arguments, self.draft and self.draft.model)

    def translate(
        self,
        params: Any,
        lines: Sequence,
        progress: Callable[[Iterable], Iterable] = iter,
    ) -> list[Translation]:
        """Return the best translation of each line; see `hypotheses`."""
        return [best[0] for best in self.hypotheses(params, lines, progress)]

    def hypotheses(
        self,
        params: Any,
        lines: Sequence,
        progress: Callable[[Iterable], Iterable] = iter,
        prefixes: Sequence[str] | None = None,
        first: int = 1,
        align: bool = False,
    ) -> list[list[Translation]]:
        """Return up to n_best translations of each line, best first; empty lines stay empty. If
        the source side has vectors, lines are what its codec encodes, such as sounds.

        Samples come in the order drawn, unless decoding.rerank orders them.

        Each translation begins with its line's prefix, if there are any. Lines longer than
        `longest` are translated in parts, with a warning, and scores are added up. `progress` wraps
        the loop over non-empty lines, in the order in which they finish. `first` is the number of
        the first line, on which samples depend. `align` asks for word alignments, which are those
        of the first model.
        """
        first_of = params if len(self.models) == 1 else params[0]
        self._check(first_of, align)
        parts = self.sentences(lines, prefixes, first)
        ranked: list[list[Translation]] = [[] for _ in parts]
        with jax.set_mesh(self.mesh):  # whatever the mesh of a surrounding training run
            for _ in progress(self._each_line(params, parts, ranked)):
                pass
        if align:
            self.align(first_of, parts, ranked)
        return self.by_line(len(lines), parts, ranked, align)

    def by_line(
        self, lines: int, parts: Sequence[Sentence], found: Sequence[list[Translation]],
        align: bool = False,
    ) -> list[list[Translation]]:  # fmt: skip
        """Return the translations of all lines, from those of their parts; empty ones too."""
        results = [[Translation("", [], 0.0, [] if align else None)] for _ in range(lines)]
        pairs = zip(parts, found, strict=True)
        for line, group in itertools.groupby(pairs, key=lambda pair: pair[0].line):
            results[line] = self._joined(*zip(*group, strict=True))
        return results

    @property
    def _covers(self) -> bool:
        return isinstance(self.search, BeamSearch) and self.search.covers

    def _check(self, params: Any, align: bool) -> None:
        """Refuse what needs attention to source pieces if there is none."""
        penalty = f"decoding.coverage_penalty={self.config.coverage_penalty}"
        for what in ["alignments"] * align + [penalty] * self._covers:
            if isinstance(self._tokenizers.src, VectorCodec):
                raise UserError(f"{what}: needs pieces of the source, and this model reads vectors")
            check_attention(self.models[0], params, what)

    def _each_line(
        self, params: Any, parts: Sequence[Sentence], found: list[list[Translation]]
    ) -> Iterator[int]:
        """Fill in the translations of each part; yield lines as they finish."""
        params = held(self.models, params, self.draft)
        params = jax.device_put(params, NamedSharding(self.mesh, jax.P()))
        left = Counter(part.line for part in parts)
        budget = self.config.tokens_per_batch
        for number, tokens, scores in stream(
            self.engine, self.search, params, parts, budget, self.positions, self.acceptance
        ):
            found[number] = self.translations(tokens, scores)
            line = parts[number].line
            left[line] -= 1
            if not left[line]:
                yield line

    def align(self, params: Any, parts: Sequence[Sentence], found: list, most: int = 4096):
        """Add alignments to translations, in batches of `most` positions."""
        sources = [part.ids for part, items in zip(parts, found, strict=True) for _ in items]
        targets = [item.ids for items in found for item in items]
        loaded = Loaded(self.models[0], params, self._tokenizers)
        aligned = iter(alignments(loaded, sources, targets, most))
        for items in found:
            items[:] = [item._replace(alignments=next(aligned)) for item in items]

    def _joined(
        self, parts: Sequence[Sentence], found: Sequence[list[Translation]]
    ) -> list[Translation]:
        """Return the translations of a line, from those of its parts."""
        if len(parts) == 1:
            return found[0]
        before = [part.words_before for part in parts]
        return [join(items, before, self._special.end) for items in alike(found)]

    def translations(self, tokens: np.ndarray, scores: np.ndarray) -> list[Translation]:
        """Return the n_best hypotheses of a sentence, from tokens [W L] and scores [W]. A text that
        was found in several segmentations is listed once; so is one drawn several times, unless
        samples are listed as they were drawn.
        """
        pairs = zip(tokens, scores, strict=True)
        candidates: Iterable[Translation] = (
            self._translation(row.tolist(), float(score))
            for row, score in pairs
            if score > NOTHING / 2
        )
        reranks = self.config.rerank != "none"
        if reranks:
            items = [*candidates]
            order = pick(RERANKERS, self.config.rerank, "config.decoding.rerank")
            candidates = [items[i] for i in order([item.text for item in items])]
        if reranks or not self.config.draws:
            candidates = first_of_each(candidates)
        return [*itertools.islice(candidates, self._n_best)] or [NO_TRANSLATION]

    def _translation(self, tokens: list[int], score: float) -> Translation:
        ids = until_eos(tokens, self._special)
        c, text = self.config, on_one_line(self._tokenizers.tgt.decode(ids))
        log_prob = score * divisor(c.length_penalty, c.alpha, len(ids))
        return Translation(text, ids, score, log_prob=None if self._covers else log_prob)

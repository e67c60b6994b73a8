"""Best-path decoding of CTC models (Graves et al. 2006, section 3.2)."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float
from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import PAD
from transformer_jax.config import ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Ragged
from transformer_jax.data.codecs.codec import encoded
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.search.acceptance import Acceptance
from transformer_jax.decoding.text.teacher_forced import each_item
from transformer_jax.decoding.text.translation import Translation, on_one_line
from transformer_jax.models.model import Model


class Transcriber:
    """A model and its tokenizers, with the methods of a Translator. It is greedy: there is one
    hypothesis, the most likely piece at each position, with equal neighbours merged. Sources longer
    than `longest` are truncated if `cut`, and refused otherwise.

    Raises:
      UserError: if there are several models, or more hypotheses are wanted.
    """

    def __init__(
        self,
        models: Sequence[Model],
        tokenizers: TokenizerPair,
        objective: ObjectiveConfig,
        n_best: int = 1,
        longest: int = 1024,
        cut: bool = False,
    ) -> None:
        if len(models) > 1:
            raise UserError("a CTC model joins no ensemble: load one checkpoint of one --workdir")
        if n_best != 1:
            raise UserError(f"n_best={n_best}: a CTC model has one hypothesis; choose 1")
        (self._model,) = models
        self._tokenizers, self._objective = tokenizers, objective
        self.longest, self._cuts = longest, cut
        self.acceptance = Acceptance()  # empty: there are no drafts

    def translate(
        self, params: Any, lines: Sequence, progress: Callable[[Iterable], Iterable] = iter
    ) -> list[Translation]:
        """Return the transcription of each source; see `hypotheses`."""
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
        """Return the transcription of each source, and the log-probability of its best path.

        Raises:
          UserError: if a source is too long, or prefixes or alignments are asked for.
        """
        if prefixes is not None or align:
            what = "alignments" if align else "prefixes"
            raise UserError(f"{what}: a CTC model writes all at once; ask for none")
        src = encoded(self._tokenizers.src, lines)
        if self._cuts:
            src = src._replace(lengths=np.minimum(src.lengths, self.longest))
        for number in np.flatnonzero(src.lengths > self.longest)[:1]:
            raise UserError(
                f"line {first + number}: {src.lengths[number]:,} positions, more than the "
                f"{self.longest:,} that data.max_length allows; shorten it"
            )
        transcripts: list[list[Translation]] = [[Translation("", [], 0.0)] for _ in lines]
        for number, row in progress(self._each(params, src)):
            transcripts[number] = [self._said(row)]
        return transcripts

    def _each(self, params: Any, src: Ragged) -> Iterator[tuple[int, np.ndarray]]:
        if not src.lengths.any():  # only sounds without a frame, whose transcriptions are empty
            return
        loaded = Loaded(self._model, params, self._tokenizers, self._objective)
        nothing = Ragged.from_lists([[PAD]] * len(src.lengths))
        for number, row, _ in each_item(_best, loaded, loaded.items(src, nothing), 4096):
            yield number, row

    def _said(self, row: np.ndarray) -> Translation:
        """Return the transcription of the most likely pieces and their log-probabilities, [S 2]."""
        path = (int(piece) for piece, _ in itertools.groupby(row[:, 0]))
        ids = [piece for piece in path if piece != PAD]
        text = on_one_line(self._tokenizers.tgt.decode(ids))
        score = float(row[:, 1].sum(dtype=np.float64))
        return Translation(text, ids, score, log_prob=score)


@functools.partial(jax.jit, static_argnums=0)
def _best(model: Model, params: Any, batch: Batch) -> Float[Array, "B S 2"]:
    logs = jax.nn.log_softmax(model.outputs(params, batch, None)["ctc"].logits())
    return jnp.stack([logs.argmax(-1).astype(logs.dtype), logs.max(-1)], axis=-1)

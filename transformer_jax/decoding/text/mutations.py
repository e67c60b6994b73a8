"""What a masked language model holds of mutations of a sequence."""

import functools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float
from transformer_jax.base.errors import UserError
from transformer_jax.data.batches.batch import Batch
from transformer_jax.data.objectives.masked_lm import Masked, hidden_at
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.score import validation_items
from transformer_jax.decoding.text.teacher_forced import each_item
from transformer_jax.models.model import Model

_FORM = re.compile(r"([^\d\s])(\d+)([^\d\s])")


class Mutation(NamedTuple):
    """One letter in place of another; `place` counts from 0."""

    wild: str
    place: int
    mutant: str

    @classmethod
    def read(cls, text: str, sequence: str) -> "Mutation":
        """Return the mutation that "A23G" stands for, G in place of the A that is letter 23.

        Raises:
          UserError: if it is of another form, or not of this sequence.
        """
        found = _FORM.fullmatch(text)
        if found is None:
            raise UserError(
                f"mutation {text!r}: write the letter, its number and the new letter, as in A23G"
            )
        number = int(found[2])
        if not 1 <= number <= len(sequence):
            raise UserError(f"mutation {text!r}: the sequence has letters 1 to {len(sequence)}")
        if found[1] != sequence[number - 1]:
            raise UserError(
                f"mutation {text!r}: letter {number} of the sequence is {sequence[number - 1]!r}; "
                "numbers count from 1"
            )
        return cls(found[1], number - 1, found[3])


def mutation_scores(
    loaded: Loaded, sequence: str, mutations: Sequence[str], tokens_per_batch: int = 4096
) -> list[float]:
    """Return, for each mutation, the log-probability (nats) of the mutant letter less that of the
    wild one where that alone is hidden: masked marginals (Meier et al. 2021,
    doi:10.1101/2021.07.09.450648). Longer sequences are cut into windows, as in validation.

    Raises:
      UserError: if the model predicts no masked pieces, a letter is not one piece, or a mutation is
        not one of the sequence.
    """
    codec = loaded.codecs.tgt
    if loaded.objective.record.also != "pseudo":
        raise loaded.refusal("does not predict a single masked piece; use one of 'masked_lm'")
    if not mutations:
        return []
    found = [Mutation.read(text, sequence) for text in mutations]
    letters = sorted({letter for one in found for letter in (one.wild, one.mutant)})
    (ids, *spelled) = codec.encode([sequence, *letters], eos=False)
    if len(ids) != len(sequence) or any(len(one) != 1 for one in spelled):
        raise UserError(
            "mutations: the codec does not make each letter a piece; use a model of 'residues', "
            "'nucleotides' or 'characters', or an imported one of proteins"
        )
    piece = {letter: one[0] for letter, one in zip(letters, spelled, strict=True)}
    windows = validation_items(loaded, [sequence])
    assert isinstance(windows, Masked)
    ends = np.cumsum(windows.src.lengths)
    places = np.unique([one.place for one in found])
    window = np.searchsorted(ends, places, "right")
    items = hidden_at(windows, window, places - (ends - windows.src.lengths)[window])
    nats = {}
    for item, row, _ in each_item(_of_masks, loaded, items, tokens_per_batch):
        nats[int(places[item])] = row
    return [
        float(nats[one.place][piece[one.mutant]] - nats[one.place][piece[one.wild]])
        for one in found
    ]


@functools.partial(jax.jit, static_argnums=0)
def _of_masks(model: Model, params: Any, batch: Batch) -> Float[Array, "B V"]:
    """Return the log-probability of each piece at the masked position of each row."""
    output = model.outputs(params, batch, None)["tokens"]
    place = jnp.asarray(batch.targets["tokens"].weight).argmax(1)
    hidden = jnp.take_along_axis(output.hidden, place[:, None, None], axis=1)
    return jax.nn.log_softmax(output._replace(hidden=hidden).logits())[:, 0]

"""Drawing pictures or clips of what texts or classes say, with a diffusion model."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float, UInt
from transformer_jax.base.errors import UserError
from transformer_jax.config import DecodingConfig
from transformer_jax.config.choices.searches import OF_VALUES
from transformer_jax.config.registry import pick
from transformer_jax.data.batches.batch import Batch, Ragged, Side
from transformer_jax.data.batches.batching import fixed_batches
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.codecs.latents import Latents
from transformer_jax.data.codecs.pixels import Pixels
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.search import values
from transformer_jax.models.model import Model

ROWS = 64  # pictures drawn at a time


def draw(loaded: Loaded, said: Sequence[str], decoding: DecodingConfig) -> Iterator[np.ndarray]:
    """Yield `decoding.num_samples` pictures of each text or class, in their order, some at a time:
    bytes [n H W C], or clips [n T H W C], or latents, float32 [n rows columns C]. An empty text
    says nothing: the picture is of anything.

    Picture i is a function of the seed, i and what is said of it.

    Raises:
      UserError: if the model draws nothing, or does not know a class or a word.
    """
    if not loaded.objective.record.diffuses:
        raise loaded.refusal("draws no pictures; train one with objective.name='diffusion'")
    if decoding.search not in OF_VALUES:
        raise UserError(
            f"config.decoding.search={decoding.search!r}: draws no pictures; choose "
            f"{', '.join(map(repr, OF_VALUES))}"
        )
    if decoding.guidance != 1 and loaded.objective.condition_dropout == 0:
        raise UserError(
            f"config.decoding.guidance={decoding.guidance}: the model was trained with "
            "objective.condition_dropout=0 and draws nothing without a text; set it to 1"
        )
    if "" in said and loaded.objective.condition_dropout == 0:
        raise UserError(
            "text '': the model was trained with objective.condition_dropout=0, and always needs "
            "to be told what to draw; give a text"
        )
    codec = loaded.codecs.src
    assert isinstance(codec, Pixels | Latents)
    each = [ids for ids in _encoded(loaded.codecs.tgt, said) for _ in range(decoding.num_samples)]
    length = max(1, max(map(len, each), default=1))
    rows = min(ROWS, max(1, len(each)))
    points = values.points_of(loaded.objective, decoding.sampling_steps)
    for start in range(0, len(each), rows):
        part = each[start : start + rows]
        ids, seg = (np.zeros((rows, length), np.int32) for _ in range(2))
        for row, own in enumerate(part):
            ids[row, : len(own)], seg[row, : len(own)] = own, 1
        pos = np.where(seg > 0, np.arange(length, dtype=np.int32), 0)
        made = _drawn(
            loaded.model, decoding.search, decoding.guidance != 1, codec.form.patches, codec.size,
            loaded.params, Side(ids, pos, seg), jnp.float32(decoding.guidance), points,
            np.uint32(decoding.seed), np.arange(start, start + rows, dtype=np.uint32),
        )  # fmt: skip
        yield codec.values(np.asarray(made)[: len(part)])


def _encoded(codec: Codec, said: Sequence[str]) -> list[list[int]]:
    """Return the pieces of texts; none of an empty one."""
    pieces: list[list[int]] = []
    unknown = codec.special.get("unk")
    for text in said:
        ids = codec.encode([text])[0] if text else []
        if unknown is not None and unknown in ids:
            raise UserError(
                f"text {text!r}: has words that the captions of training never had; use theirs"
            )
        pieces.append([int(i) for i in ids])
    return pieces


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _drawn(
    model: Model, search: str, guided: bool, length: int, channels: int, params: Any, tgt: Side,
    guidance: Float[Array, ""], points: values.Point, seed: Any, numbers: UInt[Array, "B"],
) -> Float[Array, "B S C"]:  # fmt: skip
    """Return the vectors of pictures with these numbers."""
    keys = jax.vmap(lambda n: jax.random.fold_in(jax.random.key(seed), n))(numbers)

    def noise(step: Array) -> Array:
        def one(key: Array) -> Array:
            return jax.random.normal(jax.random.fold_in(key, step), (length, channels))

        return jax.vmap(one)(keys)

    step = pick(values.WORDS, search, "config.decoding.search")
    predict = predictor(model, params, tgt, guidance if guided else None)
    return values.solve(step, predict, noise(jnp.zeros((), jnp.int32)), points, noise)


def predictor(
    model: Model, params: Any, tgt: Side, guidance: Any = None
) -> Callable[[Array, Array], Array]:
    """Return what a model predicts of mixtures [B S C] at a time [], given what is said of each;
    with guidance, p + guidance (q - p), where p is predicted when nothing is said.
    """
    tgt = jax.tree.map(jnp.asarray, tgt)

    def predict(z: Array, time: Array) -> Array:
        said, rows = tgt, z.shape[0]
        if guidance is not None:
            nothing = tgt._replace(seg=jnp.zeros_like(tgt.seg))
            said = jax.tree.map(lambda *x: jnp.concatenate(x), tgt, nothing)
            z = jnp.concatenate([z, z])
        pos = jnp.broadcast_to(jnp.arange(z.shape[1])[None], z.shape[:2])
        src = Side(z, pos, jnp.ones_like(pos))
        when = jnp.broadcast_to(time.astype(z.dtype), z.shape[:1])
        predicted = model.outputs(params, Batch(src, said, {}, when), None)["diffusion"].logits()
        if guidance is None:
            return predicted
        one, other = predicted[:rows], predicted[rows:]
        return other + guidance * (one - other)

    return predict


def losses(loaded: Loaded, pictures: Ragged, said: Sequence[str]) -> Float[np.ndarray, "n"]:
    """Return the loss of each encoded picture, given what is said of it, under the noise, time and
    omissions of validation.
    """
    assert loaded.objective.record.diffuses
    items = loaded.items(pictures, Ragged.from_lists(loaded.codecs.tgt.encode(said)))
    errors = np.zeros(len(said))
    length = int(pictures.lengths.max())
    for shape, placement in fixed_batches(items, [length], ROWS * length, 1):
        batch = loaded.task.examples(items, placement, *shape)
        each = np.asarray(_losses(loaded.model, loaded.params, batch))
        errors[placement.pairs] = each[placement.rows]
    return errors


@functools.partial(jax.jit, static_argnums=0)
def _losses(model: Model, params: Any, batch: Batch) -> Float[Array, "B"]:
    target = batch.targets["diffusion"]
    output = model.outputs(params, batch, None)["diffusion"].logits()
    return jnp.square(output - target.labels).mean((1, 2))

"""Joint search by attention and CTC: prefix scores, and what a search makes of them."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny import random_params

from transformer_jax.base.vocabulary import BOS, EOS, PAD
from transformer_jax.config import (
    DecodingConfig,
    ModelConfig,
    ObjectiveConfig,
    SourceConfig,
    TokenizerConfig,
    TrainingConfig,
)
from transformer_jax.data.batches.batch import Batch, Ragged, Side, one_per_row
from transformer_jax.data.codecs import characters, log_mel
from transformer_jax.data.codecs.codec import encoded
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.objectives import OBJECTIVES
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.decoding.ctc import Prefixes
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.models.build import build
from transformer_jax.models.network import silenced
from transformer_jax.training.step import batch_sums, target_sums

PIECES = 5  # PAD, the blank; BOS and EOS, which no path has; and two more
PLACES = (4, 2, 5)
RNG = np.random.default_rng(0)


def paths_of(length: int = 5) -> jax.Array:
    """Return log-probabilities at each position, of sounds that end before others."""
    logits = jnp.asarray(2 * RNG.normal(size=(len(PLACES), length, PIECES)))
    logits = logits.at[:, :, 1:3].set(-1e9)
    seg = jnp.asarray([[int(s < n) for s in range(length)] for n in PLACES])
    return jax.nn.log_softmax(silenced(logits, seg))


def texts_of(paths: np.ndarray) -> dict[tuple[int, ...], float]:
    """Return the probability of each text, by trying all paths."""
    found: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(paths.shape[1]), repeat=len(paths)):
        text = tuple(piece for piece, _ in itertools.groupby(path) if piece != PAD)
        share = np.exp(sum(paths[s, piece] for s, piece in enumerate(path)))
        found[text] = found.get(text, 0.0) + float(share)
    return found


@pytest.mark.parametrize("text", [(), (3,), (4,), (3, 3), (3, 4), (4, 3, 3), (3, 3, 4)])
def test_prefix_scores_are_sums_over_all_alignments(text):
    """Of repeated pieces too, and of texts that are too long for a sound."""
    with jax.enable_x64(True):
        paths = paths_of()
        prefixes = Prefixes.empty(paths, 2)
        for piece in text:
            prefixes = prefixes.extended(paths, jnp.full((len(PLACES), 2), piece, jnp.int32))
        grown = prefixes.grow(7)
        longer = jnp.pad(paths, ((0, 0), (0, 2), (0, 0)))
        longer = silenced(longer, jnp.pad(jnp.ones(paths.shape[:2], jnp.int32), ((0, 0), (0, 2))))
        found, same = np.asarray(prefixes.next(paths)), np.asarray(grown.next(longer))
        psi = np.asarray(prefixes.psi)
    for number in range(len(PLACES)):
        texts = texts_of(np.asarray(paths)[number])
        begins = sum(p for other, p in texts.items() if other[: len(text)] == text)
        if begins == 0:  # no path is long enough
            assert (psi[number] < -1e8).all()
            continue
        assert np.abs(np.exp(psi[number]) - begins).max() < 1e-10
        for lane in range(2):
            expected = [0.0] * PIECES
            expected[EOS] = texts.get(text, 0.0) / begins
            for piece in (3, 4):
                more = (*text, piece)
                share = sum(p for other, p in texts.items() if other[: len(more)] == more)
                expected[piece] = share / begins
            assert np.abs(np.exp(found[number, lane]) - expected).max() < 1e-10
            assert np.abs(np.exp(same[number, lane]) - expected).max() < 1e-10
            assert np.exp(found[number, lane]).sum() == pytest.approx(1, abs=1e-12)


def model_of(predicts=("tokens", "ctc")):
    """Return a small hybrid model, its tokenizers and parameters."""
    side = SourceConfig("log_mel", sample_rate=8000, n_fft=32, hop_length=16, num_mels=5)
    config = TokenizerConfig(joint=False)
    pair = TokenizerPair(log_mel.train(side, []), characters.train(config, ["ab"], ()))
    small = ModelConfig(
        d_model=8, d_ff=12, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, stem="conv1d",
        tied_embeddings="decoder", residual="pre_norm", dropout_rate=0.0,
    )  # fmt: skip
    model = build(small, *pair.sizes, single=True, predicts=predicts)
    return model, pair, jax.tree.map(lambda x: 2 * x, random_params(model, 3))


FRAMES = (6, 4, 5, 2)  # half as many positions: no text is longer
SOUNDS = [RNG.normal(0, 0.1, 16 * n + 3) for n in FRAMES]


def scores_of(model, pair, params) -> list[dict[tuple[int, ...], tuple[float, float]]]:
    """Return log p of each text that is not longer than any sound, by the decoder and by CTC, for
    each sound.
    """
    most = max(FRAMES)
    texts = [t for n in range(most // 2 + 1) for t in itertools.product((3, 4, 5), repeat=n)]
    ids = np.zeros((len(texts), most // 2 + 1), np.int32)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text) + 1] = (*text, EOS)
    seg = (ids > 0).astype(np.int32)
    pos = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape)
    inputs = np.concatenate([np.full((len(ids), 1), BOS, np.int32), ids[:, :-1]], axis=1) * seg
    labels = np.where(ids == EOS, 0, ids)
    along = np.broadcast_to(np.arange(most, dtype=np.int32), (len(texts), most))
    outputs = jax.jit(lambda p, b: model.outputs(p, b, None))
    found = []
    for frames in pair.src.encode(SOUNDS):
        read = np.pad(frames, ((0, most - len(frames)), (0, 0)))
        read = np.broadcast_to(read, (len(texts), *read.shape))
        real = np.int32(along < len(frames))
        batch = Batch(Side(read, along * real, real), Side(inputs, pos * seg, seg), {})
        said = outputs(params, jax.device_put(batch))
        logs = np.asarray(jax.nn.log_softmax(said["tokens"].logits()))
        said_by = (np.take_along_axis(logs, ids[..., None], 2)[..., 0] * seg).sum(1)
        paths = jax.nn.log_softmax(said["ctc"].logits())
        none = jnp.zeros(paths.shape[:2])
        ctc = optax.ctc_loss(paths, none, labels, np.float32(labels == 0), blank_id=PAD)
        pairs = zip(said_by.tolist(), (-ctc).tolist(), strict=True)
        found.append(dict(zip(texts, pairs, strict=True)))
    return found


def test_the_best_text_is_found_by_both_scores():
    """A beam that keeps all texts finds the one whose weighted mean of log p is greatest, with this
    score, whatever else is in the batch.
    """
    weight = 0.3
    model, pair, params = model_of()
    wide = DecodingConfig(
        beam_size=40, alpha=0.0, ctc_weight=weight, max_length_ratio=0.0, max_extra_length=5,
        tokens_per_batch=4000,
    )  # fmt: skip
    found = Translator(model, pair, wide).translate(params, SOUNDS)
    for scores, item in zip(scores_of(model, pair, params), found, strict=True):
        joint = {t: (1 - weight) * a + weight * b for t, (a, b) in scores.items() if b > -1e4}
        best = max(joint, key=joint.__getitem__)
        assert tuple(item.ids[:-1]) == best
        assert item.score == pytest.approx(joint[best], abs=1e-4)


def test_losses_are_weighted_as_in_the_paper():
    """(1 - w) x cross-entropy + w x CTC, over (1 - w) x the predicted pieces; validation has both,
    a piece.
    """
    model, pair, params = model_of()
    lines = pair.tgt.encode(["ab", "b", "", "a"])
    store = TokenStore(encoded(pair.src, SOUNDS), Ragged.from_lists(lines))
    config = ObjectiveConfig("ctc_attention", ctc_weight=0.2)
    objective = OBJECTIVES["ctc_attention"]
    items = objective.items(store, config)
    batch = objective.examples(items, one_per_row(np.arange(4)), 4, 8, 3)
    batch, plain = jax.tree.map(jnp.asarray, batch), TrainingConfig(label_smoothing=0.0)
    each = jax.jit(lambda p: target_sums(model, plain, p, batch, None))(params)
    outputs = jax.jit(lambda p: model.outputs(p, batch, None))(params)
    paths = np.asarray(jax.nn.log_softmax(outputs["ctc"].logits()), np.float64)
    texts = [tuple(piece for piece in line if piece != EOS) for line in lines]
    length = sum(map(len, texts))
    pairs = zip(paths, texts, strict=True)
    nats = sum(-math.log(texts_of(path)[text]) for path, text in pairs if text)
    mean = each["ctc"].nll / each["ctc"].weight
    assert float(mean) == pytest.approx(nats / length, rel=1e-5)
    assert float(each["tokens"].weight) == length + 4
    total = jax.jit(lambda p: batch_sums(model, plain, p, batch, None))(params)
    expected = float(each["tokens"].nll) + 0.2 / 0.8 * nats
    assert float(total.loss) == pytest.approx(expected, rel=1e-5)
    assert float(total.weight) == length + 4

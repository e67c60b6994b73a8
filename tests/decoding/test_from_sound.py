"""Decoding of sound: searches from vectors, and the best path of CTC."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import random_params

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, PAD
from transformer_jax.config import DecodingConfig, ModelConfig, ObjectiveConfig, SourceConfig
from transformer_jax.config import TokenizerConfig as Pieces
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.data.codecs import characters, log_mel
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.inside import inside
from transformer_jax.decoding.text.transcribe import Transcriber
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.models.build import build

SIDE = SourceConfig("log_mel", sample_rate=8000, n_fft=32, hop_length=16, num_mels=5)
TOKENIZERS = TokenizerPair(log_mel.train(SIDE, []), characters.train(Pieces(), ["abcd"], ()))
WHISPER = ModelConfig(
    d_model=8, d_ff=12, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, stem="conv1d",
    tied_embeddings="decoder", residual="pre_norm", dropout_rate=0.0,
)  # fmt: skip
CTC = ModelConfig(
    architecture="encoder", d_model=8, d_ff=12, num_heads=2, num_encoder_layers=1, stem="conv1d",
    residual="pre_norm", encoder_pattern=("conformer",), conv_kernel=3, dropout_rate=0.0,
    positions="none", relative_positions="xlnet",
)  # fmt: skip
RNG = np.random.default_rng(1)
FRAMES = (20, 31, 1, 40, 150, 33)
SOUNDS = [RNG.normal(0, 0.1, 16 * n + 3) for n in FRAMES]


def model_of(config: ModelConfig, predicts: str, seed: int, scale: float):
    """Return a model and parameters that transcribe different sounds differently."""
    model = build(config, *TOKENIZERS.sizes, single=True, predicts=(predicts,))
    return model, jax.tree.map(lambda x: scale * x, random_params(model, seed))


def padded(frames: int) -> Batch:
    """Return all sounds as one batch, padded to a number of frames."""
    inputs = np.full((len(SOUNDS), frames, 5), 7.0, np.float32)  # padding may hold anything
    pos, seg = (np.zeros((len(SOUNDS), frames), np.int32) for _ in range(2))
    for i, one in enumerate(TOKENIZERS.src.encode(SOUNDS)):
        inputs[i, : len(one)], pos[i, : len(one)], seg[i, : len(one)] = one, range(len(one)), 1
    return Batch(Side(inputs, pos, seg), None, {})


@pytest.mark.thorough
def test_greedy_search_matches_teacher_forcing():
    """For each sound, whatever else is in the batch, even if it moves to another batch shape on the
    way; the memory has half as many positions as there are frames.
    """
    model, params = model_of(WHISPER, "tokens", 2, 8.0)
    greedy = DecodingConfig(
        beam_size=1, max_length_ratio=0.0, max_extra_length=44, tokens_per_batch=400
    )
    found = Translator(model, TOKENIZERS, greedy).translate(params, SOUNDS)
    assert len({item.text for item in found}) == len(SOUNDS)
    room = max(len(item.ids) for item in found)
    ids = np.zeros((len(SOUNDS), room), np.int32)
    for row, item in zip(ids, found, strict=True):
        row[: len(item.ids)] = item.ids
    inputs = np.concatenate([np.full((len(ids), 1), BOS, np.int32), ids[:, :-1]], axis=1)
    pos = np.tile(np.arange(room, dtype=np.int32), (len(ids), 1))
    batch = padded(161)._replace(tgt=Side(inputs, pos, np.ones_like(ids)))
    outputs = jax.jit(lambda p, b: model.outputs(p, b, None)["tokens"].logits())
    logits = np.array(outputs(params, jax.device_put(batch)))
    logits[:, :, [PAD, BOS]] = -np.inf  # which a search never writes
    for row, item in zip(logits.argmax(-1), found, strict=True):
        assert row[: len(item.ids)].tolist() == item.ids


def test_invalid_requests_for_vector_sources_are_rejected():
    model, params = model_of(WHISPER, "tokens", 2, 8.0)
    short = Translator(model, TOKENIZERS, DecodingConfig(), longest=30)
    with pytest.raises(UserError, match="line 2: 31 vectors, more than 30"):
        short.translate(params, SOUNDS)
    with pytest.raises(UserError, match="alignments: needs pieces"):
        short.hypotheses(params, SOUNDS[:1], align=True)
    covers = Translator(model, TOKENIZERS, DecodingConfig(coverage_penalty=0.2))
    with pytest.raises(UserError, match=r"coverage_penalty=0\.2: needs pieces"):
        covers.translate(params, SOUNDS[:1])


def test_the_best_path_merges_repeats_and_drops_blanks():
    """Whatever else is in the batch."""
    model, params = model_of(CTC, "ctc", 1, 2.0)
    transcriber = Transcriber([model], TOKENIZERS, ObjectiveConfig("ctc"))
    found = transcriber.translate(params, [*SOUNDS, SOUNDS[0][:9]])
    outputs = jax.jit(lambda p, b: model.outputs(p, b, None)["ctc"].logits())
    logits = outputs(params, jax.device_put(padded(161)))
    logs = np.asarray(jax.nn.log_softmax(logits))
    for frames, row, item in zip(FRAMES, logs, found, strict=False):
        best, written = row.argmax(-1), []
        assert (best[(frames + 1) // 2 :] == PAD).all()
        for place, piece in enumerate(best):
            if piece != PAD and (place == 0 or best[place - 1] != piece):
                written.append(int(piece))
        assert item.ids == written
        assert item.text == TOKENIZERS.tgt.decode(written)
        assert item.score == pytest.approx(row.max(-1).sum(), abs=1e-3)
    assert found[-1].text == ""  # shorter than a frame
    assert len({item.text for item in found}) == len(SOUNDS) + 1
    short = Transcriber([model], TOKENIZERS, ObjectiveConfig("ctc"), longest=30)
    with pytest.raises(UserError, match="line 8: 31 positions"):
        short.hypotheses(params, SOUNDS, first=7)
    with pytest.raises(UserError, match="n_best=2"):
        Transcriber([model], TOKENIZERS, ObjectiveConfig("ctc"), n_best=2)
    with pytest.raises(UserError, match="joins no ensemble"):
        Transcriber([model, model], TOKENIZERS, ObjectiveConfig("ctc"))


@pytest.mark.thorough
def test_hidden_states_and_attention_of_sound():
    """All parts of a Conformer have half as many positions as there are frames."""
    model, params = model_of(CTC, "ctc", 1, 2.0)
    loaded = Loaded(model, params, TOKENIZERS, ObjectiveConfig("ctc"))
    found = inside(loaded, SOUNDS[1], None)["encoder"]
    assert found.hidden.shape == (2, 16, 8)
    assert found.attention.shape == (1, 2, 16, 16)
    assert len(found.pieces) == 16
    with pytest.raises(UserError, match="give no translation"):
        inside(loaded, SOUNDS[1], "abc")


@pytest.mark.thorough
def test_a_class_token_precedes_the_convolved_positions():
    """Padding changes neither it nor the other positions, which are numbered consecutively."""
    for begun, length in ((False, 7), (True, 8)):
        stem = build(CTC, *TOKENIZERS.sizes).new_stem(begun)
        inputs = RNG.normal(size=(1, length, 5)).astype(np.float32)
        pos, seg = np.arange(length, dtype=np.int32)[None], np.ones((1, length), np.int32)
        variables = stem.init(jax.random.key(0), *map(jnp.asarray, (inputs, pos, seg)))
        alone = stem.apply(variables, *map(jnp.asarray, (inputs, pos, seg)))
        wide = [np.pad(x, ((0, 0), (0, 4), *[(0, 0)] * (x.ndim - 2))) for x in (pos, seg)]
        other = np.concatenate([inputs, np.full((1, 4, 5), 9, np.float32)], axis=1)
        beside = stem.apply(variables, *map(jnp.asarray, (other, *wide)))
        count = stem.length(length)
        assert alone.x.shape[1] == count == alone.pos.shape[1] == begun + 4
        assert alone.pos[0].tolist() == [*range(count)]
        assert beside.seg[0].tolist() == [1] * count + [0] * (beside.seg.shape[1] - count)
        assert np.abs(beside.x[:, :count] - alone.x).max() < 1e-6

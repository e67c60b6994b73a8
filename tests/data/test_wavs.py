"""Audio files, their labels, log-mel frames and SpecAugment; and which input is rejected."""

import dataclasses
import io
import wave
import zipfile
from pathlib import Path

import numpy as np
import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, SourceConfig, TokenizerConfig
from transformer_jax.data import sources
from transformer_jax.data.batches.batch import one_per_row
from transformer_jax.data.batches.batching import BatchSource, BucketPlan
from transformer_jax.data.codecs import log_mel
from transformer_jax.data.codecs.pair import TokenizerPair, train_pair
from transformer_jax.data.codecs.spec_augment import MASKS, masked
from transformer_jax.data.objectives import OBJECTIVES
from transformer_jax.data.random import Draw
from transformer_jax.data.sources.wav_files import open_sound
from transformer_jax.data.store.token_store import TokenStore, open_store

RNG = np.random.default_rng(0)
NAMES = ["0_ann_0.wav", "1_ann_0.wav", "0_bob_0.wav", "2_bob_7.wav"]
SOUNDS = {name: RNG.integers(-999, 999, 100 + 57 * i) for i, name in enumerate(NAMES)}
CONFIG = DataConfig(
    source="wavs", label_pattern=r"(?P<label>\d)_(?P<who>\w+)_\d\.wav",
    label_texts=("0=zero", "1=one", "2=two"),
)  # fmt: skip
SIDE = SourceConfig("log_mel", sample_rate=8000, n_fft=32, hop_length=16, num_mels=5)


def wav(samples, channels: int = 1, width: int = 2, rate: int = 8000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(width)
        out.setframerate(rate)
        out.writeframes(np.asarray(samples, f"<i{width}" if width > 1 else "u1").tobytes())
    return file.getvalue()


@pytest.fixture
def config(tmp_path) -> DataConfig:
    """Write the same files to the folder train and, in another order, to validation.zip."""
    (tmp_path / "train").mkdir()
    for name, samples in SOUNDS.items():
        (tmp_path / "train" / name).write_bytes(wav(samples))
    with zipfile.ZipFile(tmp_path / "validation.zip", "w") as archive:
        for name in reversed(NAMES):
            archive.writestr(f"inner/{name}", wav(SOUNDS[name]))
        archive.writestr("readme.txt", "no sound")
    return dataclasses.replace(CONFIG, directory=str(tmp_path))


def pair_of(corpus) -> TokenizerPair:
    given = TokenizerConfig(joint=False), corpus.src, corpus.tgt, ("log_mel", "characters"), ()
    return train_pair(*given, SIDE)


def test_a_folder_and_an_archive_are_equivalent(config):
    folder, archive = (sources.load(config, split) for split in ("train", "validation"))
    assert folder.tgt == ["zero", "zero", "one", "two"]
    assert archive.tgt == folder.tgt
    for one, other, name in zip(folder.src, archive.src, sorted(NAMES), strict=True):
        assert one.tolist() == other.tolist() == SOUNDS[name].tolist()
        assert (one.name.split("/")[-1], one.rate) == (name, 8000)
    assert folder.fingerprint == archive.fingerprint


def test_parts_are_selected_by_a_group_of_the_file_name(config):
    """A held-out speaker: both parts together have all files, and none is in both."""
    without, alone = (
        sources.load(dataclasses.replace(config, train=(f"train[who:{one}]",)), "train")
        for one in ("!bob", "bob")
    )
    assert (without.tgt, alone.tgt) == (["zero", "one"], ["zero", "two"])
    with pytest.raises(UserError, match="has no group 'where'"):
        sources.load(dataclasses.replace(config, train=("train[where:here]",)), "train")
    nobody = dataclasses.replace(config, train=("train[who:carl]",))
    with pytest.raises(UserError, match="contains no pairs"):
        sources.load(nobody, "train")


def test_labels_from_a_manifest(config):
    """Used if there is no pattern; a label may be the text itself."""
    plain = dataclasses.replace(config, label_pattern="", label_texts=())
    with pytest.raises(UserError, match=r"there is no .*train\.tsv.*label_pattern"):
        sources.load(plain, "train")
    path = Path(f"{config.directory}/train.tsv")
    path.write_text("".join(f"{name}\tsay {i}\n" for i, name in enumerate(NAMES)))
    assert sources.load(plain, "train").tgt == ["say 0", "say 2", "say 1", "say 3"]
    path.write_text("0_ann_0.wav\tzero\n")
    with pytest.raises(UserError, match=r"0_bob_0\.wav: train\.tsv has no line for this"):
        sources.load(plain, "train")
    for line in ("0_ann_0.wav zero\n", "0_ann_0.wav\tzero\n0_ann_0.wav\tone\n"):
        path.write_text(line)
        with pytest.raises(UserError, match=r"train\.tsv:\d: must be"):
            sources.load(plain, "train")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (wav(SOUNDS[NAMES[0]])[:-50], ["is truncated: has 75 of 100 samples", "get it again"]),
        (wav(SOUNDS[NAMES[0]])[:20], ["cannot be read as .wav"]),
        (b"", ["cannot be read as .wav"]),
        (b"no sound at all, but long enough for a header of some kind", ["as .wav"]),
        (wav(SOUNDS[NAMES[0]], channels=2), ["2 channels", "sox 0_ann_0.wav -b 16 -c 1"]),
        (wav(SOUNDS[NAMES[0]], width=4), ["32 bits", "sox"]),
    ],
)
def test_unsuitable_audio_files_are_rejected(content, words, config):
    path = Path(f"{config.directory}/train/0_ann_0.wav")
    path.write_bytes(content)
    for read in (lambda: sources.load(config, "train"), lambda: open_sound(path)):
        with pytest.raises(UserError) as caught:
            read()
        assert all(word in str(caught.value) for word in [str(path), *words]), caught.value


def test_other_invalid_input_is_rejected(config):
    with pytest.raises(UserError, match=r"test: there is neither a folder .*test nor test\.zip"):
        sources.load(config, "test")
    few = dataclasses.replace(config, label_texts=("0=zero",))
    with pytest.raises(UserError, match=r"1_ann_0\.wav: config\.data\.label_texts.* 1=TEXT"):
        sources.load(few, "train")
    Path(f"{config.directory}/train/other.wav").write_bytes(wav([1, 2]))
    with pytest.raises(UserError, match=r"other\.wav: its name does not match.*read train\.tsv$"):
        sources.load(config, "train")
    archive = Path(f"{config.directory}/validation.zip")
    archive.write_bytes(archive.read_bytes()[:-30])
    with pytest.raises(UserError, match=r"validation\.zip: cannot be read as \.zip"):
        sources.load(config, "validation")
    corpus = sources.load(dataclasses.replace(config, train=("train[who:!bob]",),
                          label_pattern=r"(?P<label>\d|other)_?(?P<who>\w*?)(_\d)?\.wav",
                          label_texts=()), "train")  # fmt: skip
    with pytest.raises(UserError, match=r"0_ann_0\.wav: has 8,000 samples.*sox.*16000"):
        log_mel.train(SourceConfig("log_mel"), corpus.src)
    deaf = dataclasses.replace(SIDE, num_mels=40)
    with pytest.raises(UserError, match=r"config\.src\.num_mels=40: \d+ of the bands"):
        log_mel.train(deaf, corpus.src)
    codec = log_mel.train(SIDE, corpus.src)
    for value in ("text", np.zeros((3, 4)), np.zeros(3, np.int64)):
        with pytest.raises(UserError, match="sound 1: "):
            codec.encode([value])
    with pytest.raises(ValueError, match="not the form of a spectrogram"):
        log_mel.LogMel(codec.model[:-5])


def test_frames_by_hand():
    """Frame by frame, by sums over the samples around it; neighbours change nothing."""
    codec, samples = log_mel.train(SIDE, []), RNG.normal(0, 0.1, 100)
    (frames,) = codec.encode([samples])
    assert frames.shape == (100 // 16, 5)
    assert frames.dtype == np.float32
    t = np.arange(32)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * t / 32)
    mirrored = np.concatenate([samples[16:0:-1], samples, samples[-2:-18:-1]])
    logs = []
    for i in range(6):
        part = window * mirrored[16 * i : 16 * i + 32]
        power = [abs((part * np.exp(-2j * np.pi * k * t / 32)).sum()) ** 2 for k in range(17)]
        logs.append(np.log10(power @ log_mel.filters(8000, 32, 5)))
    expected = (np.maximum(logs, np.max(logs) - 8) + 4) / 4
    assert np.abs(frames - expected).max() < 1e-6
    whole = np.round(samples * 2**15).astype(np.int16)
    first, second, third = codec.encode([whole, 3 * whole, whole / 2.0**15])
    assert np.array_equal(first, third)
    assert np.abs(second - first - np.log10(9) / 4).max() < 1e-6  # uniformly, at triple amplitude
    assert [len(x) for x in codec.encode([whole[:15], whole[:16], whole[:1]])] == [0, 1, 0]


def test_frames_and_texts_from_the_store_for_ctc(config, tmp_path):
    """Frames are read back unchanged, with their text without EOS; padding is marked."""
    corpus = sources.load(config, "train")
    pair = pair_of(corpus)
    pair.save(tmp_path)
    loaded = TokenizerPair.load(tmp_path, False, ("log_mel", "characters"))
    assert loaded.digest == pair.digest
    objective = OBJECTIVES["ctc"]
    for tokenizers in (pair, loaded):  # written, read
        frame = objective.frame(None)
        store = open_store(corpus, tokenizers, tmp_path / "cache", frame=frame)
        items = objective.items(store, None)
        assert items.sides(100) == (16, 4)  # no side is longer than its longest sequence
        batch = objective.examples(items, one_per_row(np.arange(4)), 5, 20, 4)
    for i, sound in enumerate(corpus.src):
        (frames,) = pair.src.encode([sound])
        length = len(sound) // 16
        assert np.array_equal(batch.src.inputs[i, :length], frames)
        assert not batch.src.inputs[i, length:].any()
        assert batch.src.seg[i].tolist() == [1] * length + [0] * (20 - length)
        labels, weight = (x[i] for x in batch.targets["ctc"])
        assert pair.tgt.decode(labels[weight > 0]) == corpus.tgt[i]
    assert not batch.tgt.inputs.any()
    short = dataclasses.replace(config, max_length=10, tokens_per_batch=80)
    found = objective.select(items, short)
    assert len(found.pairs) == (np.maximum(*items.lengths) <= 10).sum() < 4


@pytest.mark.parametrize("name", MASKS)
def test_masks_depend_only_on_seed_epoch_and_sound(name):
    """Not on the other sounds; other epochs and seeds mask a sound differently."""
    config = dataclasses.replace(CONFIG, augment=(name, name), **{f"{name}_size": 6})
    lengths, numbers = np.full(60, 20), np.arange(60)
    lengths[::3] = 7
    vectors = RNG.normal(size=(lengths.sum(), 8)).astype(np.float32)
    ends = np.cumsum(lengths)
    found = masked(vectors, lengths, config, numbers, Draw(3, 1))
    assert found.dtype == np.float32
    some = [5, 31, 42]
    parts = [np.s_[ends[i] - lengths[i] : ends[i]] for i in some]
    apart = masked(np.concatenate([vectors[x] for x in parts]), lengths[some], config,
                   numbers[some], Draw(3, 1))  # fmt: skip
    assert np.array_equal(apart, np.concatenate([found[x] for x in parts]))
    for other in (Draw(3, 2), Draw(4, 1)):
        assert not np.array_equal(masked(vectors, lengths, config, numbers, other), found)


def test_a_resumed_run_reads_the_same_batches(config, tmp_path):
    """A batch depends only on its number, including its masks, which differ in the next epoch."""
    config = dataclasses.replace(
        config, augment=("time_mask", "frequency_mask"), max_length=20, tokens_per_batch=160,
        time_mask_size=9, frequency_mask_size=4, num_buckets=1,
    )  # fmt: skip
    corpus, objective = sources.load(config, "train"), OBJECTIVES["ctc"]
    pair = pair_of(corpus)
    store = open_store(corpus, pair, tmp_path / "cache", frame=objective.frame(None))
    read = store.src._replace(read=pair.src.reader(config))
    items = objective.items(TokenStore(read, store.tgt, store.special), None)

    def begun() -> BatchSource:
        return BatchSource(items, BucketPlan(items, np.arange(4), config, 3), objective)

    whole = [begun()[i] for i in range(3)]
    again = begun()
    for number in (2, 1):  # resumed anywhere, in any order
        assert np.array_equal(again[number].src.inputs, whole[number].src.inputs)
        assert np.array_equal(again[number].targets["ctc"].labels, whole[number].targets["ctc"][0])
    sums = {round(float(batch.src.inputs.astype(np.float64).sum()), 3) for batch in whole}
    assert len(sums) == 3  # of the same four sounds


def test_extent_of_time_and_frequency_masks():
    """Contiguous ranges, from none to the maximum size, which become the mean of their sound."""
    lengths, numbers = np.full(400, 20), np.arange(400)
    vectors = RNG.normal(size=(8000, 8)).astype(np.float32)

    def hidden(**fields) -> np.ndarray:
        found = masked(vectors, lengths, dataclasses.replace(CONFIG, **fields), numbers, Draw())
        found, whole = found.reshape(400, 20, 8), vectors.reshape(400, 20, 8)
        where = found != whole
        means = np.broadcast_to(whole.mean((1, 2), dtype=np.float64)[:, None, None], where.shape)
        assert np.abs(found[where] - means[where]).max() < 1e-6
        return where

    bands = hidden(augment=("frequency_mask",), frequency_mask_size=3)
    assert (bands == bands[:, :1]).all()  # the same at all times
    frames = hidden(augment=("time_mask",), time_mask_size=9, time_mask_share=0.25)
    assert (frames == frames[:, :, :1]).all()  # the same in all bands
    for where, most in ((bands[:, 0], 3), (frames[:, :, 0], 5)):  # a quarter of 20
        assert {*where.sum(1)} == {*range(most + 1)}
        assert (np.diff(where, axis=1, prepend=False, append=False).sum(1) <= 2).all()  # contiguous
        assert where.any(0).all()  # at every position

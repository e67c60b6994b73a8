"""Music of several voices: its codec, and malformed lines, rejected with file and line."""

import re

import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import EOS, UNK
from transformer_jax.config import (
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    Experiment,
    ModelConfig,
    ObjectiveConfig,
    SideConfig,
    TokenizerConfig,
)
from transformer_jax.data.codecs.notes import Notes, fault, train
from transformer_jax.experiments.prepare import prepare
from transformer_jax.runs.workdir import WorkDir

CONFIG = TokenizerConfig()
MUSIC = ["60,57 62,-1 127,0", "", "64,55"]


def test_music_round_trips():
    codec = train(CONFIG, MUSIC)
    assert (codec.voices, codec.size) == (2, 4 + 129)
    encoded = codec.encode(MUSIC)
    assert [codec.decode(ids) for ids in encoded] == MUSIC
    assert encoded[2] == [codec.piece_id("64"), codec.piece_id("55"), EOS]
    again = Notes(codec.model)
    assert (again.digest, again.voices, again.encode(MUSIC)) == (codec.digest, 2, encoded)


def test_a_step_that_lacks_voices_is_left_out():
    codec = train(CONFIG, MUSIC)
    (ids,) = codec.encode(["60,57 62,-1"], eos=False)
    assert codec.decode(ids[:3]) == codec.decode([UNK, *ids[:2], EOS, *ids]) == "60,57"


FAULTS = {
    "60,57 62": "step 2, '62', has 1 voices, not 2",
    "60,128": "step 1, '60,128': '128' is neither a MIDI pitch",
    "60,-2": "'-2' is neither",
    "60,": "'' is neither",
    "-0,1": "'-0' is neither",
    "60,5.5": "'5.5' is neither",
    "60,²": "'²' is neither",
}


@pytest.mark.parametrize("text", FAULTS)
def test_faults(text):
    assert FAULTS[text] in fault(text, 2)
    with pytest.raises(UserError, match=re.escape(FAULTS[text])):
        train(CONFIG, MUSIC).encode([text])


@pytest.mark.parametrize("split", ["train", "validation"])
def test_malformed_lines_are_located(tmp_path, split):
    for name in ("train", "validation"):
        lines = ["60,57 62,57", "62" if name == split else "60,60"]
        (tmp_path / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    experiment = Experiment(
        data=DataConfig(
            directory=str(tmp_path), target_language="txt", max_length=8, tokens_per_batch=64
        ),
        model=ModelConfig(architecture="decoder"), tgt=SideConfig("notes"),
        objective=ObjectiveConfig(name="language_model", window=8),
        evaluation=EvaluationConfig(bleu_sentences=0), checkpoint=CheckpointConfig(best_by="loss"),
    )  # fmt: skip
    with pytest.raises(UserError, match=rf"{split}.txt:2: step 1, '62', has 1 voices, not 2"):
        prepare(experiment, WorkDir(tmp_path / "run"))


def test_music_without_notes_is_rejected():
    with pytest.raises(UserError, match="has no notes"):
        train(CONFIG, ["", " "])
    for model in (b"{}", b'{"voices": 0, "special": {}}', b"nothing"):
        with pytest.raises(ValueError, match="voices"):
            Notes(model)

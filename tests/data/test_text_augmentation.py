"""Texts added to those of training: music in other keys, molecules spelled in other ways."""

import pytest

from transformer_jax.config import (
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    Experiment,
    ModelConfig,
    ObjectiveConfig,
    SideConfig,
)
from transformer_jax.data.codecs.pair import expected_sizes
from transformer_jax.data.codecs.text_augmentation import random_smiles, transposed
from transformer_jax.experiments.prepare import describe, prepare
from transformer_jax.runs.workdir import WorkDir

MUSIC = ["60,48 62,-1 64,50", "61,45 61,47", "", "65,50", "60,48 62", "-1,-1"]
REACTIONS = [
    ("CC(=O)Oc1ccccc1C(=O)O", "CC(=O)OC(C)=O.O=C(O)c1ccccc1O"),
    ("not a molecule", "C"),
    ("CCO", "C=C.O"),
    ("CC(=O)Oc1ccccc1C(=O)O", "CC(=O)Cl.O=C(O)c1ccccc1O"),
]


def test_music_in_other_keys_stays_in_the_range_of_its_voices():
    """All keys that do, and none besides; silence stays silent, faulty lines are left alone."""
    config = DataConfig(augment=("transpose",), transpose_range=3)
    added = list(transposed([(text, text) for text in MUSIC], config, 0))
    assert added == [
        [],  # the first voice cannot go down, the second not up
        [(MUSIC[1], "62,46 62,48"), (MUSIC[1], "63,47 63,49"), (MUSIC[1], "64,48 64,50")],
        [],
        [(MUSIC[3], "62,47"), (MUSIC[3], "63,48"), (MUSIC[3], "64,49")],
        [],
        [],
    ]
    assert list(transposed([("", ""), ("", "sixty")], config, 0)) == [[], []]
    config = DataConfig(augment=("transpose",), transpose_range=1)
    assert list(transposed([("", "60,-1 61,7"), ("", "62,9 -1,5")], config, 0)) == [
        [("", "61,-1 62,8")],
        [],
    ]


def test_molecules_are_spelled_in_other_ways():
    """Other texts of the same molecule, always the same ones with a seed; the target stays."""
    chem = pytest.importorskip("rdkit.Chem")
    config = DataConfig(augment=("random_smiles",), smiles_variants=5)
    added = list(random_smiles(REACTIONS, config, 0))
    assert (
        added
        == list(random_smiles(REACTIONS, config, 0))
        != list(random_smiles(REACTIONS, config, 1))
    )
    assert added[1] == []
    assert 2 <= len(added[0]) <= 5
    assert added[0] != added[3]
    for (src, tgt), found in zip(REACTIONS, added, strict=True):
        assert len({src, *(text for text, _ in found)}) == 1 + len(found)
        for text, reactants in found:
            assert chem.CanonSmiles(text) == chem.CanonSmiles(src)
            assert reactants == tgt


def experiment_of(directory, **data) -> Experiment:
    return Experiment(
        data=DataConfig(directory=str(directory), train=("a[1:]", "a[:1]"), validation=("a",),
                        target_language="txt", max_length=16, **data),
        model=ModelConfig(architecture="decoder"), tgt=SideConfig("notes"),
        objective=ObjectiveConfig("language_model", window=16, document="line"),
        checkpoint=CheckpointConfig(best_by="loss"), evaluation=EvaluationConfig(bleu_sentences=0),
    )  # fmt: skip


@pytest.mark.parametrize("parts", [{}, {"weights": ("a[1:]=3", "a[:1]=1")}])
def test_training_has_them_and_validation_has_not(tmp_path, parts):
    """Mixtures weigh them as their parts; a log line counts them."""
    lines = [MUSIC[3], *MUSIC[:2], MUSIC[5]]
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines))
    experiment = experiment_of(tmp_path, augment=("transpose",), transpose_range=3, **parts)
    plain = prepare(experiment_of(tmp_path, **parts), WorkDir(tmp_path / "plain"))
    more = prepare(experiment, WorkDir(tmp_path / "more"))
    assert (len(plain.train), len(more.train)) == (4, 4 + 6)
    assert len(plain.validation_store) == len(more.validation_store) == 4
    assert "transpose: 6 texts beside 4, of which 2 have none" in describe(more)
    assert plain.identity != more.identity
    assert expected_sizes(experiment) == more.tokenizers.sizes

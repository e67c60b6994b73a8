"""Texts added to those of training: music in other keys, molecules spelled in other ways."""

from dataclasses import replace

import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.config import (
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    Experiment,
    ModelConfig,
    ObjectiveConfig,
    SideConfig,
    SourceConfig,
    TokenizerConfig,
)
from transformer_jax.data.codecs.pair import expected_sizes
from transformer_jax.data.codecs.text_augmentation import enlarged, random_smiles, transposed
from transformer_jax.data.sources.corpus import Corpus
from transformer_jax.experiments.prepare import describe, prepare
from transformer_jax.runs.workdir import WorkDir

MUSIC = ["60,48 62,-1 64,50", "61,45 61,47", "", "65,50", "60,48 62", "-1,-1"]
REACTIONS = [
    ("CC(=O)Oc1ccccc1C(=O)O", "CC(=O)OC(C)=O.O=C(O)c1ccccc1O"),
    ("not a molecule", "C"),
    ("CCO", "C=C.O"),
    ("CC(=O)Oc1ccccc1C(=O)O", "CC(=O)Cl.O=C(O)c1ccccc1O"),
]


def experiment_of(directory="", codec="notes", **data) -> Experiment:
    return Experiment(
        data=DataConfig(directory=str(directory), train=("a[1:]", "a[:1]"), validation=("a",),
                        target_language="txt", max_length=16, **data),
        model=ModelConfig(architecture="decoder"), tgt=SideConfig(codec),
        objective=ObjectiveConfig("language_model", window=16, document="line"),
        checkpoint=CheckpointConfig(best_by="loss"), evaluation=EvaluationConfig(bleu_sentences=0),
    )  # fmt: skip


def in_other_keys(texts, most):
    experiment = experiment_of(augment=("transpose",), transpose_range=most)
    found = list(transposed([(text, text) for text in texts], experiment))
    assert all(src == tgt for pairs in found for src, tgt in pairs)
    return [[tgt for _, tgt in pairs] for pairs in found]


def test_music_in_other_keys_stays_in_the_range_of_its_voices():
    """All keys that do, and none besides; silence stays silent, faulty lines are left alone."""
    assert in_other_keys(MUSIC, 3) == [
        [],  # the first voice cannot go down, the second not up
        ["62,46 62,48", "63,47 63,49", "64,48 64,50"],
        [],
        ["62,47", "63,48", "64,49"],
        [],
        [],
    ]
    assert in_other_keys(["60,-1 61,7", "62,9 -1,5"], 1) == [["61,-1 62,8"], []]
    assert in_other_keys(["", "sixty"], 3) == [[], []]


def test_both_sides_of_a_pair_move_together_and_other_texts_stay():
    """By as much as both can; a composer stays who he is."""
    pairs = [("60,48 62,50", "70"), ("61,49", "72")]
    both = Experiment(
        src=SourceConfig("notes"), tgt=SideConfig("notes"),
        tokenizer=TokenizerConfig(joint=False), model=ModelConfig(tied_embeddings="decoder"),
        data=DataConfig(augment=("transpose",), transpose_range=2),
    )  # fmt: skip
    assert list(transposed(pairs, both)) == [[], [("60,48", "71")]]
    one = replace(both, tgt=SideConfig("characters"))
    pairs = [(pairs[0][0], "Bach"), (pairs[1][0], "Bach")]
    assert list(transposed(pairs, one)) == [[], [("60,48", "Bach"), ("62,50", "Bach")]]


def test_molecules_are_spelled_in_other_ways():
    """Other texts of the same molecule, always the same ones with a seed; the target stays."""
    chem = pytest.importorskip("rdkit.Chem")
    experiment = experiment_of(codec="smiles", augment=("random_smiles",), smiles_variants=5)
    added = list(random_smiles(REACTIONS, experiment))
    assert added == list(random_smiles(REACTIONS, experiment))
    assert added != list(random_smiles(REACTIONS, replace(experiment, seed=1)))
    assert added[1] == []
    assert 2 <= len(added[0]) <= 5
    assert added[0] != added[3]
    for (src, tgt), found in zip(REACTIONS, added, strict=True):
        assert len({src, *(text for text, _ in found)}) == 1 + len(found)
        for text, reactants in found:
            assert chem.CanonSmiles(text) == chem.CanonSmiles(src)
            assert reactants == tgt
    alone = {"language_model": Corpus([], [src for src, _ in REACTIONS], "", (4,))}
    (texts,) = enlarged(alone, experiment)[0].values()
    assert len(texts.src) == 0
    assert list(texts.tgt[: 1 + len(added[0])]) == [REACTIONS[0][0], *(x for x, _ in added[0])]


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


@pytest.mark.parametrize(
    ("word", "codec", "text"), [("random_smiles", "smiles", "7\tCO"), ("transpose", "notes", "60")]
)
def test_what_adds_nothing_is_refused(word, codec, text):
    """A class before a molecule is none that RDKit reads; one note covers its voice's range."""
    if word == "random_smiles":
        pytest.importorskip("rdkit")
    experiment = experiment_of(codec=codec, augment=(word,))
    corpora = {"": Corpus([], [text], "", (1,)), "more": Corpus([], [text], "", (1,))}
    message = f"augment={word!r}: adds nothing to any training text, of which the first is"
    with pytest.raises(UserError, match=message):
        enlarged(corpora, experiment)

"""BERT directories: tokenizers with CLS, SEP and MASK, classes, and fine-tuning from one."""

import dataclasses
import functools
import itertools
import json
import re
import shutil

import numpy as np
import pytest
import torch
import transformers as T
from oracle.families import LAYER_NORM
from oracle.test_huggingface_peers import exported, identical, trained
from tiny import RUN
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import transformer_jax.export.huggingface.directory as hf
from transformer_jax.api import load
from transformer_jax.config import (
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    Experiment,
    InitConfig,
    ModelConfig,
    ObjectiveConfig,
    SideConfig,
    SourceConfig,
    TokenizerConfig,
)
from transformer_jax.data.codecs.pair import CODECS
from transformer_jax.data.codecs.values import Values
from transformer_jax.data.sources.questions import Asked
from transformer_jax.decoding.text.tag import tag
from transformer_jax.experiments import train as runs
from transformer_jax.export.huggingface.tensors import in_own_unit
from transformer_jax.runs.workdir import WorkDir

pytestmark = pytest.mark.oracle
WORDS = ["good", "bad", "film", "plot", "a", "the", "is", "was"]
# BERT's special pieces have other ids than ours.
PIECES = ["[PAD]", "unused", *WORDS, "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = ["a good film", "the plot was bad", "good good plot", "bad film is bad"] * 6
LABELS = ["pos", "neg"] * 12


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """Return the directory of a small BERT with random weights and all its heads."""
    directory = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    config = T.BertConfig(**LAYER_NORM | {"vocab_size": len(PIECES), "bos_token_id": None,
                                          "eos_token_id": None})  # fmt: skip
    model = T.BertForPreTraining(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.3)
    model.save_pretrained(directory)
    numbers = {piece: number for number, piece in enumerate(PIECES)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    ends = [("[CLS]", PIECES.index("[CLS]")), ("[SEP]", PIECES.index("[SEP]"))]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ends
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


def test_special_pieces_are_found_and_heads_match_the_architecture(theirs, tmp_path):
    experiment, params, (codec, _) = hf.read(theirs)
    place = PIECES.index
    assert codec.special == {
        "pad": 0, "bos": place("[CLS]"), "eos": place("[SEP]"), "unk": place("[UNK]"),
        "mask": place("[MASK]"),
    }  # fmt: skip
    assert experiment.objective.name == "masked_lm_nsp"
    assert {"pooler", "next_sentence_head", "piece_head"} <= params.keys()
    masked = shutil.copytree(theirs, tmp_path / "masked") / "config.json"
    words = json.loads(masked.read_bytes()) | {"architectures": ["BertForMaskedLM"]}
    masked.write_text(json.dumps(words))
    experiment, params, _ = hf.read(masked.parent)
    assert experiment.objective.name == "masked_lm"
    assert "pooler" not in params
    assert "pooler" in hf.read(masked.parent, heads=True)[1]


def test_fine_tuning_and_export_of_a_classifier(theirs, tmp_path, monkeypatch, capsys):
    """The pooler is loaded; the exported model gives the same classes and probabilities."""
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(runs.process, "use_compilation_cache", lambda: None)
    for part in ("train", "validation"):
        for ending, lines in (("text", TEXTS), ("label", LABELS)):
            (tmp_path / f"{part}.{ending}").write_text("".join(f"{line}\n" for line in lines))
    model = hf.read(theirs)[0].model
    experiment = dataclasses.replace(
        RUN, model=dataclasses.replace(model, dropout_rate=0.0), src=SourceConfig("huggingface"),
        tgt=SideConfig("classes"), objective=ObjectiveConfig("classify", window=16),
        tokenizer=TokenizerConfig(joint=False), init=InitConfig(source=str(theirs)),
        data=DataConfig(directory=str(tmp_path), source_language="text", target_language="label",
                        test=("validation",), max_length=16, tokens_per_batch=128, num_buckets=1),
        checkpoint=CheckpointConfig(every_steps=3, best_by="accuracy"),
    )  # fmt: skip
    assert runs.run_experiment(experiment, WorkDir(tmp_path / "run")) == 0
    printed = capsys.readouterr()
    assert "  taken: pooler (2)\n" in printed.out + printed.err
    assert "  new: class_head (2)\n" in printed.out + printed.err
    mine = load(tmp_path / "run")
    again, info = exported(mine.experiment, mine.params, mine.tokenizers, tmp_path / "out")
    assert not any(info.values()), info
    tokenizer = T.AutoTokenizer.from_pretrained(tmp_path / "out")
    found = T.pipeline("text-classification", model=again, tokenizer=tokenizer, top_k=None)
    for text in TEXTS[:4]:
        scores = {item["label"]: item["score"] for item in found([text])[0]}
        expected = mine.classify(text)
        assert scores.keys() == expected.keys() == {"pos", "neg"}
        np.testing.assert_allclose([scores[c] for c in expected], list(expected.values()),
                                   rtol=1e-5)  # fmt: skip
    back, params, codecs = hf.read(tmp_path / "out")
    assert identical(mine.params, params)
    assert codecs.tgt.pieces(range(2)) == ["neg", "pos"]
    assert back.objective.name == "classify"


MODEL = ModelConfig(
    architecture="encoder", d_model=24, d_ff=40, num_heads=4, num_encoder_layers=1, token_types=2,
    input_norm=True, positions="learned", max_positions=64, activation="gelu",
    embedding_scale=False,
)  # fmt: skip
MASKED = Experiment(
    model=MODEL, tgt=SideConfig("characters"), objective=ObjectiveConfig("masked_lm", window=32),
    data=DataConfig(max_length=64), checkpoint=CheckpointConfig(best_by="loss"),
    evaluation=EvaluationConfig(bleu_sentences=0),
)  # fmt: skip


@pytest.mark.parametrize("kind", ["characters", "wordpiece"])
def test_masked_language_model_round_trip(kind, tmp_path):
    experiment = dataclasses.replace(MASKED, tgt=SideConfig(kind))
    codec = CODECS[kind].train(TokenizerConfig(vocab_size=40), TEXTS, ("<mask>",))
    mine = trained(experiment, None, codec)
    again, info = exported(experiment, mine.params, mine.tokenizers, tmp_path / "out")
    assert not any(info.values()), info
    assert isinstance(again, T.BertForMaskedLM)
    tokenizer = T.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.mask_token_id == codec.special["mask"]
    for text in TEXTS[:4]:
        assert tokenizer(text)["input_ids"] == codec.encode([text], bos=True)[0]
    assert tokenizer(f"a{tokenizer.mask_token}b")["input_ids"][2] == codec.special["mask"]
    _, params, (imported, _) = hf.read(tmp_path / "out")
    assert identical(mine.params, params)
    assert imported.special == codec.special
    assert imported.encode(TEXTS[:4]) == codec.encode(TEXTS[:4])


def following(mine, theirs, read, one, two):
    """Return the probability that the second text follows the first, by each model."""
    found = theirs(**read(one, two)).seq_relationship_logits.softmax(-1)[0, 0]
    return [mine.follows(one, two)], [found.item()]


def of_pairs(mine, theirs, read, one, two):
    """Return the class probabilities of a pair of texts."""
    ours = mine.classify(f"{one}\t{two}")
    found = theirs(**read(one, two)).logits.softmax(-1)[0].tolist()
    return list(ours.values()), [found[theirs.config.label2id[name]] for name in ours]


def of_classes(mine, theirs, read, one, two):
    """Return the class probabilities of the first text."""
    ours, found = mine.classify(one), theirs(**read(one)).logits.softmax(-1)[0].tolist()
    return list(ours.values()), [found[theirs.config.label2id[name]] for name in ours]


def of_values(mine, theirs, read, one, two):
    """Return the number that each predicts for the first text."""
    return [mine.value(one)], [theirs(**read(one)).logits.item()]


def of_words(mine, theirs, read, one, two):
    """Return the most probable labels of words, as ids, and their probabilities."""
    (ours,) = tag(mine.loaded, [one])
    given = read(one)  # the space before a word is its first piece
    first = [given.char_to_token(x.start() - (x.start() > 0)) for x in re.finditer(r"\S+", one)]
    best = theirs(**given).logits.softmax(-1)[0, first].max(-1)
    labels = [theirs.config.label2id[name] for name in ours.labels]
    return [*labels, *ours.probabilities], [*best.indices.tolist(), *best.values.tolist()]


def of_answers(mine, theirs, read, one, two):
    """Return the start and length of the most probable answer of words, and its log-probability."""
    found, given = mine.answer(one, two), read(one, two)
    output, edge = theirs(**given), given.char_to_token(0, 0, 1)
    first, last = (x.log_softmax(-1)[0] for x in (output.start_logits, output.end_logits))
    units = Asked.read(f"{one}\t{two}").units
    choices = {
        (i, j): (first[edge + i - (i > 0)] + last[edge + j - 1]).item()
        for n, (i, _) in enumerate(units)
        for _, j in units[n:]
    }
    best = max(choices, key=choices.__getitem__)
    return [found.begin, len(found.text), found.log_prob], [
        best[0], best[1] - best[0], choices[best]
    ]  # fmt: skip


# Objective -> the codec of labels, the predictions for two texts, and the objective after import.
PREDICTIONS = {
    "masked_lm_nsp": (None, following, "masked_lm_nsp"),
    "classify": ("classes", of_classes, "classify"),
    "classify_pairs": ("classes", of_pairs, "classify"),
    "regress": ("values", of_values, "regress"),
    "tag": ("labels", of_words, "tag"),
    "answer": ("spans", of_answers, "answer"),
}
NUMBERS = ["1999", "2001", "2010"]
LONG = " ".join(TEXTS[:6])
# Texts that these objectives truncate, keeping EOS.
CUT = {name: [(LONG, LONG), (LONG, LONG[:50]), (LONG[:50], LONG), ("a film", LONG)]
       for name in ("classify", "classify_pairs", "regress")}  # fmt: skip


@pytest.mark.parametrize("name", PREDICTIONS)
def test_exported_models_give_the_same_predictions(name, tmp_path):
    """Their tokenizer reads the texts; importing restores parameters and labels."""
    kind, predictions, back_as = PREDICTIONS[name]
    apart = {
        "src": SourceConfig("characters"), "tgt": SideConfig(kind),
        "tokenizer": TokenizerConfig(joint=False),
    }  # fmt: skip
    experiment = dataclasses.replace(
        MASKED, objective=ObjectiveConfig(name, window=48), **apart if kind else {}
    )
    codec = CODECS["characters"].train(TokenizerConfig(), TEXTS, experiment.objective.symbols)
    given = NUMBERS if kind == "values" else LABELS
    labels = CODECS[kind].train(TokenizerConfig(), given) if kind else None
    mine = trained(experiment, None, codec, labels)
    theirs, info = exported(experiment, mine.params, mine.tokenizers, tmp_path / "out")
    assert not any(info.values()), info
    tokenizer = T.AutoTokenizer.from_pretrained(tmp_path / "out")
    read = functools.partial(tokenizer, return_tensors="pt", truncation=True)
    for one, two in (*itertools.pairwise(TEXTS[:4]), *CUT.get(name, ())):
        with torch.no_grad():
            ours, other = predictions(mine, theirs, read, one, two)
        np.testing.assert_allclose(ours, other, rtol=1e-4)  # both in float32
    back, params, codecs = hf.read(tmp_path / "out")
    assert back.objective.name == back_as
    assert identical(in_own_unit(mine.params, labels), params)
    if labels is not None:
        assert codecs.tgt.model == (Values.of() if kind == "values" else labels).model

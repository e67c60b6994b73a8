"""BERT's directories: tokenizers with CLS, SEP and MASK, classes, and fine-tuning from one."""

import dataclasses

import numpy as np
import pytest
import torch
import transformers as T
from oracle.test_huggingface_peers import LAYER_NORM, exported, identical, trained
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
from transformer_jax.experiments import train as runs
from transformer_jax.workdir import WorkDir

pytestmark = pytest.mark.oracle
WORDS = ["good", "bad", "film", "plot", "a", "the", "is", "was"]
# BERT's special pieces are not where ours are.
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


def test_special_pieces_are_found(theirs):
    experiment, params, (codec, _) = hf.read(theirs)
    place = PIECES.index
    assert codec.special == {
        "pad": 0, "bos": place("[CLS]"), "eos": place("[SEP]"), "unk": place("[UNK]"),
        "mask": place("[MASK]"),
    }  # fmt: skip
    assert experiment.objective.name == "masked_lm"
    assert "pooler" not in params
    assert "pooler" in hf.read(theirs, heads=True)[1]


def test_fine_tuning_begins_with_it_and_classes_go_back(theirs, tmp_path, monkeypatch, capsys):
    """Its pooler too; classes and their probabilities are those of the model that is exported."""
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


def test_ours_of_masked_pieces_is_theirs(tmp_path):
    experiment = Experiment(
        model=ModelConfig(
            architecture="encoder", d_model=24, d_ff=40, num_heads=4, num_encoder_layers=1,
            token_types=2, input_norm=True, positions="learned", max_positions=64,
            activation="gelu", embedding_scale=False,
        ),
        tgt=SideConfig("characters"), objective=ObjectiveConfig("masked_lm", window=32),
        data=DataConfig(max_length=32), checkpoint=CheckpointConfig(best_by="loss"),
        evaluation=EvaluationConfig(bleu_sentences=0),
    )  # fmt: skip
    codec = CODECS["characters"].train(TokenizerConfig(), TEXTS, ("<mask>",))
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

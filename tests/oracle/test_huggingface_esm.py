"""ESM-2 directories as they are published: residues with masks and padding, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers as T
from oracle.decoders import widen
from oracle.families import ESM, in_float64, peer
from oracle.test_huggingface_peers import exported, trained
from transformers.models.esm.configuration_esm import get_default_vocab_list

import transformer_jax.export.huggingface.directory as hf
from transformer_jax.base.errors import UserError
from transformer_jax.config import (
    CheckpointConfig,
    EvaluationConfig,
    Experiment,
    ModelConfig,
    ObjectiveConfig,
    SideConfig,
    TokenizerConfig,
)
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.data.codecs.pair import CODECS
from transformer_jax.models.build import build

pytestmark = pytest.mark.oracle
REAL = {"vocab_size": 33, "mask_token_id": 32, "pad_token_id": 1, "bos_token_id": None,
        "eos_token_id": None, "rope_theta": 10_000.0}  # fmt: skip
TEXTS = ["MKT<mask>ALGWYV", "ACD", "<mask><mask>L", "X.B-UZO"]
ODD = ["M K  T", "mkt", "AJJC*D", "", "  ", "AC<eos>D <cls>", "A\nC\tD", "<null_1>AC<nul", "Mé漢"]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """Return a directory with the files of facebook/esm2_*, and random weights."""
    directory = tmp_path_factory.mktemp("esm")
    (directory / "vocab.txt").write_text("\n".join(get_default_vocab_list()))
    T.EsmTokenizer(directory / "vocab.txt").save_pretrained(directory)
    peer("esm", REAL).save_pretrained(directory)
    names = {path.name for path in directory.iterdir()}
    assert {"vocab.txt", "config.json", "model.safetensors"} <= names
    assert "tokenizer.json" not in names
    return directory


def test_ids_are_those_of_their_tokenizer(theirs):
    """Around a text as well; what stands between residues is one unknown piece."""
    _, _, codecs = hf.read(theirs)
    tokenizer = T.AutoTokenizer.from_pretrained(theirs)
    assert isinstance(tokenizer, T.EsmTokenizer)
    codec = codecs.src
    for text in (*TEXTS, *ODD):
        (ids,) = codec.encode([text], bos=True)
        assert ids == tokenizer(text)["input_ids"], text
    assert codec.special == {"pad": 1, "bos": 0, "eos": 2, "unk": 3, "mask": 32}
    assert codec.decode(codec.encode([TEXTS[3]])[0]) == TEXTS[3]


def test_logits_with_masks_and_padding_are_theirs(theirs, monkeypatch):
    """Rows of their own, and all in one row, where each has its own share of masks."""
    widen(monkeypatch)
    experiment, params, _ = hf.read(theirs)
    model = in_float64(T.EsmForMaskedLM.from_pretrained(theirs).eval())
    read = T.AutoTokenizer.from_pretrained(theirs)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model(**read).logits.numpy()
    ids, seg = (read[name].numpy().astype(np.int32) for name in ("input_ids", "attention_mask"))
    pos = np.arange(ids.shape[1], dtype=np.int32) * seg
    number = seg * np.arange(1, len(seg) + 1, dtype=np.int32)[:, None]
    packed = Side(*(x[seg > 0][None] for x in (ids, pos, number)))
    with jax.enable_x64(True):
        mine = build(experiment.model, 33, 33, dtype="float64")
        wide = jax.tree.map(np.float64, params)
        for side in (Side(ids, pos, seg), packed):
            arrays = jax.tree.map(jnp.asarray, Batch(side, None, {}))
            found = mine.outputs(wide, arrays, None)["tokens"].logits()
            found = np.asarray(found)[side.seg > 0]
            error = np.abs(found - expected[seg > 0]).max() / np.abs(expected).max()
            assert error < 1e-12


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"position_embedding_type": "absolute"}, "position_embedding_type='absolute': only 'rot"),
        ({"is_folding_model": True}, "is_folding_model=True: only False"),
    ],
)
def test_other_models_of_the_family_are_refused_by_name(tmp_path, words, message):
    T.EsmForMaskedLM(T.EsmConfig(**ESM)).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = hf._words(path) | words
    path.write_text(hf._json(config))
    with pytest.raises(UserError, match=message):
        hf.read(tmp_path)


def test_a_model_of_ours_gives_the_same_logits_there(tmp_path):
    """Of residues, with our ids; their tokenizer reads a sequence, also a soft-masked one."""
    codec = CODECS["residues"].train(TokenizerConfig(), [], ("<mask>",))
    experiment = Experiment(
        model=ModelConfig(
            architecture="encoder", d_model=24, d_ff=40, num_heads=4, num_encoder_layers=1,
            residual="pre_norm", activation="gelu", positions="none", relative_positions="rope",
            norm_epsilon=1e-5, embedding_scale=False, token_dropout=codec.special["mask"],
        ),
        tgt=SideConfig("residues"), objective=ObjectiveConfig("masked_lm", window=32),
        checkpoint=CheckpointConfig(best_by="loss"),
        evaluation=EvaluationConfig(bleu_sentences=0),
    )  # fmt: skip
    mine = trained(experiment, None, codec)
    theirs, info = exported(experiment, mine.params, mine.tokenizers, tmp_path / "out")
    assert not any(info.values()), info
    tokenizer = T.AutoTokenizer.from_pretrained(tmp_path / "out")
    text = "MKTa<mask>gV"
    read = tokenizer(text, return_tensors="pt")
    assert "token_type_ids" not in read
    mask = codec.special["mask"]
    ours = [*codec.encode(["MKTA"], bos=True, eos=False)[0], mask, *codec.encode(["GV"])[0]]
    assert read["input_ids"][0].tolist() == ours
    ids = np.asarray([ours], np.int32)
    side = Side(ids, np.arange(len(ours), dtype=np.int32)[None], np.ones_like(ids))
    with torch.no_grad():
        expected = theirs.eval()(**read).logits.numpy()
    arrays = jax.tree.map(jnp.asarray, Batch(side, None, {}))
    found = mine.model.outputs(mine.params, arrays, None)["tokens"].logits()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)  # both in float32
    assert hf.read(tmp_path / "out")[0].model == experiment.model

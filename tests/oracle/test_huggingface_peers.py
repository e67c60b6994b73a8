"""Directories of `transformers`: import, export, and round trips that are exact to the bit."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers as T
from flax.traverse_util import flatten_dict
from oracle.compare import RELATIVE, assert_close
from oracle.decoders import widen
from oracle.families import PEERS, example, ours, peer, theirs, written
from tiny import random_params

import transformer_jax.export.huggingface.directory as hf
from transformer_jax.api.trained import TrainedModel
from transformer_jax.config import (
    CheckpointConfig,
    DataConfig,
    DecodingConfig,
    EvaluationConfig,
    Experiment,
    ModelConfig,
    ObjectiveConfig,
    SideConfig,
    SourceConfig,
    TokenizerConfig,
)
from transformer_jax.data.codecs.pair import CODECS, TokenizerPair
from transformer_jax.export.huggingface import settings, tensors
from transformer_jax.export.huggingface.family import LOGITS_BIAS
from transformer_jax.models.build import build_for
from transformer_jax.nn.roles import roles_in
from transformer_jax.training.moved import without_reports

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("name", PEERS)
def test_imported_models_agree_and_round_trip(name, tmp_path, monkeypatch):
    """Logits, loss and gradients in float64; re-exported tensors, config and logits to the bit."""
    widen(monkeypatch)
    model = peer(name)
    experiment, params, codecs = hf.read(written(model, tmp_path / "theirs"))
    predicts = settings.predicted(experiment)
    batch = example(experiment.model, predicts)
    family = hf.family_of(experiment.model, predicts, model.config.model_type)
    found = theirs(model, batch)
    same(family, ours(experiment.model, params, batch), found)
    again, info = exported(experiment, params, codecs, tmp_path / "again", model.config.model_type)
    assert not any(info.values()), info
    for key, tensor in model.state_dict().items():
        pair = (x.to(torch.float32) for x in (tensor, again.state_dict()[key]))
        assert torch.equal(*pair), key  # as in a file: widened, ESM's frequencies are not
    before, after = (
        {k: v for k, v in m.config.to_dict().items() if k in PEERS[name][1]} for m in (model, again)
    )
    assert before == after
    assert all(np.array_equal(x, found[0][n]) for n, x in theirs(again, batch)[0].items())
    read, back, _ = hf.read(tmp_path / "again")
    assert read.model == experiment.model
    assert identical(params, back)


def same(family, mine, other) -> None:
    """Compare logits, loss, and gradients by their names."""
    near = 1e-8 if family.model_type == "bloom" else RELATIVE  # whose GELU has eight digits
    for name, logits in other[0].items():
        assert_close(name, mine[0][name], logits, near)
    assert_close("loss", mine[1], other[1], near)
    gradients = dict(mine[2])
    if "src_embedding" in gradients:  # theirs is one table
        both = jax.tree.map(np.add, gradients["src_embedding"], gradients["tgt_embedding"])
        gradients |= {"src_embedding": both, "tgt_embedding": both}
    gradients = tensors.to_tensors(family, without_reports(gradients, roles_in(gradients)))
    gradients.pop(LOGITS_BIAS, None)  # which is no parameter there
    head = family.modules.get("output", "lm_head")  # in files; in GPT-NeoX's class it is lm_head
    theirs = {name.replace("lm_head", head): array for name, array in other[2].items()}
    assert gradients.keys() == theirs.keys()
    for name, expected in theirs.items():
        if np.abs(expected).max() < 1e-14:
            # It adds one number to all logits of a softmax: its gradient is zero up to rounding.
            assert np.abs(gradients[name]).max() < 1e-14, name
        else:
            assert_close(f"gradient of {name}", gradients[name], expected, near)


def exported(experiment, params, codecs, directory, kind=None):
    """Return their model, loaded from our export, and its missing, unexpected or wrong tensors."""
    family = hf.export(experiment, params, codecs, directory, kind)
    return getattr(T, hf.auto_class(family)).from_pretrained(directory, output_loading_info=True)


def identical(one, other) -> bool:
    one, other = flatten_dict(one), flatten_dict(other)
    return one.keys() == other.keys() and all(
        np.array_equal(np.asarray(one[key]), np.asarray(other[key])) for key in one
    )


def trained(experiment: Experiment, params, codec, labels=None) -> TrainedModel:
    codecs = TokenizerPair(codec, labels or codec)
    model = build_for(experiment, *codecs.sizes)
    if params is None:
        params = random_params(model)
    params = jax.tree.map(jnp.asarray, params)
    return TrainedModel(experiment, model, params, codecs, [0])


LINES = [
    "ein Hund sitzt da",
    "zwei Hunde laufen über das Feld",
    "a dog sits",
    "two dogs run",
    "ab cd",
] * 5
TRANSLATION = Experiment(
    model=ModelConfig(
        d_model=24, d_ff=40, num_heads=4, num_encoder_layers=1, num_decoder_layers=2,
        norm_epsilon=1e-5,
    ),
    tokenizer=TokenizerConfig(vocab_size=33),
    decoding=DecodingConfig(
        beam_size=3, length_penalty="power", alpha=0.8, stop="width", max_length_ratio=0.0,
        max_extra_length=12, forbidden=("<unk>",),  # which theirs omits from the text
    ),
)  # fmt: skip
WRITER = dataclasses.replace(
    TRANSLATION,
    model=ModelConfig(
        architecture="decoder", d_model=24, d_ff=40, num_heads=4, num_decoder_layers=2,
        residual="pre_norm", positions="learned", max_positions=64, activation="gelu_tanh",
        embedding_scale=False, norm_epsilon=1e-5,
    ),
    tgt=SideConfig("characters"), src=SourceConfig(), tokenizer=TokenizerConfig(),
    objective=ObjectiveConfig(name="language_model", window=32),
    data=DataConfig(max_length=32), checkpoint=CheckpointConfig(best_by="loss"),
    evaluation=EvaluationConfig(bleu_sentences=0),
)  # fmt: skip
# For a T5 with fewer layers in its encoder than in its decoder, theirs makes too small a cache.
CORRUPTED = dataclasses.replace(
    WRITER,
    model=ModelConfig(
        d_model=24, d_ff=40, num_heads=4, head_dim=6, num_encoder_layers=2, num_decoder_layers=2,
        residual="pre_norm", norm="rms_norm", norm_epsilon=1e-5, positions="none",
        relative_positions="t5", biases=(), score_scale="none", embedding_scale=False,
        logits_scale=True,
    ),
    tgt=SideConfig(), tokenizer=TokenizerConfig(vocab_size=34),
    objective=ObjectiveConfig("span_corruption", window=32, sentinels=3),
)  # fmt: skip
OURS = {
    "marian": TRANSLATION,
    "pegasus": dataclasses.replace(
        TRANSLATION, model=dataclasses.replace(TRANSLATION.model, residual="pre_norm")
    ),
    "gpt2": WRITER,
    "llama": dataclasses.replace(
        WRITER,
        model=dataclasses.replace(
            WRITER.model, norm="rms_norm", num_kv_heads=2, head_dim=6, positions="none",
            relative_positions="rope", activation="swiglu", biases=(), logits_scale=False,
            tied_embeddings="none",
        ),
        tgt=SideConfig(), tokenizer=TokenizerConfig(vocab_size=33, algorithm="bpe"),
        objective=ObjectiveConfig(name="language_model", window=32, document="joined"),
    ),
    "gemma2": dataclasses.replace(
        WRITER,
        model=dataclasses.replace(
            WRITER.model, norm="zero_centered_rms_norm", residual="sandwich", num_kv_heads=2,
            head_dim=6, positions="none", relative_positions="rope", activation="geglu_tanh",
            biases=(), embedding_scale=True, decoder_pattern=("local", "full"), window=5,
            attention_softcap=5.0, logits_softcap=8.0,
        ),
    ),
    "mamba": dataclasses.replace(
        WRITER,
        model=ModelConfig(
            architecture="decoder", d_model=24, num_heads=1, num_decoder_layers=2,
            residual="pre_norm", norm="rms_norm", norm_epsilon=1e-5, positions="none", biases=(),
            decoder_pattern=("mamba",), feed_forward_pattern=("none",), state_size=6,
            embedding_scale=False,
        ),
    ),
    "t5": CORRUPTED,
    "bart": dataclasses.replace(
        CORRUPTED,
        model=dataclasses.replace(
            TRANSLATION.model, positions="learned", max_positions=64, input_norm=True,
            activation="gelu", embedding_scale=False,
        ),
        objective=ObjectiveConfig("denoising", window=32),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OURS)
def test_exported_models_agree_and_round_trip(name, tmp_path):
    """Parameters bit for bit, ids, and the texts of greedy and of beam search."""
    experiment = OURS[name]
    settings = dataclasses.replace(
        experiment.tokenizer, algorithm="bpe" if name in ("marian", "llama") else "unigram"
    )
    symbols = experiment.objective.symbols
    codec = CODECS[experiment.tgt.codec].train(settings, LINES, symbols)
    mine = trained(experiment, None, codec)
    theirs, info = exported(experiment, mine.params, mine.tokenizers, tmp_path / "out")
    assert not any(info.values()), info
    assert theirs.config.model_type == name
    back, params, (imported, _) = hf.read(tmp_path / "out")
    assert identical(mine.params, params)
    fields = dataclasses.asdict(back.model) | {"dropout_rate": 0.1}
    same = {k: v for k, v in dataclasses.asdict(experiment.model).items() if fields[k] != v}
    assert not same
    ids = codec.encode(LINES)
    assert imported.encode(LINES) == ids
    tokenizer = T.AutoTokenizer.from_pretrained(tmp_path / "out")
    for symbol in symbols:  # which the objective inserts between pieces, verbatim
        (before,), (behind,) = codec.encode(["ein"], eos=False), codec.encode(["sitzt da"])
        expected = [*before, codec.piece_id(symbol), *behind]
        assert tokenizer(f"ein {symbol} sitzt da")["input_ids"] == expected
        assert symbol in tokenizer.all_special_tokens
        for prompt in ("ein {} sitzt da", "{} sitzt", "ein{}tzt da {}", "ein {}", "{}  tzt"):
            prompt = prompt.replace("{}", symbol)
            assert tokenizer(prompt)["input_ids"] == mine.generator().reader.read(prompt)[:-1]
    assert tokenizer.padding_side == ("right" if theirs.config.is_encoder_decoder else "left")
    again = trained(back, params, imported)
    batch = tokenizer(LINES[:5], padding=True, return_tensors="pt", return_token_type_ids=False)
    found = theirs.generate(**batch, num_beams=1, max_new_tokens=12)
    together = tokenizer.batch_decode(found, skip_special_tokens=True)
    assert together == [written_by(mine, line, 1) for line in LINES[:5]]
    for beam in (1, 3):
        for line in LINES[:5]:
            given = tokenizer(line, return_tensors="pt")
            with torch.no_grad():
                (found,) = theirs.generate(given["input_ids"], num_beams=beam, max_new_tokens=12)
            text = tokenizer.decode(found, skip_special_tokens=True)
            for model in (mine, again):
                assert written_by(model, line, beam, experiment.decoding) == text, (beam, line)


def written_by(model: TrainedModel, line: str, beam: int, decoding: DecodingConfig | None = None):
    decoding = decoding or model.experiment.decoding
    if model.experiment.objective.one_sided:
        return model.generate(line, 12, decoding, beam_size=beam)
    return model.translate(line, decoding, beam_size=beam)


def test_an_exported_text_ends_where_positions_do(tmp_path):
    """A prompt has positions, too."""
    unending = dataclasses.replace(
        WRITER, decoding=DecodingConfig(beam_size=1, forbidden=("</s>",))
    )
    codec = CODECS["characters"].train(unending.tokenizer, LINES, ())
    mine = trained(unending, None, codec)
    theirs, _ = exported(unending, mine.params, mine.tokenizers, tmp_path / "out")
    assert theirs.generate(torch.tensor([[1, 5, 6]])).shape == (1, 64)


def test_the_search_is_that_of_the_file_that_generate_reads(tmp_path):
    """config.json has one only where there is no generation_config.json."""
    written(peer("bart"), tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_beams": 4}))
    for beams in (1, 4):
        theirs = T.AutoModelForSeq2SeqLM.from_pretrained(tmp_path).generation_config.num_beams
        assert (theirs or 1) == hf.read(tmp_path)[0].decoding.beam_size == beams
        (tmp_path / "generation_config.json").unlink(missing_ok=True)

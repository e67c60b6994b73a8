"""Directories of `transformers`: theirs as ours, ours as theirs, there and back bit for bit."""

import copy
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from flax.traverse_util import flatten_dict
from oracle.decoders import widen
from oracle.peers import paper_positions
from tiny import random_params
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import transformer_jax.export.huggingface.directory as hf
from transformer_jax.api import load
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
from transformer_jax.data.batch import Batch, Side
from transformer_jax.data.codecs.pair import CODECS, TokenizerPair
from transformer_jax.export.huggingface.workdir import import_into
from transformer_jax.models.build import build, build_for

pytestmark = pytest.mark.oracle
VOCAB, IDS = 41, {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES = {
    "vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 40, "num_key_value_heads": 2, "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5, **IDS,
}  # fmt: skip
SEQ2SEQ = {
    "vocab_size": VOCAB, "d_model": 24, "encoder_layers": 2, "decoder_layers": 1,
    "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "max_position_embeddings": 32, "activation_function": "relu",
    "decoder_start_token_id": 1, "forced_eos_token_id": None, **IDS,
}  # fmt: skip
T5 = {
    "vocab_size": VOCAB, "d_model": 24, "d_kv": 8, "d_ff": 40, "num_layers": 2,
    "num_decoder_layers": 1, "num_heads": 4, "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12, "decoder_start_token_id": 0, "pad_token_id": 0,
    "eos_token_id": 1,
}  # fmt: skip
LAYER_NORM = {
    "vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 40, "max_position_embeddings": 32, **IDS,
}  # fmt: skip
T = transformers
PEERS = {
    "gpt2": (T.GPT2Config, {"vocab_size": VOCAB, "n_embd": 24, "n_layer": 2, "n_head": 4,
                            "n_positions": 32, "bos_token_id": 1, "eos_token_id": 1}),
    "gpt2, untied": (T.GPT2Config, {"vocab_size": VOCAB, "n_embd": 24, "n_layer": 1, "n_head": 4,
                                    "n_positions": 32, "n_inner": 40, "bos_token_id": 1,
                                    "eos_token_id": 2, "tie_word_embeddings": False,
                                    "activation_function": "relu"}),
    "llama": (T.LlamaConfig, SIZES),
    "llama, tied, biases": (T.LlamaConfig, SIZES | {
        "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 50.0}, "head_dim": 8}),
    "mistral": (T.MistralConfig, SIZES | {
        "head_dim": 10, "sliding_window": None, "num_attention_heads": 5,
        "num_key_value_heads": 1}),
    "qwen2": (T.Qwen2Config, SIZES),
    "qwen3": (T.Qwen3Config, SIZES | {"head_dim": 8, "tie_word_embeddings": True}),
    "marian": (T.MarianConfig, SEQ2SEQ | {"scale_embedding": True}),
    "pegasus": (T.PegasusConfig, SEQ2SEQ),
    "bart": (T.BartConfig, SEQ2SEQ),
    "mbart": (T.MBartConfig, SEQ2SEQ | {"scale_embedding": True, "activation_function": "gelu"}),
    "olmo2": (T.Olmo2Config, SIZES),
    "opt": (T.OPTConfig, {
        k: v for k, v in LAYER_NORM.items() if k != "intermediate_size"} | {"ffn_dim": 40}),
    "gpt_neox": (T.GPTNeoXConfig, LAYER_NORM | {
        "use_parallel_residual": False, "rope_parameters": {
            "rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.67}}),
    "bloom": (T.BloomConfig, {"vocab_size": VOCAB, "hidden_size": 24, "n_layer": 2, "n_head": 4,
                              **IDS}),
    "stablelm": (T.StableLmConfig, LAYER_NORM | {"num_key_value_heads": 2,
        "use_qkv_bias": True, "layer_norm_eps": 1e-5, "rope_parameters": {
            "rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.67}}),
    "starcoder2": (T.Starcoder2Config, LAYER_NORM | {
        "num_key_value_heads": 2, "norm_epsilon": 1e-5, "sliding_window": None}),
    "bert": (T.BertConfig, LAYER_NORM | {"architectures": ["BertForMaskedLM"]}),
    "bert, classes": (T.BertConfig, LAYER_NORM | {
        "architectures": ["BertForSequenceClassification"], "hidden_act": "relu",
        "id2label": {0: "pos", 1: "neg", 2: "none"}, "label2id": {"pos": 0, "neg": 1, "none": 2}}),
    "t5": (T.T5Config, T5),
    "t5, gated": (T.T5Config, T5 | {
        "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
}  # fmt: skip


def peer(name: str, more: dict | None = None) -> transformers.PreTrainedModel:
    """Return a model with random weights, biases and scales too."""
    kind, settings = PEERS[name]
    config = kind(**settings | (more or {}))
    torch.manual_seed(0)
    model = auto(config).from_config(config).eval()
    if name == "t5, gated":
        model.lm_head.weight = torch.nn.Parameter(torch.randn(VOCAB, 24))
    for key, parameter in model.named_parameters():
        if "embed_positions" not in key or config.model_type in OFFSET:
            scale = "weight" in key and ("norm" in key.lower() or "ln_" in key)
            torch.nn.init.normal_(parameter, 1.0 if scale else 0.0, 0.3)
        if "embed_positions" in key and config.model_type in OFFSET:
            parameter.data[:2] = 0  # which nobody reads
    return model


OFFSET = ("bart", "mbart", "opt")


def auto(config):
    """Return the class of their classes that finds the model by itself."""
    if config.model_type == "bert":
        (name,) = config.architectures
        classes = name.endswith("Classification")
        return T.AutoModelForSequenceClassification if classes else T.AutoModelForMaskedLM
    return T.AutoModelForSeq2SeqLM if config.is_encoder_decoder else T.AutoModelForCausalLM


def written(model, directory, **options):
    """Save a model with a tokenizer of as many pieces."""
    model.save_pretrained(directory, **options)
    pieces = {piece: i for i, piece in enumerate(["<pad>", "<s>", "</s>", "<unk>"])}
    pieces |= {f"w{i}": i for i in range(4, VOCAB)}
    Tokenizer(models.WordLevel(pieces, unk_token="<unk>")).save(str(directory / "tokenizer.json"))
    return directory


def example(config: ModelConfig) -> Batch:
    rng = np.random.default_rng(0)

    def side(length: int) -> Side:
        ids = rng.integers(4, VOCAB, (2, length)).astype(np.int32)
        places = np.broadcast_to(np.arange(length, dtype=np.int32), ids.shape)
        return Side(ids, places, np.ones_like(ids), places)

    encodes, asks = config.architecture != "decoder", config.architecture == "encoder"
    return Batch(side(9) if encodes else None, side(1 if asks else 7), {})


def our_logits(experiment: Experiment, params, batch: Batch) -> np.ndarray:
    """Return logits in float64."""
    with jax.enable_x64(True):
        predicts = "class" if "class_head" in params else "tokens"
        classes = len(params["class_head"]["bias"]) if predicts == "class" else VOCAB
        sizes = VOCAB, classes
        model = build(experiment.model, *sizes, dtype="float64", predicts=(predicts,))
        wide = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), params)
        batch = jax.tree.map(jnp.asarray, batch)
        return np.asarray(model.outputs(wide, batch, None)[predicts].logits())


def in_float64(model):
    """Return a copy of a model of theirs that computes in float64, if `widen` came before it."""
    wide = copy.deepcopy(model).double()
    for name, module in wide.named_modules():
        if (
            name.endswith("embed_positions") and model.config.model_type not in OFFSET
        ):  # whose sinusoids are rounded to float32
            table = paper_positions(*module.weight.shape)
            module.weight.data = torch.cat([table[:, 0::2], table[:, 1::2]], 1)
    return wide


def their_logits(model, batch: Batch) -> np.ndarray:
    """Return logits in float64."""
    tgt = torch.from_numpy(batch.tgt.inputs.astype(np.int64))
    wide = in_float64(model)
    with torch.no_grad():
        if batch.src is None:
            return wide(tgt).logits.numpy()
        src = torch.from_numpy(batch.src.inputs.astype(np.int64))
        if model.config.model_type == "bert":
            logits = wide(input_ids=src).logits.numpy()
            return logits if logits.ndim == 3 else logits[:, None]
        return wide(input_ids=src, decoder_input_ids=tgt).logits.numpy()


def distance(ours, theirs) -> float:
    return float(np.abs(np.asarray(ours) - theirs).max() / np.abs(theirs).max())


@pytest.mark.parametrize("name", PEERS)
def test_theirs_is_ours_and_theirs_again(name, tmp_path, monkeypatch):
    widen(monkeypatch)
    model = peer(name)
    experiment, params, codecs = hf.read(written(model, tmp_path / "theirs"))
    batch = example(experiment.model)
    near = 1e-9 if name == "bloom" else 1e-12  # which has its GELU's constant to eight digits
    assert distance(our_logits(experiment, params, batch), their_logits(model, batch)) < near
    again, info = exported(experiment, params, codecs, tmp_path / "again", model.config.model_type)
    assert not any(info.values()), info
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[key]), key
    before, after = (
        {k: v for k, v in m.config.to_dict().items() if k in PEERS[name][1]} for m in (model, again)
    )
    assert before == after
    assert np.array_equal(their_logits(model, batch), their_logits(again, batch))
    ours, back, _ = hf.read(tmp_path / "again")
    assert ours.model == experiment.model
    assert identical(params, back)


def exported(experiment, params, codecs, directory, kind=None):
    """Return their model of what we export, and what is missing, left over or wrong."""
    family = hf.export(experiment, params, codecs, directory, kind)
    return getattr(T, hf.auto_class(family)).from_pretrained(directory, output_loading_info=True)


def identical(one, other) -> bool:
    one, other = flatten_dict(one), flatten_dict(other)
    return one.keys() == other.keys() and all(
        np.array_equal(np.asarray(one[key]), np.asarray(other[key])) for key in one
    )


def trained(experiment: Experiment, params, codec) -> TrainedModel:
    model = build_for(experiment, codec.size, codec.size)
    if params is None:
        params = random_params(model)
    params = jax.tree.map(jnp.asarray, params)
    return TrainedModel(experiment, model, params, TokenizerPair(codec, codec), [0])


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
        max_extra_length=12, forbidden=("<unk>",),  # which theirs leaves out of the text
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
OURS = {
    "marian": TRANSLATION,
    "pegasus": dataclasses.replace(
        TRANSLATION, model=dataclasses.replace(TRANSLATION.model, residual="pre_norm")
    ),
    "gpt2": WRITER,
}  # fmt: skip


@pytest.mark.parametrize("name", OURS)
def test_ours_is_theirs_and_ours_again(name, tmp_path):
    """Parameters bit for bit, ids, logits, and the text of a greedy search and of a beam."""
    experiment = OURS[name]
    settings = TokenizerConfig(algorithm="bpe" if name == "marian" else "unigram", vocab_size=33)
    codec = CODECS[experiment.tgt.codec].train(settings, LINES)
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
    again = trained(back, params, imported)
    for beam in (1, 3):
        for line in LINES[:5]:
            given = tokenizer(line, return_tensors="pt")
            with torch.no_grad():
                (found,) = theirs.generate(given["input_ids"], num_beams=beam, max_new_tokens=12)
            text = tokenizer.decode(found, skip_special_tokens=True)
            for model in (mine, again):
                if experiment.objective.one_sided:
                    wanted = model.generate(line, 12, experiment.decoding, beam_size=beam)
                else:
                    wanted = model.translate(line, experiment.decoding, beam_size=beam)
                assert wanted == text, (beam, line)


def byte_level() -> Tokenizer:
    """Return a tokenizer as GPT-2's, with one special piece."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290, special_tokens=[], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


ENDS = {  # their config: special pieces are others than ours, and some are missing or one
    "gpt2": lambda end: {"bos_token_id": end, "eos_token_id": end},
    "llama": lambda end: {"bos_token_id": end, "eos_token_id": 5, "pad_token_id": None},
    "t5": lambda end: {"pad_token_id": end, "decoder_start_token_id": end, "eos_token_id": 4},
    # Which reads a piece before each text, and writes one.
    "bart": lambda end: {"pad_token_id": 3, "bos_token_id": 5, "decoder_start_token_id": end,
                         "eos_token_id": end, "max_position_embeddings": 64},
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_a_work_directory_of_theirs_writes_what_they_write(name, tmp_path):
    """Greedy and beam, and log-probabilities, with ids that are not ours."""
    tokenizer = byte_level()
    end = tokenizer.token_to_id("<|endoftext|>")
    first = tokenizer.id_to_token(5)
    if name == "bart":
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{first} $A <|endoftext|>", special_tokens=[(first, 5), ("<|endoftext|>", end)]
        )
    rows = {"vocab_size": tokenizer.get_vocab_size() + 3}  # more than there are pieces
    model = peer(name, rows | ENDS[name](end))
    model.save_pretrained(tmp_path / "theirs")
    tokenizer.save(str(tmp_path / "theirs" / "tokenizer.json"))
    import_into(tmp_path / "theirs", tmp_path / "ours")
    ours = load(tmp_path / "ours")
    options = {"length_penalty": 0.7, "early_stopping": True, "max_new_tokens": 10}
    alike = {"length_penalty": "power", "alpha": 0.7, "stop": "width", "max_length_ratio": 0.0,
             "max_extra_length": 10}  # fmt: skip
    encodes = model.config.is_encoder_decoder
    special = ours.tokenizers.tgt.special
    never = sorted({special["pad"], special["bos"]} - {special["eos"], -1})
    for beam in (1, 3):
        for line in LINES[:5]:
            ids = tokenizer.encode(line, add_special_tokens=False).ids
            read = [*ids, special["eos"]] if encodes else [special["bos"], *ids]
            read = [5, *read] if name == "bart" else read
            given = torch.tensor([read])
            mask = torch.ones_like(given)
            (found,) = model.generate(
                given, attention_mask=mask, num_beams=beam, suppress_tokens=never or None,
                pad_token_id=special["eos"], **options,
            ).tolist()  # fmt: skip
            found = found[1:] if encodes else found[len(read) :]
            if special["eos"] in found:
                found = found[: found.index(special["eos"]) + 1]
            if encodes:
                (mine,) = ours.translate(line, n_best=1, beam_size=beam, **alike)
            else:
                (mine,) = ours.generate(line, 10, n_best=1, beam_size=beam, **alike)
            assert mine.ids == found, (beam, line)
            text = tokenizer.decode(found, skip_special_tokens=True)
            assert mine.text == (text if encodes else tokenizer.decode(ids + found))
    if not encodes:
        ids = [special["bos"], *tokenizer.encode(LINES[0]).ids, special["eos"]]
        with torch.no_grad():
            logits = model(torch.tensor([ids[:-1]])).logits[0].log_softmax(-1)
        theirs = logits[torch.arange(len(ids) - 1), ids[1:]].numpy()
        np.testing.assert_allclose(ours.score(LINES[0]).log_probs, theirs, rtol=1e-4, atol=1e-4)

"""Tables of Hugging Face model families: complete, invertible, with errors that name a field.

What the models compute is compared in tests/oracle/test_huggingface_peers.py.
"""

import dataclasses
import functools
import json
import re
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from declared import choices, unworded, with_value
from flax.traverse_util import flatten_dict
from safetensors.numpy import save_file
from tiny import MODEL, VOCAB, random_params
from tokenizers import Tokenizer, processors
from tokenizers.models import BPE

from transformer_jax.base.disk import DiskError, writing
from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS
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
from transformer_jax.config.allowed import ANY
from transformer_jax.data.codecs.pair import CODECS
from transformer_jax.decoding.text.prompts import PROMPTS
from transformer_jax.export.huggingface import settings, special_ids, tensors, tokenizer_json
from transformer_jax.export.huggingface.directory import family_of, read
from transformer_jax.export.huggingface.families import FAMILIES, GPT2, LLAMA, T5
from transformer_jax.export.huggingface.family import (
    Fixed,
    Part,
    Word,
    from_words,
    refuse,
    to_words,
)
from transformer_jax.models.build import build
from transformer_jax.nn.feedforward import ACTIVATIONS


def of(family, **fields) -> ModelConfig:
    """Return a model that the family can express: the first supported value of each fixed field."""
    layers = {} if family.encodes else {"num_encoder_layers": 6}
    if not family.writes:
        layers = {"num_decoder_layers": 6, "token_types": 2}
    first = {
        field: values[0] for field, values in family.supported.items()
        if values is not ANY and isinstance(values[0], str | bool | tuple)
        and not field.endswith("_pattern") and field != "lora_maps"
    }  # fmt: skip
    sizes = {"d_model": 24, "num_heads": 4, "head_dim": None, "max_positions": 16}
    sizes |= {"d_ff": 96} if family.fourfold else {}
    masks = {"token_dropout": 5} if "mask_token_id" in dict(family.words) else {}
    fixed = layers | sizes | masks | family.fixed
    return dataclasses.replace(MODEL, **fixed | first | fields)


def params_of(config: ModelConfig, predicts: tuple[str, ...]):
    """Return random parameters, shared by all gated activations and by all others."""
    gated = ACTIVATIONS[config.activation].gated
    shape = dataclasses.replace(config, activation="swiglu" if gated else "relu")
    return dict(_random(shape, predicts))


@functools.cache
def _random(config: ModelConfig, predicts: tuple[str, ...]):
    return unbiased(random_params(build(config, VOCAB, VOCAB, predicts=predicts)))


def unbiased(params):
    """Return the parameters with experts that no bias balances."""

    def at(path, leaf):
        return 0 * leaf if path[-1].key == "load_bias" else leaf

    return jax.tree_util.tree_map_with_path(at, params)


@pytest.fixture(params=FAMILIES)
def family(request):
    return FAMILIES[request.param]


def test_every_word_is_declared(family):
    assert unworded(family.supported, ModelConfig) == []


def test_unsupported_values_are_rejected(family):
    """Every choice of every field, and choices that do not exist yet."""
    plain = of(family)
    refuse(family, plain)
    for field, words in choices(ModelConfig).items():
        allowed = family.supported.get(field, (getattr(ModelConfig(), field),))
        for value in (*words, "not there yet", ("not", "there")):
            config = with_value(plain, field, value)
            given = getattr(config, field)
            within = allowed is ANY or given in allowed
            if within or (isinstance(given, tuple) and all(word in allowed for word in given)):
                continue
            with pytest.raises(UserError, match=rf"^config\.model\.{field}=.*it supports {field}="):
                refuse(family, config)


def test_every_key_has_a_default_of_its_own_family(family):
    """None is inherited: tests/oracle/test_huggingface_defaults.py compares their values."""
    for name, word in family.words:
        function = not isinstance(word, Part) and callable(word.default)
        read = not isinstance(word, Word) or word.read
        older = isinstance(word, Fixed) and not word.written  # a key that only old files have
        if read and not (function or older or "." in name or name == "lm_head"):
            assert name in family.defaults, name
    kinds = {other.model_type for other in FAMILIES.values()
             if other.defaults is family.defaults}  # fmt: skip
    assert kinds == {family.model_type}
    assert {*family.aliases.values()} <= {name for name, _ in family.words}


def test_export_and_import_are_inverse(family):
    """Parameters bit for bit, and all fields that are written; an unknown tensor is rejected."""
    for activation in family.supported["activation"]:
        config = of(family, activation=activation, dropout_rate=0.0)
        params = params_of(config, family.predicts)
        if "src_embedding" in params:  # one table in the family
            params["src_embedding"] = params["tgt_embedding"]
        written = tensors.to_tensors(family, params)
        back = tensors.from_tensors(family, written, params)
        one, other = flatten_dict(jax.device_get(params)), flatten_dict(back)
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name]) for name in one)
        words = json.loads(json.dumps(to_words(family, config)))
        again = from_words(family, words | {"lm_head": "lm_head.weight" in written})
        assert to_words(family, again) == to_words(family, config)
        written["else.weight"] = np.ones(3, np.float32)
        with pytest.raises(UserError, match=r"^else.weight: this tensor has no"):
            tensors.from_tensors(family, written, params)


def test_a_setting_that_means_another_model_is_rejected(family):
    words = to_words(family, of(family)) | {"lm_head": False}
    for name, word in family.words:
        if isinstance(word, Fixed) and "." not in name:
            with pytest.raises(UserError, match=f"^{name}='other': only {word.value!r} can be"):
                from_words(family, words | {name: "other"})
        elif name in words and isinstance(word, Word) and word.read and not word.pairs:
            with pytest.raises(UserError, match=f"^{name}='other': must be (a (whole )?n|True)"):
                from_words(family, words | {name: "other"})


def test_scaled_frequencies_are_read_from_the_older_key():
    """As Llama 3.1's and Qwen2's files have it; settings other than the published are rejected."""
    family = FAMILIES["llama"]
    words = to_words(family, of(family)) | {"lm_head": False}
    del words["rope_parameters"]
    scaled = {
        "rope_type": "llama3", "factor": 32.0, "original_max_position_embeddings": 100,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    }  # fmt: skip
    config = from_words(family, words | {"rope_scaling": scaled})
    assert (config.rope_scaling, config.rope_factor, config.rope_length) == ("llama3", 32.0, 100)
    assert to_words(family, config)["rope_parameters"] == scaled | {
        "rope_theta": words["rope_theta"]
    }
    yarn = {"type": "yarn", "factor": 4.0}
    config = from_words(family, words | {"rope_scaling": yarn, "max_position_embeddings": 70})
    assert (config.rope_scaling, config.rope_factor, config.rope_length) == ("yarn", 4.0, 70)
    assert from_words(family, words).rope_scaling == "none"
    with pytest.raises(UserError, match=r"high_freq_factor=8\.0: only 4\.0 can be imported"):
        from_words(family, words | {"rope_scaling": scaled | {"high_freq_factor": 8.0}})
    with pytest.raises(UserError, match=r"rope_type='dynamic': only 'default' or 'linear' or"):
        from_words(family, words | {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}})
    with pytest.raises(UserError, match=r"^rope_scaling='linear': must be an object with keys"):
        from_words(family, words | {"rope_scaling": "linear"})


def test_a_missing_window_is_the_default_one():
    family = FAMILIES["mistral"]
    words = to_words(family, of(family)) | {"lm_head": False}
    assert words.pop("sliding_window") is None
    config = from_words(family, words)
    assert (config.decoder_pattern, config.window) == (("local",), 4096)
    assert to_words(family, config)["sliding_window"] == 4096
    mixed = dataclasses.replace(config, num_decoder_layers=2, decoder_pattern=("local", "full"))
    with pytest.raises(UserError, match=r"decoder_pattern=.* supports decoder_pattern=\('full'"):
        to_words(family, mixed)


def test_kinds_of_layers_are_listed_one_by_one():
    """A pattern is the shortest that they repeat; a layer of another kind is refused."""
    family = FAMILIES["gemma3"]
    fields = {"decoder_pattern": ("local", "local", "full"), "num_decoder_layers": 7, "window": 4}
    config = of(family, **fields, local_rope_theta=100.0)
    words = to_words(family, config) | {"lm_head": False}
    near, full = "sliding_attention", "full_attention"
    assert words["layer_types"] == [near, near, full, near, near, full, near]
    assert from_words(family, words).decoder_pattern == config.decoder_pattern
    with pytest.raises(UserError, match=r"^layer_types='chunked': only 'sliding_attention' or"):
        from_words(family, words | {"layer_types": [near, "chunked"]})
    with pytest.raises(UserError, match=r"^layer_types=3: must be a list with a word for each"):
        from_words(family, words | {"layer_types": 3})
    with pytest.raises(UserError, match=r"^layer_types: names 2 layers, and there are 7$"):
        from_words(family, words | {"layer_types": [near, full]})
    plain = words | {"layer_types": [full] * 7}
    assert from_words(family, plain).window is from_words(family, plain).local_rope_theta is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"norm": "scale_norm"}, r"^config.model.norm='scale_norm': .* it supports norm="),
        ({"embedding_norm": "fix_norm"}, r"^config.model.embedding_norm='fix_norm': "),
        ({"head_dim": 5}, r"^config.model.head_dim=5: .* requires num_heads x head_dim"),
        ({"tied_embeddings": "decoder"}, r"^config.model.tied_embeddings='decoder'"),
        ({"norm_epsilon": 0.1}, r"^config.model.norm_epsilon=0.1: "),
    ],
)
def test_a_model_of_no_family_gets_the_error_of_the_nearest_family(fields, message):
    with pytest.raises(UserError, match=message):
        family_of(dataclasses.replace(of(FAMILIES["marian"]), **fields))


# Pairs of families that mostly coincide.
ONE = {"llama", "mistral"}, {"llama", "phi3"}, {"gpt2", "opt"}, {"gpt_neox", "starcoder2"}


def test_the_family_is_inferred_from_the_model(family):
    found = family_of(of(family), family.predicts)
    assert (found.model_type, found.architecture) == (family.model_type, family.architecture) or (
        {found.model_type, family.model_type} in ONE
    )
    asked = family_of(of(family), family.predicts, family.model_type)
    assert asked.architecture == family.architecture
    with pytest.raises(UserError, match=r"^--family=gru: no such family that predicts .*; choose"):
        family_of(of(family), family.predicts, "gru")


def test_other_objectives_and_separate_vocabularies_are_rejected():
    two = dataclasses.replace(
        Experiment(model=ModelConfig(tied_embeddings="none")),
        tokenizer=TokenizerConfig(joint=False),
    )
    with pytest.raises(UserError, match=r"^config.tokenizer.joint=False: "):
        settings.refuse(two)
    prefix = Experiment(
        model=ModelConfig(architecture="decoder"), objective=ObjectiveConfig(name="prefix_lm"),
    )  # fmt: skip
    with pytest.raises(UserError, match=r"^config.objective.name='prefix_lm': "):
        settings.refuse(prefix)


@pytest.mark.parametrize(
    ("name", "fields", "warning"),
    [
        ("gpt2", {}, r"^decoding.no_repeat_ngram=2: .* n-grams of a prompt"),
        ("t5", {"num_decoder_layers": 2}, r"^model.num_encoder_layers=1: .* use_cache=False"),
        ("bart", {"num_decoder_layers": 2}, None),
    ],
)
def test_differences_in_transformers_are_reported(name, fields, warning):
    family = FAMILIES[name]
    model = dataclasses.replace(of(family), **fields)
    run = SimpleNamespace(model=model, decoding=DecodingConfig(beam_size=1, no_repeat_ngram=2))
    found = settings.lacks(family, run)
    assert [bool(re.search(warning or "", one)) for one in found] == [True] * (warning is not None)


def test_an_unsupported_tokenizer_is_named_by_its_side():
    tagged = Experiment(
        model=of(FAMILIES["bert, tags"]), src=SourceConfig("words"), tgt=SideConfig("labels"),
        objective=ObjectiveConfig("tag", window=16), tokenizer=TokenizerConfig(joint=False),
        checkpoint=CheckpointConfig(best_by="loss"),
        evaluation=EvaluationConfig(bleu_sentences=0), data=DataConfig(max_length=16),
    )  # fmt: skip
    codec = CODECS["words"].train(TokenizerConfig(vocab_size=6), ["a b"])
    with pytest.raises(UserError, match=r"^config.src.codec='words': .* does not support"):
        tokenizer_json.files(codec, tagged)


@pytest.mark.parametrize("normalization", ["identity", "nmt_nfkc"])
def test_whitespace_is_tokenised_as_by_the_codec(normalization):
    """A space before a line end is read, but not one at the end of a text, nor one before a special
    piece, which absorbs it.
    """
    run = Experiment(
        model=of(T5), tokenizer=TokenizerConfig(vocab_size=14, normalization=normalization)
    )
    codec = CODECS["subwords"].train(run.tokenizer, ["a bc dd bc"] * 9, ("<mask>",))
    theirs = Tokenizer.from_str(tokenizer_json.files(codec, run)["tokenizer.json"])
    for text in (" a  \n bc \n", "a \n", "bc  ", "\n", " ", ""):
        assert theirs.encode(text).ids == codec.encode([text])[0]
    ids = theirs.encode("a <mask> dd<mask>dd").ids
    assert "".join(codec.pieces(ids)) == "▁a<mask>▁dd<mask>dd</s>"


def test_biases_of_experts_must_be_zero():
    family = FAMILIES["mixtral"]
    params = random_params(build(of(family), VOCAB, VOCAB))
    with pytest.raises(UserError, match=r"^decoder/layer_0/.*/load_bias: is not 0, .*rate=0$"):
        tensors.to_tensors(family, params)


def test_tables_that_the_family_shares_must_be_equal():
    config = of(T5, tied_embeddings="none", logits_scale=False)
    with pytest.raises(UserError, match=r"^src_embedding/table and tgt_embedding/table: differ"):
        tensors.to_tensors(T5, random_params(build(config, VOCAB, VOCAB)))


def test_shards_bfloat16_and_a_duplicated_tied_table_are_read(tmp_path):
    """As older versions of save_pretrained wrote them; names may lack the prefix."""
    config = of(LLAMA, tied_embeddings="all")
    params = random_params(build(config, VOCAB, VOCAB))
    whole = tensors.to_tensors(LLAMA, params)
    whole["lm_head.weight"] = whole["model.embed_tokens.weight"]
    import ml_dtypes

    half = {
        name.removeprefix("model."): np.ascontiguousarray(array.astype(ml_dtypes.bfloat16))
        for name, array in whole.items()
    }
    names = sorted(half)
    files = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in files.items():
        save_file({name: half[name] for name in part}, tmp_path / file)
    index = {"weight_map": {name: file for file, part in files.items() for name in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    back = tensors.from_tensors(LLAMA, tensors.load(tmp_path), params)
    for one, other in zip(jax.tree.leaves(params), jax.tree.leaves(back), strict=True):
        rounded = np.asarray(one).astype(ml_dtypes.bfloat16).astype(np.float32)
        assert np.array_equal(rounded, other)
    half["lm_head.weight"] = half["lm_head.weight"] + 1
    with pytest.raises(UserError, match=r"^lm_head.weight: differs from embed_tokens.weight"):
        tensors.from_tensors(LLAMA, half, params)
    missing = {name: array for name, array in whole.items() if "norm" not in name}
    with pytest.raises(UserError, match=r"^model\.layers\.0\.input_layernorm\.weight: missing"):
        tensors.from_tensors(LLAMA, missing, params)
    other = build(dataclasses.replace(config, d_ff=16), VOCAB, VOCAB)
    with pytest.raises(UserError, match=r"has the shape \(24, 24\), not \(16, 24\)"):
        tensors.from_tensors(LLAMA, whole, random_params(other))


ENDS = {"eos_token_id": 4}


@pytest.mark.parametrize(
    ("model", "words", "special"),
    [
        ({}, {"eos_token_id": [4, 3]}, {"eos": 4, "pad": 4}),
        ({}, ENDS | {"pad_token_id": -1, "bos_token_id": None}, {"eos": 4, "pad": 4}),
        ({}, ENDS | {"pad_token_id": 0, "bos_token_id": 3}, {"eos": 4, "pad": 0, "bos": 3}),
        ({}, {"model_type": "llama"}, {"eos": 2, "pad": 2, "bos": 1}),
        ({}, {"model_type": "llama", "bos_token_id": None}, {"eos": 2, "pad": 2}),
        ({}, {"model_type": "opt"} | ENDS, {"eos": 4, "pad": 1, "bos": 2}),
        ({}, {"model_type": "gpt2"}, r"^eos_token_id: missing from config.json; name the piece"),
        ({}, {"eos_token_id": []}, r"^eos_token_id: missing from config.json; name the piece"),
        ({}, {"eos_token_id": -1}, r"^eos_token_id: missing from config.json; name the piece"),
        ({}, {"model_type": "qwen2"}, r"^eos_token_id: missing from config.json; name the piece"),
        ({"unk_token": ""}, ENDS, {"eos": 4, "pad": 4}),  # as in GPT-2's
        ({"unk_token": "<unk>"}, ENDS, {"eos": 4, "pad": 4}),
        ({"unk_token": "b"}, ENDS, {"eos": 4, "pad": 4, "unk": 1}),
        (
            {"type": "Unigram", "unk_id": 1, "vocab": [["a", 0.0], ["<unk>", -1.0]]},
            ENDS,
            {"eos": 4, "pad": 4, "unk": 1},
        ),
        (b"\xff", ENDS, r"tokenizer.json: not a tokenizer \('utf-8' codec"),
        ({}, {"eos_token_id": 6}, r"^eos_token_id=6: must be the number of a piece, less than 6"),
        ({}, {"bos_token_id": "<s>"}, r"^bos_token_id='<s>': must be the number of a piece"),
        (
            {"vocab": {"a": 0, "b": 1, "ab": 7}},
            ENDS,
            r"has 8 pieces, but .* embedding 6 rows; call",
        ),
    ],
)
def test_special_pieces_of_a_tokenizer(model, words, special, tmp_path):
    content = json.loads(Tokenizer(BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")])).to_str())
    text = model
    if isinstance(model, dict):
        kept = {} if "type" in model else content["model"]
        text = json.dumps(content | {"model": kept | model}).encode()
    (tmp_path / "tokenizer.json").write_bytes(text)
    if isinstance(special, str):
        with pytest.raises(UserError, match=special):
            tokenizer_json.read(tmp_path, words, 6)
    else:
        assert tokenizer_json.read(tmp_path, words, 6).special == special


@pytest.mark.parametrize(
    ("kind", "words", "first"),
    [
        ("t5", {}, None),  # which has no default either
        ("t5", {"decoder_start_token_id": None, "bos_token_id": -1}, None),
        ("t5", {"decoder_start_token_id": 0}, 0),
        ("mbart", {}, 0),
        ("mbart", {"bos_token_id": 3}, 3),
        ("bart", {"bos_token_id": 0}, 2),
        ("pegasus", {}, 0),
        ("marian", {}, None),  # whose default is beyond the table
    ],
)
def test_an_output_begins_with_a_piece_that_exists(kind, words, first):
    """That of its own, else BOS; a model without any is refused, as transformers refuses it."""
    words = {"model_type": kind, **words}
    if first is None:
        with pytest.raises(UserError, match=r"^decoder_start_token_id: missing from config.json, "):
            special_ids.special_ids(words, 6, "encoder_decoder")
    else:
        assert special_ids.special_ids(words, 6, "encoder_decoder")["bos"] == first


def test_every_family_has_its_defaults():
    assert {family.model_type for family in FAMILIES.values()} == special_ids.DEFAULTS.keys()


PROCESSORS = {  # the pieces of tokenizer.json before a prompt, in the forms that are published
    "none": (None, []),
    "byte level": (processors.ByteLevel(trim_offsets=False), []),
    "BOS": (processors.TemplateProcessing(single="<x> $A", special_tokens=[("<x>", 2)]), [2]),
    "two": (processors.TemplateProcessing(
        single="<x> a $A", special_tokens=[("<x>", 2), ("a", 0)]), [2, 0]),
    "in a sequence": (processors.Sequence([
        processors.ByteLevel(), processors.TemplateProcessing(
            single="<x> $A", special_tokens=[("<x>", 2)])]), [2]),
    "with EOS": (processors.TemplateProcessing(
        single="<x> $A </s>", special_tokens=[("<x>", 2), ("</s>", 1)]), [2]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize("bos", [None, 0])
def test_the_tokenizer_decides_what_a_prompt_begins_with(name, bos, tmp_path, caplog):
    """The config names a BOS only for an empty prompt. The export reads what was imported."""
    tokenizer = Tokenizer(BPE({"a": 0, "</s>": 1, "<x>": 2, "b": 3}, []))
    processor, begins = PROCESSORS[name]
    if processor is not None:
        tokenizer.post_processor = processor
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    codec = tokenizer_json.read(tmp_path, {"eos_token_id": 1, "bos_token_id": bos}, 4)
    assert codec.begins == begins
    assert codec.special.get("bos") == (begins[0] if begins else bos)
    assert codec.encode(["b"], bos=True) == [[*begins, 3, 1]]
    assert codec.encode(["b"], eos=False) == [[3]]
    assert caplog.text.count("Hugging Face reads a text as '<x> TEXT </s>'") == ("EOS" in name)
    said = special_ids.reads(codec, "decoder")
    assert said.startswith(f"a prompt is read as {' '.join([*codec.pieces(begins), 'TEXT'])}")
    assert ("no BOS" in said) == (not begins)
    for document in ("line", "joined"):
        run = language_model("huggingface", document)
        files = tokenizer_json.files(codec, run)
        assert Tokenizer.from_str(files["tokenizer.json"]).encode("b").ids == [*begins, 3]
        assert PROMPTS["language_model"].read(codec, "b", run.objective, None) == [*begins, 3]
        assert json.loads(files["tokenizer_config.json"])["padding_side"] == "left"


def language_model(kind, document, config=TokenizerConfig()):  # noqa: B008 (immutable)
    return Experiment(
        model=of(LLAMA), tgt=SideConfig(kind), tokenizer=config, data=DataConfig(max_length=16),
        objective=ObjectiveConfig("language_model", window=16, document=document),
        checkpoint=CheckpointConfig(best_by="loss"), evaluation=EvaluationConfig(bleu_sentences=0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "document"),
    [("characters", "line"), ("characters", "joined"), ("bytes", "file"), ("subwords", "joined")],
)
def test_an_exported_tokenizer_reads_what_generate_reads(kind, document):
    config = TokenizerConfig(vocab_size=14) if kind == "subwords" else TokenizerConfig()
    run = language_model(kind, document, config)
    codec = CODECS[kind].train(config, ["a bc dd bc"] * 9, ())
    files = tokenizer_json.files(codec, run)
    read_ = PROMPTS["language_model"].read(codec, "a bc", run.objective, None)
    assert Tokenizer.from_str(files["tokenizer.json"]).encode("a bc").ids == read_
    assert (read_[0] == BOS) == (document != "file")
    assert json.loads(files["tokenizer_config.json"])["padding_side"] == "left"


@pytest.mark.parametrize(
    ("template", "warns"), [("$A </s>", 0), ("<x> $A </s>", 0), ("$A </s> <x>", 1)]
)
def test_pieces_around_a_text_that_are_not_read_here_are_named(template, warns, tmp_path, caplog):
    """As mBART's piece of a language, after EOS."""
    tokenizer = Tokenizer(BPE({"a": 0, "</s>": 1, "<x>": 2}, []))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[("</s>", 1), ("<x>", 2)]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tokenizer_json.read(tmp_path, {"eos_token_id": 1, "bos_token_id": 1}, 3, "encoder_decoder")
    assert caplog.text.count("Hugging Face reads a text as 'TEXT </s> <x>', but here") == warns


@pytest.mark.parametrize(
    ("name", "most", "longest"),
    [
        ("bert", None, 256), ("bert", 128, 128), ("bert", 400, 400), ("bert", int(1e30), 256),
        ("bert", 1000, 512), ("t5", 128, 128), ("t5", 512, 256), ("llama", 1e30, 256),
    ],
)  # fmt: skip
def test_texts_are_cut_where_the_tokenizer_cuts_them(name, most, longest):
    model = dataclasses.replace(of(FAMILIES[name]), max_positions=512)
    found = settings.to_experiment(model, DecodingConfig(), most=most)
    assert found.data.max_length == longest
    assert name == "t5" or found.objective.window == longest


def test_tensors_that_cannot_be_written_say_why(tmp_path):
    """Their library has an error type of its own, on a full disk too."""
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(DiskError, match=r"^it cannot be written: Is a directory \("):
        with writing("it", tmp_path):
            tensors.save(tmp_path, {"a": np.ones(9, np.float32)})


def test_errors_say_why_a_directory_cannot_be_imported(tmp_path):
    with pytest.raises(UserError, match=r"config.json: cannot be read; name a directory"):
        read(tmp_path)
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "gpt2"}')
    with pytest.raises(UserError, match=r"no model.safetensors here; save the model with"):
        read(tmp_path)
    params = random_params(build(of(GPT2), VOCAB, VOCAB))
    tensors.save(tmp_path, tensors.to_tensors(GPT2, params))
    with pytest.raises(UserError, match=r"wte.weight: has the shape .*, not \(30, 768\)"):
        read(tmp_path)
    config.write_text('{"model_type": "falcon"}')
    with pytest.raises(UserError, match=r"model_type='falcon': can import gpt2, llama, "):
        read(tmp_path)
    config.write_text(json.dumps(to_words(GPT2, of(GPT2)) | {"model_type": "gpt2"}))
    with pytest.raises(UserError, match=r"tokenizer.json: cannot be read, nor .*; write one with"):
        read(tmp_path)

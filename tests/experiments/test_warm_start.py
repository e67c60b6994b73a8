"""Fine-tuning: parameters initialised from another run, frozen, or adapted at low rank."""

import dataclasses
from pathlib import Path

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict
from oracle.cases import CASES
from oracle.cases import VOCAB as ORACLE_VOCAB
from oracle.compare import shapes
from starts import start_at_random
from tiny import MODEL, RUN, VOCAB, alone, random_params, random_store

from transformer_jax.api import load
from transformer_jax.api.trained import TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.config import (
    DataConfig,
    InitConfig,
    ObjectiveConfig,
    OptimizerConfig,
    SourceConfig,
)
from transformer_jax.data import sources
from transformer_jax.data.codecs.pair import CODECS, TokenizerPair, train_pair
from transformer_jax.experiments import train as runs
from transformer_jax.experiments import warm_start
from transformer_jax.models.build import build, build_for, init_params
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.runs.workdir import WorkDir
from transformer_jax.training import selected
from transformer_jax.training.state import TrainState

SMALL = dataclasses.replace(
    RUN,
    model=dataclasses.replace(RUN.model, dropout_rate=0.0),
    training=dataclasses.replace(RUN.training, steps=3, ema_decay=0.9),
    optimizer=dataclasses.replace(RUN.optimizer, weight_decay=0.1),
)
# The model trained here: smaller, so that it compiles faster.
DECODER = dataclasses.replace(
    SMALL,
    model=dataclasses.replace(SMALL.model, architecture="decoder", num_encoder_layers=6),
    objective=ObjectiveConfig("language_model", window=48),
)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a directory for runs, which start from random parameters."""
    directory = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSFORMER_JAX_CACHE", str(directory / "cache"))
        patch.setattr(runs.process, "use_compilation_cache", lambda: None)
        start_at_random(patch)
        yield directory


def untrained(workdir, experiment):
    """Return a work directory with one checkpoint of other random parameters."""
    text = sources.load(experiment.data, "train")
    codecs = train_pair(experiment.tokenizer, text.src, text.tgt, experiment.codecs)
    with workdir.claim(experiment):
        codecs.save(workdir.path)
        checkpoints = Checkpoints(workdir.checkpoints, experiment.checkpoint)
        params = random_params(build_for(experiment, *codecs.sizes), 1)
        checkpoints.save(3, params, {}, {}, {"loss": 1.0})
        checkpoints.close()
    return workdir


@pytest.fixture(scope="module")
def source(home):
    return untrained(WorkDir(home / "source"), SMALL)


@pytest.fixture(scope="module")
def decoder(home):
    return untrained(WorkDir(home / "decoder"), DECODER)


def finished(workdir, experiment):
    assert runs.run_experiment(experiment, workdir) == 0
    return workdir


def of(source, **fields):
    """Return the experiment initialised from a source, with some fields of its groups changed."""
    init = InitConfig(source=f"{source.path}@last")
    experiment = dataclasses.replace(source.experiment(), init=init)
    for group, values in fields.items():
        changed = dataclasses.replace(getattr(experiment, group), **values)
        experiment = dataclasses.replace(experiment, **{group: changed})
    return experiment


def flat(params):
    return {name: np.asarray(x) for name, x in flatten_dict(params, sep="/").items()}


def test_frozen_parameters_stay_bitwise_identical(home, decoder):
    """Even with weight decay and a running mean; the others change."""
    frozen = ("embedding/.*", "decoder/layer_0/.*/kernel")
    workdir = finished(WorkDir(home / "frozen"), of(decoder, optimizer={"frozen": frozen}))
    before, after = (flat(load(place.path, "last").params) for place in (decoder, workdir))
    same = {name for name in before if np.array_equal(before[name], after[name])}
    assert same == {name for name in before if selected.matches(frozen, name)}
    assert "decoder/layer_0/feed_forward/up/kernel" in same
    # Three steps do not move them far.
    assert max(np.abs(after[name] - before[name]).max() for name in before) < 0.01
    log = workdir.log.read_text()
    assert "parameters initialised from" in log
    assert "taken: decoder/layer_0" in log


@pytest.mark.thorough
def test_lora_changes_only_its_matrices_and_what_is_unfrozen(home, decoder):
    """All else stays; the result is an ordinary model with the low-rank products merged in."""
    maps = ("query", "value", "up", "embedding")
    lora = of(
        decoder, model={"lora_rank": 2, "lora_maps": maps}, optimizer={"unfrozen": (".*norm/.*",)}
    )
    workdir = finished(WorkDir(home / "lora"), lora)
    before, trained = flat(load(decoder.path, "last").params), load(workdir.path, "last")
    after = flat(trained.params)
    assert after.keys() == before.keys()
    moved = {name for name in before if not np.array_equal(before[name], after[name])}
    ends = [*(f"{name}/kernel" for name in maps), "embedding/table"]
    assert moved == {name for name in before if name.endswith(tuple(ends)) or "norm/" in name}
    assert trained.model.config == DECODER.model
    assert trained.score("eins").total < 0
    assert "trained" in workdir.log.read_text()


def test_lora_starts_as_the_model_it_adapts_and_adds_a_product():
    """By hand in float64: W + alpha / rank A B, for maps to heads and back, and embeddings."""
    maps = ("query", "output", "embedding")
    config = dataclasses.replace(MODEL, lora_rank=3, lora_alpha=6.0, lora_maps=maps)
    model, plain = build(config, VOCAB, VOCAB), build(MODEL, VOCAB, VOCAB)

    def added(key):  # and no more, or all initial values of the model would be compiled
        drawn = flatten_dict(nn.unbox(init_params(model, key)), sep="/")
        return {name: x for name, x in drawn.items() if "/lora_" in name}

    fresh = {name: np.asarray(x) for name, x in jax.jit(added)(jax.random.key(0)).items()}
    blank = {name for name in fresh if name.endswith("lora_a" if "embed" in name else "lora_b")}
    assert {name for name, x in fresh.items() if not x.any()} == blank
    assert 0.5 < fresh["embedding/lora_b"].std() * MODEL.d_model**0.5 < 1.5
    bound = MODEL.d_model**-0.5
    drawn = fresh["encoder/layer_0/self_attention/query/lora_a"]
    assert drawn.shape == (MODEL.d_model, 3)
    assert bound / 2 < np.abs(drawn).max() <= bound
    params = random_params(model)
    batch = alone(random_store([(5, 4), (3, 6)]), 2, 8, 8)
    given = flat(params)
    for name in [name for name in given if name.endswith("lora_a")]:
        stem, a, b = name.removesuffix("lora_a"), given.pop(name), None
        b = given.pop(f"{stem}lora_b")
        name = stem + ("table" if stem.endswith("embedding/") else "kernel")
        product = (a.reshape(-1, 3).astype(float) @ b.reshape(3, -1)).reshape(given[name].shape)
        given[name] = (given[name] + 2 * product).astype(np.float32)

    ours = model.outputs(params, jax.tree.map(jax.numpy.asarray, batch), None)["tokens"]
    theirs = plain.outputs(
        unflatten_dict(given, sep="/"), jax.tree.map(jax.numpy.asarray, batch), None
    )["tokens"]
    np.testing.assert_allclose(ours.logits(), theirs.logits(), atol=2e-5)


def state_of(size):
    model = build(SMALL.model, size, size)
    return TrainState(0, 0, random_params(model, 2), (), None)


def test_embeddings_follow_their_pieces_into_another_vocabulary(source, monkeypatch):
    theirs = load(source.path, "last")
    text = ["drei vier fünf", "three four five six"] * 20
    codec = train_pair(dataclasses.replace(SMALL.tokenizer, vocab_size=32), text, text).tgt
    new = of(source, init={"tokenizer": False})
    found = warm_start.begin(new, state_of(codec.size), TokenizerPair(codec, codec))
    table, old = (flat(p)["embedding/table"] for p in (found.state.params, theirs.params))
    known = 0
    there = theirs.tokenizers.tgt.pieces(range(theirs.tokenizers.tgt.size))
    for row, piece in zip(table, codec.pieces(range(codec.size)), strict=True):
        if piece in there:
            known += 1
            np.testing.assert_array_equal(row, old[there.index(piece)])
        else:
            assert np.abs(row - old.mean(0)).max() < old.std(0).max()
    assert 4 < known < codec.size
    assert any(f"{len(old)} -> {codec.size} pieces, {known} of them" in x for x in found.lines)


def test_the_running_mean_starts_from_the_loaded_parameters(source):
    """In arrays of its own: a step donates both."""
    theirs = load(source.path, "last")
    state = state_of(theirs.tokenizers.tgt.size)
    average = random_params(build(SMALL.model, *theirs.tokenizers.sizes), 3)
    found = warm_start.begin(of(source), state.replace(average=average), theirs.tokenizers).state
    expected = flat(theirs.params)
    for tree in (found.params, found.average):
        for name, array in flat(tree).items():
            np.testing.assert_array_equal(array, expected[name])
    for one, other in zip(*map(jax.tree.leaves, (found.params, found.average)), strict=True):
        assert one.unsafe_buffer_pointer() != other.unsafe_buffer_pointer()


def test_missing_and_incompatible_sources_are_rejected(source, tmp_path):
    def refusal(experiment):
        with pytest.raises(UserError) as caught:
            runs.run_experiment(experiment, WorkDir(tmp_path / "run"))
        assert not (tmp_path / "run").exists()
        return str(caught.value)

    none = dataclasses.replace(SMALL, init=InitConfig(source=str(tmp_path / "none")))
    assert refusal(none).startswith(f"config.init.source={str(tmp_path / 'none')!r}: ")
    other = refusal(of(source, tokenizer={"vocab_size": 50}))
    assert other.startswith("config.tokenizer.vocab_size=50: the tokenizer of ")
    assert "config.init.tokenizer=False" in other


def test_mismatched_sizes_and_names_are_rejected(source):
    pair = load(source.path, "last").tokenizers
    narrow = build(dataclasses.replace(SMALL.model, d_ff=20), pair.src.size, pair.tgt.size)
    state = TrainState(0, 0, random_params(narrow), (), None)
    with pytest.raises(UserError, match=r"feed_forward/.* is .*24.* there and .*20.* here"):
        warm_start.begin(of(source), state, pair)
    with pytest.raises(UserError, match="no parameter with a matching name"):
        warm_start.begin(of(source, init={"take": ("nothing",)}), state, pair)
    taken = warm_start.begin(of(source, init={"take": ("embedding/.*",)}), state, pair)
    assert any(line.startswith("  new: encoder/layer_0") for line in taken.lines)
    swapped = of(source, init={"rename": ("decoder/=other/",), "take": (".*norm.*",)})
    lines = warm_start.begin(swapped, state, pair).lines
    assert any(line.startswith("  new: decoder/layer_0") for line in lines)


def test_a_rename_precedes_a_parameter_that_has_the_name(source):
    there = load(source.path, "last")
    params = random_params(build_for(SMALL, *there.tokenizers.sizes))
    for theirs, mine in (("encoder", "decoder"), ("decoder", "encoder")):
        experiment = of(source, init={"rename": (f"{theirs}/={mine}/",)})
        state = TrainState(0, 0, params, (), None)
        found = flat(warm_start.begin(experiment, state, there.tokenizers).state.params)
        name = "layer_0/feed_forward/up/kernel"
        assert np.array_equal(found[f"{mine}/{name}"], flat(there.params)[f"{theirs}/{name}"])


@pytest.mark.parametrize(
    ("fields", "maps", "message"),
    [
        ({"frozen": ("encoder",)}, (), r"optimizer.frozen: 'encoder' matches no parameter"),
        ({"rate_factors": ("x=2",)}, (), r"optimizer.rate_factors: 'x' matches no parameter"),
        ({"unfrozen": ("bias",)}, (), r"optimizer.unfrozen: 'bias' matches no parameter"),
        ({"frozen": (".*",)}, (), "leaves nothing to train"),
        ({"layer_decay": 0.5}, (), "layer_decay: the depth of latents is not defined"),
        ({}, ("gate",), r"config.model.lora_maps=\('query', 'gate'\): no layer .* map 'gate'"),
    ],
)
def test_patterns_and_maps_are_checked_against_the_parameters(fields, maps, message):
    """No activation of this model has a gate."""
    lora = dataclasses.replace(SMALL.model, lora_rank=2, lora_maps=("query", *maps))
    optimizer, init = OptimizerConfig(**fields), InitConfig(source="runs/other")
    experiment = dataclasses.replace(SMALL, model=lora, init=init, optimizer=optimizer)
    model = build(lora, VOCAB, VOCAB)
    params = jax.eval_shape(lambda key: init_params(model, key), jax.random.key(0))
    with pytest.raises(UserError, match=message):
        selected.check(experiment, nn.unbox(params) | {"latents": 0})


def test_rate_factors_multiply_and_decay_with_depth():
    config = OptimizerConfig(layer_decay=0.5, rate_factors=(".*/kernel=3", "decoder/.*=0.1"))
    params = {
        "embedding": {"table": 0}, "encoder": {"layer_0": {"up": {"kernel": 0}}},
        "decoder": {"layer_1": {"up": {"kernel": 0, "bias": 0}}, "final_norm": {"scale": 0}},
    }  # fmt: skip
    found = selected.rate_factors(config, params)
    factors = flatten_dict(found, sep="/")
    assert factors == {
        "embedding/table": 0.125,
        "encoder/layer_0/up/kernel": pytest.approx(0.25 * 3),
        "decoder/layer_1/up/kernel": pytest.approx(0.5 * 0.3),
        "decoder/layer_1/up/bias": pytest.approx(0.5 * 0.1),
        "decoder/final_norm/scale": pytest.approx(0.1),
    }
    params["decoder"]["layer_1"]["up"] = dict.fromkeys(("kernel", "bias"), optax.MaskedNode())
    rest = flatten_dict(selected.rate_factors(config, params), sep="/")
    assert all(rest[name] == factors[name] for name in factors if "layer_1" not in name)  # frozen


def test_every_part_of_every_model_has_a_depth():
    """A new part must be given its depth: nobody would notice a rate that is silently too high."""
    config = OptimizerConfig(layer_decay=0.5)
    for name in ("gpt2", "xlnet", "shaw, one table for all layers", "bert", "bert, classes"):
        case = CASES[name]
        params = shapes(case.config, ORACLE_VOCAB, ORACLE_VOCAB, next(iter(case.batch().targets)))
        for name, factor in flatten_dict(selected.rate_factors(config, params), sep="/").items():
            behind = name.startswith(("output", "pooler", "piece_head", "class_head"))
            assert (factor == 1) == (behind or "final_norm" in name)
    with pytest.raises(UserError, match=r"layer_decay: .*encoder/extra/table"):
        selected.rate_factors(config, {"encoder": {"extra": {"table": 0}}})


@pytest.mark.parametrize(
    "make",
    [
        lambda: OptimizerConfig(rate_factors=("encoder",)),
        lambda: OptimizerConfig(rate_factors=("encoder=0",)),
        lambda: OptimizerConfig(frozen=("(",)),
        lambda: InitConfig(take=("x",)),
        lambda: InitConfig(source="x", rename=("x",)),
        lambda: dataclasses.replace(MODEL, lora_alpha=2.0),
        lambda: dataclasses.replace(MODEL, lora_rank=2, lora_maps=()),
    ],
)
def test_meaningless_settings_are_rejected(make):
    with pytest.raises(UserError):
        make().check_reads()


def test_several_sources_complement_each_other(monkeypatch):
    """The first source with a name provides it; renaming uses the first new name not yet taken."""
    model = dataclasses.replace(
        SMALL.model, positions="learned", architecture="prefix_decoder", stem="linear"
    )
    text = sources.load(SMALL.data, "train")
    wide = dataclasses.replace(SMALL.tokenizer, vocab_size=SMALL.tokenizer.vocab_size + 8)
    codec, theirs = (train_pair(c, text.src, text.tgt).tgt for c in (SMALL.tokenizer, wide))
    pictures = CODECS["patches"].train(
        SourceConfig("patches", patch_size=1), [np.ones((2, 2), np.uint8)]
    )
    init = InitConfig(
        source="one", also=("two",),
        rename=("positions/=src_positions/", "positions/=tgt_positions/"),
    )  # fmt: skip
    both = dataclasses.replace(
        SMALL, model=model, init=init, src=SourceConfig("patches"),
        data=DataConfig(source="arrays", max_length=64),
        tokenizer=dataclasses.replace(SMALL.tokenizer, joint=False),
    )  # fmt: skip
    kinds = (TokenizerPair(pictures, theirs), TokenizerPair(theirs, theirs))
    pair = TokenizerPair(pictures, codec)
    ours = random_params(build_for(both, *pair.sizes), 2)
    theirs = random_params(build_for(both, *kinds[0].sizes), 1)
    more = jax.tree.map(lambda x: x + 1, theirs)
    given = (
        {"encoder": theirs["encoder"], "positions": theirs["src_positions"]},
        {name: more[name] for name in ("encoder", "embedding")}
        | {"positions": more["src_positions"]},
    )
    loaded = [TrainedModel(both, None, params, kind, [1], Path(name))
              for name, params, kind in zip(("one", "two"), given, kinds, strict=True)]  # fmt: skip
    monkeypatch.setattr(warm_start, "_load", lambda _: loaded)
    found = warm_start.begin(both, TrainState(0, 0, ours, (), None), pair)
    params, old = flat(found.state.params), flat(theirs)
    for name, array in params.items():
        if name.startswith(("encoder/", "src_positions/")):
            assert np.array_equal(array, old[name])
    assert np.array_equal(params["tgt_positions/table"], old["src_positions/table"] + 1)
    assert np.array_equal(params["connector/kernel"], flat(ours)["connector/kernel"])
    rows = {p: i for i, p in enumerate(kinds[1].tgt.pieces(range(kinds[1].tgt.size)))}
    table = {p: params["embedding/table"][i] for i, p in enumerate(codec.pieces(range(codec.size)))}
    known = set(rows) & set(table)  # pieces of this side, though the other has none
    assert len(known) > 10
    assert all(np.array_equal(table[p], old["embedding/table"][rows[p]] + 1) for p in known)
    assert found.lines[0] == "parameters initialised from one, step 1 and two, step 1:"

"""Benchmarks on tiny models without a GPU: their stages run, and their arithmetic is right."""

import argparse
import ast
import dataclasses
import importlib
import importlib.util
import json
import random
import re
import time
from fractions import Fraction
from pathlib import Path

import jax
import numpy as np
import pytest
from server.conftest import listening, stand_in
from server.test_limits import Paced
from tiny import MODEL, VOCAB, alone, logits_of, make, random_store

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import load_config
from transformer_jax.config import ModelConfig
from transformer_jax.config.convert import parse
from transformer_jax.data.sources import Corpus
from transformer_jax.models.build import abstract_params, build
from transformer_jax.runs.workdir import WorkDir

PLACE = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = {path.stem: path for path in sorted(PLACE.rglob("*.py"))}


@pytest.fixture(scope="module", autouse=True)
def as_in_the_benchmark_folders():
    with pytest.MonkeyPatch.context() as patch:
        for folder in ("speed", "studies", "peers"):  # whose scripts import from their own
            patch.syspath_prepend(PLACE / folder)
        for variable in ("OMP_NUM_THREADS", "NPROC"):  # which benchmarks would set for all tests
            patch.setenv(variable, "1")
        yield


def script(name):
    """Return a benchmark as a module, under another name, as there are two train.py."""
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", SCRIPTS[name])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", SCRIPTS.values(), ids=SCRIPTS)
def test_imports_from_the_package_exist(path):
    """Also of benchmarks that cannot run because a peer is not installed."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("transformer_jax"):
            module = importlib.import_module(node.module)
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")


def test_pages_name_benchmarks_that_exist():
    """Also configs and the benchmarks themselves, in the commands that they show."""
    pages = [*PLACE.parent.glob("*.md"), *PLACE.parent.glob("docs/*.md"),
             *PLACE.parent.glob("results/**/*.md"), *PLACE.parent.glob("configs/*.py"),
             *PLACE.rglob("*.*")]  # fmt: skip
    named = {
        name
        for page in pages if page.suffix in (".md", ".py", ".sh")
        for name in re.findall(r"\bbenchmarks/[\w/]+\.\w+", page.read_text(encoding="utf-8"))
    }  # fmt: skip
    assert len(named) > len(SCRIPTS) / 2
    assert [name for name in sorted(named) if not (PLACE.parent / name).is_file()] == []


@pytest.fixture(scope="module")
def gpu():
    return script("gpu")


def test_operations_of_language_models_are_counted_as_announced(gpu):
    """By hand: 6 for each weight that a piece meets, and attention by half of its pairs."""
    lm = gpu.gpu_lm
    block = 4 * 768**2 + 2 * 768 * 3072
    gpt2 = 6 * (12 * block + 50_304 * 768 + 12 * 1024 * 768)
    llama = 2 * 2048**2 + 2 * 2048 * 512 + 3 * 2048 * 5632
    assert lm.operations(lm.GPT2) == gpt2 == pytest.approx(388e12 / 485_753, rel=2e-3)
    assert lm.operations(lm.LLAMA) == 6 * (16 * (llama + 2048**2) + 32_000 * 2048)
    more = 12 * (2 * 768 * 3072 + 768 * 8)  # a second expert, and the router
    assert lm.operations(lm.SHAPES["experts"]) == gpt2 + 6 * more
    assert lm.bytes_of_a_step(lm.LLAMA, 2, 10) == 2 * (
        16 * llama + 32_000 * 2048 + 2 * 10 * 16 * 2 * 512
    )


def test_language_models_have_as_many_parameters_as_their_peers(gpu):
    torch, lm = pytest.importorskip("torch"), gpu.gpu_lm
    peer = importlib.import_module("lm_torch").LanguageModel
    for shape in (lm.GPT2, lm.LLAMA, lm.small(lm.LLAMA)):
        with torch.device("meta"):
            network = peer(shape.pieces, shape.width, shape.hidden, shape.layers, shape.heads,
                           shape.kv_heads, shape.length, shape.llama)  # fmt: skip
        model = build(lm.model_config(shape, dry=False), shape.pieces, shape.pieces)
        ours = sum(x.size for x in jax.tree.leaves(abstract_params(model)))
        assert ours == sum(parameter.numel() for parameter in network.parameters())


LM_PEERS = ("lm-train-llama-torch", "lm-train-gpt2-torch")
LM_REST = [
    pytest.param(name, marks=pytest.mark.e2e)
    for name in ("lm-train-experts-ours", "lm-train-llama-ours", "lm-trace-gpt2-ours",
                 "lm-decode-8-ours", "lm-decode-8-transformers")
]  # fmt: skip


@pytest.mark.parametrize("stage", [*LM_PEERS, *LM_REST])
def test_language_models_run_dry(gpu, stage):
    pytest.importorskip("transformers" if stage.endswith("transformers") else "torch")
    row = gpu.measure(stage, dry=True)
    assert (row["stage"], row["dry_run"]) == (stage, True)
    if "train" in stage:
        assert row["loss"] == pytest.approx(np.log(64), rel=0.05)
    assert row.get("target_tokens_per_s", row.get("milliseconds")) > 0


def test_language_models_are_compared_with_their_peers(gpu):
    lines = {
        "lm-train-gpt2-ours": {"target_tokens_per_s": 300.0, "operations_per_s": 5.0},
        "lm-train-gpt2-torch": {"target_tokens_per_s": 200.0, "operations_per_s": 4.0},
        "lm-train-llama-torch": {"target_tokens_per_s": 1.0},
        "lm-decode-8-ours": {"target_tokens_per_s": 40.0, "sampled_target_tokens_per_s": 30.0,
                             "bytes_per_s": 7.0},
        "lm-decode-8-transformers": {
            "target_tokens_per_s": 20.0, "sampled_target_tokens_per_s": 10.0,
        },
    }  # fmt: skip
    assert gpu.gpu_lm.compared(lines) == [
        {"stage": "lm-train-gpt2-ours", "target_tokens_per_s": 300.0, "ratio": 1.5,
         "operations_per_s": 5.0},
        {"stage": "lm-decode-8-ours", "target_tokens_per_s": 40.0, "ratio": 2.0,
         "sampled_target_tokens_per_s": 30.0, "sampled_ratio": 3.0, "bytes_per_s": 7.0},
    ]  # fmt: skip


# The paper's base model takes half a minute to compile.
BASE = [pytest.param(name, marks=pytest.mark.e2e)
        for name in ("train-base-ours-fused", "decode-base-ours-beam")]  # fmt: skip


PEER = pytest.param("decode-base-ctranslate2-beam", marks=pytest.mark.e2e)


@pytest.mark.parametrize("stage", ["matmul", *BASE, PEER])
def test_a_dry_run_measures_a_rate(gpu, stage):
    if "ctranslate2" in stage:
        pytest.importorskip("ctranslate2")
    row = gpu.measure(stage, dry=True)
    assert (row["stage"], row["dry_run"]) == (stage, True)
    assert (row["operations_per_s"] or 0) + (row["target_tokens_per_s"] or 0) > 0


@pytest.mark.e2e
def test_a_trace_lists_kernels_by_time(gpu):
    """In a dry run, some of whose kernels are matrix products."""
    row = gpu.measure("trace-base", dry=True)
    names, times, counts = zip(*row["kernels"], strict=True)
    assert any("dot" in name for name in names)
    assert sum(times) <= row["milliseconds"] + 1e-3 * len(times)
    assert list(times) == sorted(times, reverse=True)
    assert min(counts) >= 1


@pytest.mark.e2e
def test_fused_attention_agrees_with_dense(gpu):
    """In float32 and by XLA, as in dry runs; with rows of every length, padding and dropout."""
    row = gpu.measure("agree", dry=True)
    assert 0 < row["fused_from_dense"] < 1e-5
    assert row["dense_from_float32"] == 0
    assert row["same_bits"] == dict.fromkeys(("float32", "dense", "fused"), True)


def test_the_summary_compares_with_the_fastest_peer(gpu, tmp_path, capsys):
    """It has the ratio to the fastest peer of the same search and size, and the matmul share."""
    stages = {
        "matmul": (None, 100.0),
        "train-base-ours-fused": (300.0, 50.0),
        "train-base-torch": (100.0, 20.0), "train-base-torch-compile": (200.0, 40.0),
        "train-big-torch": (900.0, 40.0),
        "decode-base-ours-beam": (60.0, None),
        "decode-base-transformers-beam": (20.0, None),
        "decode-base-transformers-greedy": (99.0, None),
    }  # fmt: skip
    keys = "target_tokens_per_s", "operations_per_s"
    rows = [{"stage": s} | dict(zip(keys, both, strict=True)) for s, both in stages.items()]
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    gpu.summary(path)
    first, *shown = capsys.readouterr().out.splitlines()
    assert first == "bfloat16 matmul: 100 operations/s"
    assert [json.loads(line) for line in shown] == [
        {"stage": "train-base-ours-fused", "target_tokens_per_s": 300.0,
         "ratio_to_best_peer": 1.5, "share_of_matmul_rate": 0.5},
        {"stage": "decode-base-ours-beam", "target_tokens_per_s": 60.0, "ratio_to_best_peer": 3.0},
    ]  # fmt: skip


def test_trimming_batches_removes_only_padding(tmp_path, monkeypatch):
    """Only real target tokens are counted; batches for torch are without padding."""
    train = script("train")
    monkeypatch.setattr(train, "VOCABULARY", 16)
    lines = [" ".join(f"{number * number}") for number in range(1, 200)]
    for language in ("en", "de"):
        (tmp_path / f"train.{language}").write_text("\n".join(lines) + "\n")
    batches, rate = train.load_batches(str(tmp_path), 512, 2)
    assert rate > 0
    for batch, tight in zip(batches, map(train.trimmed, batches), strict=True):
        weight = tight.targets["tokens"].weight
        assert train.target_tokens(batch) == batch.targets["tokens"].weight.sum() == weight.sum()
        assert weight.any(0).all()
        assert weight.any(1).all()
        np.testing.assert_array_equal(tight.src.inputs[tight.src.seg > 0],
                                      batch.src.inputs[batch.src.seg > 0])  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("architecture", ["encoder_decoder", "decoder"])
def test_operations_of_a_decoder_step(architecture):
    """Those of the maps, computed by formula, and hardly any others."""
    decode, size = script("decode"), {"d_model": 128, "d_ff": 256, "num_heads": 4}
    c = ModelConfig(architecture=architecture, num_decoder_layers=4, **size)
    heads = c.num_heads * (c.key_size + c.value_size)
    cross = c.d_model * heads if architecture == "encoder_decoder" else 0  # source keys: only once
    layer = 2 * c.d_model * heads + cross + 2 * c.d_model * c.d_ff
    maps = 2 * (c.num_decoder_layers * layer + c.d_model * 500)
    assert maps < decode.flops_per_token(build(c, 500, 500)) < 1.02 * maps


@pytest.mark.thorough
def test_the_torch_gpt_takes_the_same_steps(tmp_path):
    """Its loss equals ours after several updates with a schedule and clipping."""
    pytest.importorskip("torch")
    benchmark = script("language_model")
    (tmp_path / "train.txt").write_text("To be, or not to be, that is the question.\n" * 40)
    experiment = benchmark.shakespeare(str(tmp_path), "cpu", sequences=3)
    small = {"d_model": 16, "d_ff": 24, "num_heads": 2, "num_decoder_layers": 1}
    experiment = dataclasses.replace(
        experiment,
        model=dataclasses.replace(experiment.model, **small),
        optimizer=dataclasses.replace(experiment.optimizer, warmup_steps=4),
    )
    task = benchmark.make_task(experiment, steps=6)
    runs = [benchmark.engine(name, task) for name in (benchmark.OURS, "torch")]
    first = [run() for run in runs]
    np.testing.assert_allclose(first[0], first[1], rtol=1e-5)
    assert runs[0]() < 0.9 * first[0]


def test_curves_are_interpolated_but_not_extrapolated():
    at = script("variants").at
    steps, losses = [100, 200, 400], [4.0, 3.0, 1.0]
    assert [at(steps, losses, step) for step in (100, 150, 300, 400)] == [4.0, 3.5, 2.0, 1.0]
    assert at(steps, losses, 99) is None
    assert at(steps, losses, 401) is None


def test_the_table_of_variants_leaves_unknown_values_empty(tmp_path):
    """Means are over the seeds that have the value."""
    variants = script("variants")

    def row(name, **fields):
        points = [{"loss": loss, "loss_at_equal_time": loss + 0.1, "parameters": 10} | extra
                  for loss, extra in fields.pop("seeds")]  # fmt: skip
        return {"variant": name, "points": points, "train": None, "decode": None,
                "memory_mb": None} | fields  # fmt: skip

    rows = [row("base", seeds=[(2.0, {"bleu": 30.0}), (2.2, {"bleu": 31.0})]),
            row("ff-x", seeds=[(1.5, {"bleu": 29.0, "p": 0.04})], train=0.9)]  # fmt: skip
    lines = variants.markdown(rows).splitlines()
    assert lines[2] == "| base (2 seeds) | 10 | 2.1000 | 2.2000 | 30.50 |  |  |  |  |"
    assert lines[3] == "| ff-x | 10 | 1.5000 | 1.6000 | 29.00 | 0.040 | 0.90 |  |  |"
    variants.draw(rows, tmp_path / "table.svg")
    assert "ff-x" in (tmp_path / "table.svg").read_text()


def test_new_results_are_merged_into_the_table_of_variants():
    """New seeds are added, a repeated seed replaces the earlier one, and other results stay."""
    variants = script("variants")
    base = {"seed": 0, "loss": 2.0, "steps": [100, 200], "losses": [4.0, 2.0]}
    swiglu = base | {"loss": 1.8, "losses": [4.0, 1.8]}
    rows = variants.merge([], {"ff-swiglu": [swiglu], "base": [base]}, {})
    assert [row["variant"] for row in rows] == ["base", "ff-swiglu"]
    again = [{**swiglu, "loss": 1.9}, {**swiglu, "seed": 1}]
    speeds = {"train": 0.8, "decode": 0.9, "memory_mb": 100}
    rows = variants.merge(rows, {"ff-swiglu": again}, {"base": speeds | {"train": 1.0}})
    assert [one["loss"] for one in rows[1]["points"]] == [1.9, 1.8]
    assert rows[0]["points"] == [base]
    assert rows[0]["memory_mb"] == 100
    variants.at_equal_time(rows, 0.9)
    assert rows[0]["points"][0]["loss_at_equal_time"] == pytest.approx(4 - 2 * 0.8)
    assert rows[1]["points"][0]["loss_at_equal_time"] is None  # its speed is not known
    rows = variants.merge(rows, {}, {"ff-swiglu": speeds | {"train": 0.75}})
    variants.at_equal_time(rows, 0.9)
    # Three quarters of base's 180 updates.
    assert rows[1]["points"][0]["loss_at_equal_time"] == pytest.approx(4 - 2.2 * 0.35)


def test_joined_sentences_stay_aligned_with_their_translations():
    """Consecutive ones are joined, up to a number of words; all occur."""
    pairs = [(f"{'a ' * (n % 7 + 1)}s{n}", f"t{n}") for n in range(40)]
    texts = script("lengths").joined(pairs, 500, 24, random.Random(0))
    assert len(texts) == 500
    for one, other in texts:
        assert [w[1:] for w in one.split() if w[0] == "s"] == [w[1:] for w in other.split()]
        assert 1 <= len(one.split()) <= 24
    assert max(len(one.split()) for one, _ in texts) > 20
    assert len({word for _, other in texts for word in other.split()}) == 40


def test_folds_share_no_text_and_every_text_is_tested_once(tmp_path):
    """Classes are balanced, and the table pools the predictions of all folds."""
    folds = script("folds")
    for part, count in (("train", 90), ("validation", 30)):
        (tmp_path / f"{part}.text").write_text("".join(f"{part} {i}\n" for i in range(count)))
        (tmp_path / f"{part}.label").write_text("pos\nneg\n" * (count // 2))
    place, sweep = tmp_path / "folds", tmp_path / "sweep"
    folds.make_text(argparse.Namespace(reviews=tmp_path, output=place, folds=4))
    tested: list[str] = []
    for fold in range(4):
        texts = {
            split: (place / f"fold-{fold}/{split}.text").read_text().splitlines()
            for split in ("train", "validation", "test")
        }
        assert [len(lines) for lines in texts.values()] == [81, 9, 30]
        assert len({line for lines in texts.values() for line in lines}) == 120
        labels = (place / f"fold-{fold}/test.label").read_text().splitlines()
        assert labels.count("pos") == labels.count("neg") == 15
        tested += texts["test"]
        for arm, wrong in (("tuned", 3), ("scratch", 6)):
            workdir = WorkDir(sweep / f"{arm}-{fold}")
            workdir.eval.mkdir(parents=True)
            config = load_config(f"{PLACE.parent}/configs/movie_folds.py:{arm}-{fold}")
            config.data.directory = str(place)
            workdir.write_config(parse(config))
            said = ["neither"] * wrong + labels[wrong:]
            (workdir.eval / "test.best.hyp").write_text("".join(f"{label}\n" for label in said))
            result = {"references": "", "sentences": 30, "evaluation": {}, "scores": {}}
            (workdir.eval / "test.best.json").write_text(json.dumps(result))
    assert len(set(tested)) == 120
    output = tmp_path / "table.json"
    folds.make_table(argparse.Namespace(
        sweep=sweep, arms=("tuned", "scratch"), folds=4, output=output
    ))  # fmt: skip
    scratch, tuned = json.loads(output.read_text())
    assert (scratch["accuracy"], tuned["accuracy"]) == (80.0, 90.0)
    assert tuned["mcnemar"] == pytest.approx(2 / 2**12)
    assert tuned["difference"][0] == 10.0
    folds.make_control(argparse.Namespace(place=place, folds=4, words=None, output=output))
    presence, counts = json.loads(output.read_text())
    assert (presence["texts"], counts["texts"]) == (120, 120)


@pytest.mark.parametrize("once", [True, False])
def test_naive_bayes_follows_bayes_rule(once):
    """In exact fractions, word by word."""
    folds, rng = script("folds"), random.Random(1)
    words = [f"w{i}" for i in range(9)]
    texts = [" ".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(60)]
    learned = [(text, "pos" if text[1] in "01234" else "neg") for text in texts[:20]]
    bags = {label: [w for text, own in learned if own == label
                    for w in (set(text.split()) if once else text.split())]
            for label in ("pos", "neg")}  # fmt: skip
    known = {*bags["pos"], *bags["neg"]}

    def chance(text: str, label: str) -> Fraction:
        found = Fraction(sum(own == label for _, own in learned), len(learned))
        for word in set(text.split()) if once else text.split():
            if word in known:
                found *= Fraction(bags[label].count(word) + 1, len(bags[label]) + len(known))
        return found

    said = folds.naive_bayes(learned, [f"{text.upper()} new" for text in texts[20:]], once)
    assert said == [max(bags, key=lambda label: chance(t, label)) for t in texts[20:]]
    assert len({*said}) == 2


@pytest.mark.thorough
def test_input_stages_build_on_one_another(monkeypatch, tmp_path):
    """Text is written, encoded, planned and read, each stage using the output of earlier ones."""
    bench = script("input")
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path))
    for name, small in (("POOL", 2000), ("ALONE", 100), ("SECONDS", 0.01)):
        monkeypatch.setattr(bench, name, small)
    for source in ("text", "spelled_numbers"):
        place = tmp_path / source
        place.mkdir()
        arguments = argparse.Namespace(source=source, pairs=300, place=place, batching="bucket")
        rows = {name: stage(arguments) for name, stage in bench.STAGES.items()}
        assert rows["alone"]["pairs_per_s"] > 0
        assert rows["warm"]["target_tokens_per_s"] > 0
        assert rows["warm"]["kept"] == 300
        assert bench.rows_of(place) == 0  # nothing is left half done
    for name in bench.FORMATS:
        arguments = argparse.Namespace(formats=name, pairs=300, place=tmp_path, stage="read")
        rows = [stage(arguments) for stage in bench.READING.values()]
        assert rows[1]["rows_per_s"] > 0


def test_listops_guesses_and_levels():
    """Each way of guessing uses only what it may know; only levels that matter are counted."""
    found = script("listops")
    train = Corpus(["[MAX 1 X", "[MAX 2 3 X", "[MIN 7 8 X", "[SM 3 3 X"], ["3", "3", "7", "6"], "")
    texts = ["[MAX 1 [MIN 9 8 X 2 X", "[MIN [SM 4 4 X X"]
    assert [found.Nested.of(text).levels() for text in texts] == [2, 2]
    # A 9 hides the other arguments of MAX, a 0 those of MIN; a sum hides nothing.
    hidden = ["[MAX 9 [SM 1 [SM 2 3 X X X", "[SM 9 [MIN 0 [SM 2 3 X X X", "[MED 1 1 1 [SM 4 X X"]
    assert [found.Nested.of(text).levels() for text in hidden] == [1, 2, 1]
    said = found.guesses(train, texts)
    assert said == {found.COMMONEST: ["3", "3"], found.FIRST: ["3", "7"], found.DIGITS: ["2", "7"]}
    row = found.scored(Corpus([*texts, "[MAX 5 X"], ["8", "7", "5"], ""), ["8", "8", "5"])
    assert row["accuracy"] == 66.67
    assert [(group["depth"], group["accuracy"]) for group in row["by_depth"]] == [(1, 100), (2, 50)]


def test_groups_by_length_hold_every_sentence_once():
    """Sentences of one length stay together; the BLEU of a group is that of its sentences."""
    by_words = script("predecessors").by_words
    lengths = [3, 3, 3, 3, 4, 5, 5, 9]
    right = [4, 3, 2, 1, 4, 3, 2, 1, 4, 4]
    rows = [
        {"source": "a " * n, "counts": right if n < 9 else [0] * 4 + right[4:]} for n in lengths
    ]
    groups = by_words(rows, 4)
    assert [(g["words"], g["sentences"]) for g in groups] == [(3, 4), (4, 1), (5, 2), (9, 1)]
    assert [g["bleu"] for g in groups] == [100, 100, 100, 0]


@pytest.mark.thorough
def test_requests_refused_by_an_overloaded_server_are_counted():
    """The counts are those of the server, and every request is answered."""
    serve, stream = script("serve"), Paced(rows=2)
    turn, stream.open = stream.turn, True
    stream.turn = lambda *given: (time.sleep(0.05), turn(*given))[1]  # twenty texts a second
    with listening(stand_in(stream, queue=8)) as (address, service):
        port = int(address.rstrip("/").rpartition(":")[2])
        bodies = [{"text": "a dog"}] * 60
        work = serve.arriving(lambda: serve.Connection(port, "/api/translate"), bodies, 1e9)
        found = serve.row("ours", {}, work, None)
        text = service.metrics.text().decode()
    assert (found["requests"], found["failed"]) == (60, 0)
    counts = dict(
        re.findall(r'requests_total{endpoint="/api/translate",status="(\d+)"} (.*)', text)
    )
    assert float(counts["429"]) == found["refused"] > 0
    assert float(counts["200"]) == 60 - found["refused"] > 0


def test_a_widened_model_computes_the_same():
    """Repeated features, heads and units, and added layers, change no logit."""
    widen = script("widen")
    small = dataclasses.replace(MODEL, residual="pre_norm")
    sizes = {"d_model": 64, "d_ff": 72, "num_heads": 4, "head_dim": 12}
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 3}
    learned = {"positions": "learned", "max_positions": widen.POSITIONS}
    large = dataclasses.replace(small, **sizes, **layers, **learned)
    batch = alone(random_store([(5, 4), (3, 6)]), 2, 6, 6)
    model, params = make(small)
    found = logits_of(build(large, VOCAB, VOCAB), widen.widened(small, params, large, VOCAB), batch)
    np.testing.assert_allclose(found, logits_of(model, params, batch), atol=1e-5)


def test_controls_of_drawings_have_the_moments_of_their_class():
    """And what is copied from training is nearest to it."""
    study, rng = script("drawings"), np.random.default_rng(0)
    images = np.zeros((400, 6, 6), np.uint8)
    images[:200] = rng.normal(60, 9, (200, 6, 6))
    images[200:] = rng.normal(180, [[[5]], [[20]]] * 100, (200, 6, 6))
    train = study.Pictures(images, ["a"] * 200 + ["b"] * 200)
    for components in (0, 32):
        made = study.normal(train, ["b"] * 300, components, rng).images.astype(float)
        real = images[200:].astype(float)
        assert made.mean() == pytest.approx(real.mean(), abs=1)
        assert made.std() == pytest.approx(real.std(), rel=0.1)
    assert study.nearest(train.some(np.arange(9)), train) == pytest.approx(0, abs=1e-2)
    assert study.nearest(study.Pictures(images[:9] + 100, ["a"] * 9), train) > 20


def test_words_of_residues_have_a_label_each():
    """A window's one-hot vectors say which residue is where, and logistic regression learns it."""
    study = script("protein_structure")
    chain = study.Chain("MKTAYW", "CCHHEC", "011001")
    assert study.words(chain) == ("K TAY W", "C H C")
    assert study.labels(chain).tolist() == [2, 0, 2]
    seen, truth = study.table([chain], 1, False)
    size = len(study._LETTERS) + 1
    columns = seen.toarray().nonzero()[1].reshape(3, 3) - size * np.arange(3)
    spelled = ["".join([*study._LETTERS, "-"][i] for i in row) for row in columns]
    assert spelled == ["MKT", "KTA", "YW-"]
    assert truth.tolist() == [2, 0, 2]
    assert study.table([chain], 1, True)[0].sum(1).ravel().tolist() == [[5, 5, 5]]
    rng = random.Random(0)
    long = "".join(rng.choice("AVK") for _ in range(20_000))
    learnable = study.Chain(long, long.translate(str.maketrans("AVK", "HEC")), "1" * 20_000)
    found = study.control({"train": [learnable], "validation": [chain], "test": [learnable]},
                          1, False, 0.0)  # fmt: skip
    assert found["test"] == 100
    assert study.related(["MKTAYWLLGHA"], ["AAAA", "MKTAYWLLGHV"]) == {0}


def test_notes_of_a_voice_are_held_until_the_pitch_changes():
    """In the file of MIDI, too, whose times are differences."""
    study = script("chorales")
    music = "60,-1 60,50 62,50 62,50"
    assert study.held(music) == [(0, 0, 2, 60), (0, 2, 2, 62), (1, 1, 3, 50)]
    assert study.events(study.held(music), 0) == [
        (0, True, 60), (240, False, 60), (240, True, 62), (480, False, 62)
    ]  # fmt: skip
    assert len(study.picture(music).axes[0].patches) == 3
    mido = pytest.importorskip("mido")
    tracks = study.midi(music, tempo=60).tracks
    sent = [[(x.type, x.note, x.time) for x in track if not x.is_meta] for track in tracks]
    assert sent[1] == [("note_on", 50, 120), ("note_off", 50, 360)]
    assert mido.MidiFile(tracks=tracks, ticks_per_beat=480).length == 1.0  # a quarter note


def test_forms_are_scored_by_language(tmp_path, monkeypatch, capsys):
    """The mean gives each language the same weight; a bad row is named by its line."""
    study = script("inflection")
    rows = ["a\tx\tV\ty", "b\tx\tV\ty", "b\tx\tN\tz", "b\tu\tN\tv"]
    (tmp_path / "forms.tsv").write_text("\n".join(rows))
    (tmp_path / "found").write_text("y\ny\nx\nx\n")
    monkeypatch.setattr("sys.argv", ["", f"{tmp_path}/forms.tsv", f"{tmp_path}/found"])
    study.main()
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["33.33", "%", "b,", "3"]
    assert printed[-1].strip() == "66.67 %  mean of 2 languages; 50.00 % of 4 forms"
    (tmp_path / "found").write_text("y\ny\n")
    with pytest.raises(UserError, match=r"has 2 lines, and .*forms\.tsv 4 rows"):
        study.main()
    (tmp_path / "forms.tsv").write_text("\n".join([*rows, "b\tx"]))
    with pytest.raises(UserError, match=r"forms\.tsv:5: has 2 columns"):
        study.main()


def test_right_answers_among_the_most_probable():
    study = script("top_n")
    places = study.ranks([["a", "a ", "b"], ["c", "d"], ["e"]], ["b", "c", "x"])
    assert places == [1, 0, None]
    assert [round(share, 1) for share, _, _ in study.shares(places, 3)] == [33.3, 66.7, 66.7]


def test_boards_of_games_as_text():
    """What is on the squares after each move, and what is commonest there after as many."""
    chess = pytest.importorskip("chess")
    study = script("chess_text")
    games = [["e4", "e5", "Nf3"], ["e4", "c5"], ["d4"]]
    held = study.after_moves(games)
    assert [len(one) for one in held] == [3, 2, 1]
    white, black = 0, 6
    assert held[0][1][[chess.E4, chess.E5]].tolist() == [white + 1, black + 1]
    assert held[0][2][[chess.G1, chess.F3]].tolist() == [0, white + chess.KNIGHT]
    assert [study.is_legal(board, move) for board, move in zip(
        study.boards(games[0]), ("Nf3", "e4", "[UNK]"), strict=True
    )] == [True, False, False]  # fmt: skip
    plies = np.concatenate([np.arange(len(one)) for one in held])
    said = study.commonest_by_ply(np.concatenate(held), plies, np.array([0, 9]))
    np.testing.assert_array_equal(said, [held[0][0], held[0][2]])

"""One stage of benchmarks/speed/gpu.sh: training or decoding on one GPU, ours or PyTorch's.

    python benchmarks/speed/gpu.py --list
    python benchmarks/speed/gpu.py STAGE --output=FILE [--dry-run]

The stages of language models, `lm-...`, are those of gpu_lm.py. Of the others: bfloat16 products
with float32 weights; batches of 25,000 random target pieces without padding, 64 per row, and 2,048
for the tiny model, whose kernels take less time than their launch. Each measurement is of a full
step: forward, backward, label smoothing, dropout 0.1, Adam. `ours-several`
makes all steps of a group in one call (training.steps_per_execution). PyTorch runs its own model
with `scaled_dot_product_attention` and fused Adam, eager, with `torch.compile`, or with that and
CUDA graphs (`torch-graphs`, its mode "reduce-overhead").

Decoding produces 64 forced tokens from 256 sources of 64 pieces, greedily or with a beam of 4,
against `generate` of a MarianMTModel, whose weights are bfloat16 as well, and CTranslate2 in
float16 with our weights.

The first calls, which compile, are excluded; the median of the others counts, timed until the
device has finished: of a decoding call, or of 5 training steps (10 of the tiny model) submitted one
after another without waiting, as a training run does. The stage `agree` shows whether fused and
dense attention have the same gradients, and whether a recomputed gradient is bitwise identical;
`ours-again` repeats `ours-fused` in another process, and the summary says whether all parameters
are bitwise identical after the same number of steps. `trace-SIZE` lists the slowest kernels of one
of our steps.
"""

import argparse
import dataclasses
import gzip
import hashlib
import json
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_lm
import numpy as np

SIZES = {
    "tiny": {"d_model": 128, "d_ff": 256, "num_heads": 4, "layers": 4},
    "base": {"d_model": 512, "d_ff": 2048, "num_heads": 8, "layers": 6},
    "big": {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "layers": 6},
}
DRY = {"d_model": 32, "d_ff": 48, "num_heads": 4, "layers": 1}
TRAIN = ("ours-fused", "ours-dense", "torch", "torch-compile")
SMALL = ("ours-several", "ours-fused", "torch-graphs", "torch-compile", "torch")
DECODE = [f"{who}-{search}" for search in ("beam", "greedy")
          for who in ("ours", "ctranslate2", "transformers")]  # fmt: skip
AGAIN = "train-base-ours-again"  # and the stage of which it is a repetition
FIRST = "train-base-ours-fused"
# Most valuable first: base before big, and in each group, stages without a peer last; then language
# models, of which gpu.sh can be asked alone.
STAGES = (
    "agree", "matmul",
    *(f"train-base-{engine}" for engine in TRAIN), AGAIN, "trace-base",
    *(f"train-tiny-{engine}" for engine in SMALL),
    *(f"decode-base-{engine}" for engine in DECODE),
    *(f"train-big-{engine}" for engine in TRAIN), "trace-big",
    *(f"decode-big-{engine}" for engine in DECODE),
    *gpu_lm.STAGES,
)  # fmt: skip


class Task:
    """The sizes of a stage."""

    def __init__(self, size: str, dry: bool) -> None:
        self.dry = dry
        self.model = DRY if dry else SIZES[size]
        tiny = size == "tiny"
        self.vocab = 64 if dry else 10_000 if tiny else 32_000
        self.rows, self.length = (
            (4, 8) if dry else (32 if tiny else 392, 64)
        )  # 2,048 or 25,088 pieces
        self.sources = 4 if dry else 256
        self.steps = 10 if tiny else 5  # of training, submitted together
        self.rounds = 2 if dry else 10


Work = Callable[[], Any]  # returns when the device is done


def model_config(task: Task, attention: str) -> Any:
    """Return our model configuration."""
    from transformer_jax.config import ModelConfig

    m = task.model
    return ModelConfig(
        d_model=m["d_model"], d_ff=m["d_ff"], num_heads=m["num_heads"],
        num_encoder_layers=m["layers"], num_decoder_layers=m["layers"],
        # CPUs, on which dry runs may run, lack some bfloat16 products.
        compute_dtype="float32" if task.dry else "bfloat16", attention=attention,
    )  # fmt: skip


def ids(task: Task, rows: int) -> np.ndarray:
    """Return random pieces [rows length]."""
    return np.random.default_rng(0).integers(4, task.vocab, (rows, task.length)).astype(np.int32)


def batch_of(tokens: np.ndarray, seg: np.ndarray) -> Any:
    """Return a batch with these pieces as source, target and labels; segments are 0 or 1."""
    from transformer_jax.data.batches.batch import Batch, Side, Target

    pos = np.broadcast_to(np.arange(tokens.shape[1], dtype=np.int32), tokens.shape).copy()
    side = Side(tokens, pos, seg)
    return Batch(side, side, {"tokens": Target(tokens, seg.astype(np.float32))})


def matmul(task: Task) -> tuple[Work, float]:
    """Return a large bfloat16 product and its number of operations."""
    import jax
    import jax.numpy as jnp

    size = 128 if task.dry else 8192
    # Not ones: the power draw of a product, and so its rate, depends on the values.
    a = jax.random.normal(jax.random.key(0), (size, size), jnp.bfloat16)
    product = jax.jit(lambda a, b: jnp.matmul(a, b))
    return lambda: product(a, a).block_until_ready(), 2.0 * size**3


def agree(task: Task) -> dict[str, Any]:
    """Return how far fused attention is from dense, dense from float32, and if bits repeat.

    Distances are relative norms of the difference of the whole gradient, for rows of random lengths
    up to an odd one, with dropout, of a model of one layer a side.
    """
    import jax
    import optax

    from transformer_jax.config import TrainingConfig
    from transformer_jax.models.build import build, init_params
    from transformer_jax.training.step import batch_sums, keys_of

    rows = 4 if task.dry else 64
    task.model = {**task.model, "layers": 1}
    tokens = ids(task, rows)[:, 1:]
    lengths = np.random.default_rng(1).integers(2, task.length, rows)
    seg = (np.arange(task.length - 1) < lengths[:, None]).astype(np.int32)
    batch = jax.device_put(batch_of(tokens, seg))
    dense = model_config(task, "dense")
    forms = {
        "float32": dataclasses.replace(dense, compute_dtype="float32"),
        "dense": dense,
        "fused": model_config(task, "fused"),
    }
    params = jax.jit(lambda key: init_params(build(dense, task.vocab, task.vocab), key))(
        jax.random.key(0)
    )
    gradients, same = {}, {}
    for name, config in forms.items():
        model = build(config, task.vocab, task.vocab, single=True)

        def loss(params: Any, model: Any = model) -> Any:
            sums = batch_sums(model, TrainingConfig(), params, batch, keys_of(1, 0, 1))
            return sums.loss / lengths.sum()

        gradient = jax.jit(jax.grad(loss))
        gradients[name], *others = [gradient(params) for _ in range(4)]
        bits = jax.tree.map(lambda *x: len({np.asarray(y).tobytes() for y in x}) == 1,
                            gradients[name], *others)  # fmt: skip
        same[name] = bool(jax.tree.all(bits))

    def distance(one: str, two: str) -> float:
        difference = jax.tree.map(lambda x, y: x - y, gradients[one], gradients[two])
        return float(optax.tree.norm(difference) / optax.tree.norm(gradients[two]))

    return {
        "fused_from_dense": distance("fused", "dense"),
        "dense_from_float32": distance("dense", "float32"),
        "same_bits": same,
    }


def train_ours(task: Task, attention: str, several: bool) -> tuple[Work, Callable[[], str]]:
    """Return our training steps, all in one call if `several`, and a function that returns a digest
    of the parameters.
    """
    import jax

    from transformer_jax.config import OptimizerConfig, TrainingConfig
    from transformer_jax.models.build import build

    model = build(model_config(task, attention), task.vocab, task.vocab, single=True)
    tokens = ids(task, task.rows)
    batch = batch_of(tokens, np.ones_like(tokens))
    configs = OptimizerConfig(), TrainingConfig()
    at_once = task.steps if several else 1
    made = gpu_lm.training(model, *configs, batch, task.steps, at_once)

    def digest() -> str:
        found = hashlib.sha256()
        for leaf in jax.tree.leaves(jax.device_get(made.state().params)):
            found.update(leaf.tobytes())
        return found.hexdigest()[:16]

    return made.work, digest


def train_torch(task: Task, variant: str) -> Work:
    """Return training steps of the same model in PyTorch: "compile", "graphs", or "" for eager."""
    sys.path.append(str(Path(__file__).parents[1] / "peers"))
    import torch
    from gpu_torch import Transformer

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    network: Any = Transformer(task.vocab, **task.model).to(device).train()
    optimizer = torch.optim.Adam(network.parameters(), 1e-4, (0.9, 0.98), 1e-9, fused=True)
    tokens = torch.from_numpy(ids(task, task.rows)).long().to(device)

    def loss_of() -> Any:
        with torch.autocast(device, torch.bfloat16):
            logits = network(tokens, tokens)
            return torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), tokens.flatten(), label_smoothing=0.1
            )

    if variant:
        mode = "reduce-overhead" if variant == "graphs" else "default"
        loss_of = torch.compile(loss_of, mode=mode)

    def work() -> None:
        for _ in range(task.steps):
            optimizer.zero_grad(set_to_none=True)
            loss_of().backward()
            optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()

    return work


def trace(task: Task) -> dict[str, Any]:
    """Return the slowest kernels of our step."""
    work, _ = train_ours(task, "fused", several=False)
    return slowest_kernels(work, task.steps)


def slowest_kernels(work: Work, steps: int, shown: int = 20) -> dict[str, Any]:
    """Return the milliseconds and the count of each kernel in one of `steps` steps, merging names
    that differ only in a number: the `shown` longest kernels, and the total time.
    """
    import jax

    work()
    work()
    with tempfile.TemporaryDirectory() as place:
        with jax.profiler.trace(place, create_perfetto_trace=True):
            work()
        (file,) = Path(place).rglob("perfetto_trace.json.gz")
        events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    found: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if "hlo_op" in event.get("args", {}):
            found[re.sub(r"[._]\d+", "", event["name"])].append(event["dur"] / 1000 / steps)
    rows = [(name, round(sum(each), 3), len(each) // steps) for name, each in found.items()]
    rows.sort(key=lambda row: -row[1])
    return {"kernels": rows[:shown], "milliseconds": round(sum(row[1] for row in rows), 3)}


def our_weights(task: Task) -> tuple[Any, Any, Any]:
    """Return our model, random weights for it, and their mesh."""
    import flax.linen as nn
    import jax

    from transformer_jax.models.build import build, init_params

    model = build(model_config(task, "dense"), task.vocab, task.vocab)
    mesh = jax.sharding.Mesh(jax.devices()[:1], "rows")
    everywhere = jax.sharding.NamedSharding(mesh, jax.P())
    init = jax.jit(lambda key: nn.unbox(init_params(model, key)), out_shardings=everywhere)
    return model, init(jax.random.key(0)), mesh


def decode_ours(task: Task, beam: int) -> Work:
    """Return our search with random weights."""
    from transformer_jax.config import DecodingConfig
    from transformer_jax.decoding.batching.engine import Engine
    from transformer_jax.decoding.batching.stream import Sentence, stream
    from transformer_jax.decoding.search.beam import BeamSearch

    model, params, mesh = our_weights(task)
    config = DecodingConfig(beam_size=beam, length_penalty="power", alpha=1.0, stop="width")
    engine = Engine(model.stepper, mesh)
    sources = ids(task, task.sources).tolist()
    sentences = [Sentence(source, task.length, task.length) for source in sources]
    room = task.sources * task.length * beam  # all at once, as for the peer

    def work() -> None:
        found = list(stream(engine, BeamSearch.of(config), params, sentences, room))
        assert all((tokens[0] > 0).sum() == task.length for _, tokens, _ in found)

    return work


class Numbers:
    """A vocabulary of numbers, with only the methods that the export needs."""

    model = b""

    def __init__(self, size: int) -> None:
        self.size = size

    def pieces(self, ids: Any) -> list[str]:
        """Return the pieces of these ids."""
        from transformer_jax.base.vocabulary import BOS, EOS, UNK

        special = {BOS: "<s>", EOS: "</s>", UNK: "<unk>"}
        return [special.get(number, str(number)) for number in ids]


def decode_ctranslate2(task: Task, beam: int) -> Work:
    """Return CTranslate2's search with our weights."""
    import ctranslate2
    import jax

    from transformer_jax.data.codecs.pair import TokenizerPair
    from transformer_jax.export.ctranslate2.directory import export

    model, params, _ = our_weights(task)
    words = Numbers(task.vocab)
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place) / "model"
        export(model.config, params, TokenizerPair(words, words), directory, "float32")
        device = "cpu" if jax.devices()[0].platform == "cpu" else "cuda"
        kind = "float32" if device == "cpu" else "float16"
        translator = ctranslate2.Translator(str(directory), device=device, compute_type=kind)
    sources = [words.pieces(row) for row in ids(task, task.sources).tolist()]

    def work() -> None:
        results = translator.translate_batch(
            sources, beam_size=beam, length_penalty=1.0, max_batch_size=task.sources,
            max_input_length=0, max_decoding_length=task.length, min_decoding_length=task.length,
        )  # fmt: skip
        assert all(len(result.hypotheses[0]) == task.length for result in results)

    return work


def decode_transformers(task: Task, beam: int) -> Work:
    """Return `generate` of a MarianMTModel of the same size."""
    import torch
    import transformers

    m = task.model
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in (
        ("layers", m["layers"]), ("ffn_dim", m["d_ff"]), ("attention_heads", m["num_heads"])
    )}  # fmt: skip
    config = transformers.MarianConfig(
        vocab_size=task.vocab, d_model=m["d_model"], max_position_embeddings=512, **sides,
        scale_embedding=True, pad_token_id=0, decoder_start_token_id=1, eos_token_id=2,
        forced_eos_token_id=None,
    )  # fmt: skip
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = transformers.MarianMTModel(config).to(device, torch.bfloat16).eval()
    sources = torch.from_numpy(ids(task, task.sources)).long().to(device)

    def work() -> None:
        with torch.inference_mode():
            network.generate(
                input_ids=sources, attention_mask=torch.ones_like(sources), num_beams=beam,
                do_sample=False, max_new_tokens=task.length, min_new_tokens=task.length,
            )  # fmt: skip
        if device == "cuda":
            torch.cuda.synchronize()

    return work


def measure(stage: str, dry: bool) -> dict[str, Any]:
    """Run a stage and return its result."""
    from transformer_jax.experiments.process import use_compilation_cache

    use_compilation_cache()
    if stage in gpu_lm.STAGES:
        return gpu_lm.measure(stage, dry)
    kind, _, rest = stage.partition("-")
    size, _, engine = rest.partition("-")
    task = Task(size or "base", dry)
    shown: dict[str, Any] = {"stage": stage, "dtype": "bfloat16", "dry_run": dry}
    if kind in ("agree", "trace"):
        return shown | (agree if kind == "agree" else trace)(task)
    operations, tokens, digest = 0.0, 0, None
    if kind == "matmul":
        work, operations = matmul(task)
    elif kind == "train":
        from transformer_jax.config import Experiment
        from transformer_jax.data.batches.batching import Shape
        from transformer_jax.training.cost import step_cost

        ours, _, variant = engine.partition("-")
        if ours == "ours":
            several, attention = variant == "several", "dense" if variant == "dense" else "fused"
            work, digest = train_ours(task, attention, several)
        else:
            work = train_torch(task, variant)
        tokens = task.rows * task.length
        experiment, sizes = Experiment(model=model_config(task, "dense")), (task.vocab, task.vocab)
        shape = Shape(task.rows, task.length, task.length)
        operations = step_cost(experiment, sizes, shape).operations.products
    else:
        who, _, search = engine.partition("-")
        if who == "ctranslate2":
            shown["dtype"] = "float16"
        decode = {"ours": decode_ours, "ctranslate2": decode_ctranslate2}
        work = decode.get(who, decode_transformers)(task, 4 if search == "beam" else 1)
        tokens = task.sources * task.length
    began = time.perf_counter()
    work()
    shown["first_call_s"] = round(time.perf_counter() - began, 2)
    work()
    seconds = []
    for _ in range(task.rounds if kind != "decode" else max(2, task.rounds // 2)):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    middle = statistics.median(seconds) / (task.steps if kind == "train" else 1)
    if digest is not None:
        shown["params"] = digest()
    shown |= {"seconds": middle, "operations_per_s": operations / middle or None}
    return shown | {"target_tokens_per_s": round(tokens / middle, 1) or None}


def summary(path: Path) -> None:
    """Print our share of the matmul rate and our ratio to the best peer, by kind and size."""
    rows = map(json.loads, path.read_text().splitlines())
    lines = {row["stage"]: row for row in rows if "over_limit_s" not in row}
    if "agree" in lines:
        print(json.dumps(lines["agree"]))
    rate = lines["matmul"]["operations_per_s"] if "matmul" in lines else None
    if rate:
        print(f"bfloat16 matmul: {rate:.4g} operations/s")
    if AGAIN in lines and FIRST in lines:
        same = lines.pop(AGAIN)["params"] == lines[FIRST]["params"]
        print(f"parameters after the same steps in two processes: {'identical' if same else 'not'}")
    for mine in (stage for stage in lines if "ours" in stage and not stage.startswith("lm-")):
        kind, size, _, variant = mine.split("-")
        peers = [
            row["target_tokens_per_s"]
            for stage, row in lines.items()
            if stage.startswith(f"{kind}-{size}-") and "ours" not in stage
            and (kind == "train" or stage.endswith(variant))
        ]  # fmt: skip
        tokens, operations = (lines[mine][k] for k in ("target_tokens_per_s", "operations_per_s"))
        row = {"stage": mine, "target_tokens_per_s": tokens}
        if peers:
            row["ratio_to_best_peer"] = round(tokens / max(peers), 3)
        if operations and rate:
            row["share_of_matmul_rate"] = round(operations / rate, 3)
        print(json.dumps(row))
    for line in gpu_lm.compared(lines):
        print(json.dumps(line))


def main() -> None:
    """Run one stage, or list or summarise all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", nargs="?", choices=STAGES)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("results.jsonl"))
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes; measures nothing")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(STAGES))
    elif arguments.summary:
        summary(arguments.output)
    elif arguments.stage:
        line = json.dumps(measure(arguments.stage, arguments.dry_run))
        print(line)
        with open(arguments.output, "a") as file:
            file.write(line + "\n")
    else:
        parser.error("give a stage, --list or --summary")


if __name__ == "__main__":
    main()

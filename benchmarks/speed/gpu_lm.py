"""The stages of gpu.py for language models on one GPU: training and decoding, ours or PyTorch's.

    STAGES=lm- bash benchmarks/speed/gpu.sh - OUT            # these stages alone
    python benchmarks/speed/gpu_lm.py --dry-run             # all of them, at tiny sizes, anywhere

Training (`lm-train-SHAPE-ENGINE`): full steps of Adam with clipping, bfloat16 products, float32
weights, fused attention, random pieces, no dropout; five steps submitted together. The peer is the
same model in PyTorch (peers/lm_torch.py), compiled, with `scaled_dot_product_attention` and fused
Adam. The shapes are SHAPES: GPT-2 of 124 million parameters with 1,024 and with 8,192 positions, a
Llama of 0.85 billion, also with the maps of its layers in 8 bits (`llama8`, ours alone), and that
GPT-2 with 8 experts, two a position. Operations are 6 for each parameter that a piece passes
through and for each piece, the output map included and tables that are looked up not, and those of
attention by its causal half.

Decoding (`lm-decode-ROWS-ENGINE`): the Llama with random bfloat16 weights writes NEW pieces after
prompts of PROMPT, greedily and sampled. `target_tokens_per_s` counts new pieces after the first of
each text, whose time is `first_token_s`; `bytes_per_s` is what those steps must read, the weights
and the cache of the pieces so far, over their time. The peer is `generate` of a LlamaForCausalLM
with a static cache, which compiles its step.

Each stage is meant to take less than 80 seconds, compilation included.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Work = Callable[[], Any]  # returns when the device is done
PROMPT, NEW = 512, 128
STEPS = 5  # of training, submitted together


@dataclass(frozen=True)
class Shape:
    """A language model and its batches."""

    rows: int
    length: int
    layers: int
    heads: int
    kv_heads: int
    width: int
    hidden: int
    pieces: int
    llama: bool = False  # RMSNorm, SwiGLU, rotary positions, no biases, two tables; else GPT-2
    experts: int = 0
    float8: bool = False


GPT2 = Shape(32, 1024, 12, 12, 12, 768, 3072, 50_304)
LLAMA = Shape(4, 2048, 16, 32, 8, 2048, 5632, 32_000, llama=True)
SHAPES = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "long": replace(GPT2, rows=4, length=8192),
    "experts": replace(GPT2, rows=16, experts=8),
    "llama8": replace(LLAMA, float8=True),
}
# Most valuable first.
STAGES = (
    "lm-train-gpt2-ours", "lm-train-gpt2-torch",
    "lm-train-llama-ours", "lm-train-llama-torch",
    "lm-train-llama8-ours", "lm-train-experts-ours", "lm-trace-gpt2-ours",
    "lm-train-long-ours", "lm-train-long-torch",
    *(f"lm-decode-{rows}-{who}" for rows in (1, 64, 8) for who in ("ours", "transformers")),
    "lm-trace-experts-ours",
)  # fmt: skip


def small(shape: Shape) -> Shape:
    """Return the shape at the size of a dry run."""
    sizes = {"rows": 2, "length": 16, "layers": 1, "heads": 4, "width": 32, "hidden": 48}
    return replace(shape, **sizes, kv_heads=2 if shape.llama else 4, pieces=64)


def model_config(shape: Shape, dry: bool) -> Any:
    """Return our configuration of a model."""
    from transformer_jax.config import ModelConfig

    if shape.llama:
        kind: dict[str, Any] = {
            "norm": "rms_norm", "activation": "swiglu", "relative_positions": "rope",
            "positions": "none", "biases": (), "tied_embeddings": "none",
            "num_kv_heads": shape.kv_heads,
        }  # fmt: skip
    else:
        kind = {"activation": "gelu_tanh", "positions": "learned", "max_positions": shape.length}
    if shape.experts:
        kind |= {"feed_forward_pattern": ("experts",), "num_experts": shape.experts}
    usual = "float32" if dry else "bfloat16"  # CPUs lack some products of bfloat16
    return ModelConfig(
        architecture="decoder", num_decoder_layers=shape.layers, num_heads=shape.heads,
        d_model=shape.width, d_ff=shape.hidden, residual="pre_norm", norm_epsilon=1e-5,
        embedding_scale=False, dropout_rate=0.0, initializer="gpt2",
        compute_dtype="float8" if shape.float8 else usual,
        attention="dense" if dry else "fused", **kind,
    )  # fmt: skip


def operations(shape: Shape) -> float:
    """Return the operations of training a piece, as above."""
    from transformer_jax.models.build import abstract_params, build, roles_of
    from transformer_jax.nn.roles import is_box, name_of

    model = build(model_config(shape, dry=False), shape.pieces, shape.pieces)
    roles, used = roles_of(model), 0

    import jax

    leaves = jax.tree_util.tree_leaves_with_path(abstract_params(model), is_leaf=is_box)
    for path, box in leaves:
        role = roles[name_of(path)]
        part, whole = role.share
        logits = role.part == "logits" or (role.part == "embedding" and not shape.llama)
        used += box.value.size * part // whole if role.is_map or logits else 0
    return 6.0 * (used + shape.layers * shape.length * shape.width)


def ids(shape: Shape, seed: int = 0) -> np.ndarray:
    """Return random pieces [rows length + 1]."""
    rng = np.random.default_rng(seed)
    return rng.integers(4, shape.pieces, (shape.rows, shape.length + 1)).astype(np.int32)


def batch_of(pieces: np.ndarray) -> Any:
    """Return a batch that predicts each piece from those before it."""
    from transformer_jax.data.batches.batch import Batch, Side, Target

    inputs, labels = pieces[:, :-1], np.ascontiguousarray(pieces[:, 1:])
    pos = np.broadcast_to(np.arange(inputs.shape[1], dtype=np.int32), inputs.shape).copy()
    side = Side(np.ascontiguousarray(inputs), pos, np.ones_like(pos))
    return Batch(None, side, {"tokens": Target(labels, np.ones(labels.shape, np.float32))})


class Training(NamedTuple):
    """Training steps: `work` makes several, `state` returns what the last one left."""

    work: Work
    state: Callable[[], Any]


def training(
    model: Any, optimizer: Any, config: Any, batch: Any, steps: int, at_once: int = 1
) -> Training:
    """Return `steps` steps of our model on a batch, `at_once` of them in a call."""
    import jax

    from transformer_jax.config import MeshConfig
    from transformer_jax.models.build import roles_of
    from transformer_jax.sharding.mesh import make_mesh, place_batches
    from transformer_jax.training.optimizer import make_optimizer
    from transformer_jax.training.schedule import make_schedule
    from transformer_jax.training.state import init_state
    from transformer_jax.training.step import jit_train_step, make_train_step, several_steps

    schedule = make_schedule(optimizer, model.config.d_model, 1000)
    tx = make_optimizer(optimizer, schedule, roles_of(model))
    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    state = init_state(model, tx, 0, mesh)
    one = make_train_step(model, tx, config, 0)
    step = jit_train_step(several_steps(one, at_once), state, mesh)
    placed = place_batches([batch] * at_once, mesh)

    def work() -> Any:
        nonlocal state
        with jax.set_mesh(mesh):
            for _ in range(steps // at_once):
                state, metrics = step(state, placed)
        jax.block_until_ready(state)
        return metrics

    return Training(work, lambda: state)


def train_ours(shape: Shape, dry: bool) -> Work:
    """Return our training steps, whose result is the loss of the last one before its update."""
    from transformer_jax.config import OptimizerConfig, TrainingConfig
    from transformer_jax.models.build import build

    model = build(model_config(shape, dry), shape.pieces, shape.pieces, single=True)
    optimizer = OptimizerConfig(
        schedule="constant", learning_rate=3e-4, warmup_steps=1, b2=0.95, clip_norm=1.0
    )
    config = TrainingConfig(label_smoothing=0.0)
    made = training(model, optimizer, config, batch_of(ids(shape)), STEPS)

    def work() -> float:
        sums = made.work().sums
        return float(sums.loss / sums.weight)

    return work


def train_torch(shape: Shape, dry: bool) -> Work:
    """Return the same of the peer."""
    sys.path.append(str(Path(__file__).parents[1] / "peers"))
    import torch
    from lm_torch import LanguageModel

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    network: Any = LanguageModel(
        shape.pieces, shape.width, shape.hidden, shape.layers, shape.heads, shape.kv_heads,
        shape.length, shape.llama,
    ).to(device)  # fmt: skip
    optimizer = torch.optim.Adam(network.parameters(), 3e-4, (0.9, 0.95), 1e-9, fused=True)
    pieces = torch.from_numpy(ids(shape)).long().to(device)
    inputs, labels = pieces[:, :-1].contiguous(), pieces[:, 1:].contiguous()

    def loss_of() -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=not dry):
            return network(inputs, labels)

    if not dry:  # compiling takes half a minute, and needs a compiler
        loss_of = torch.compile(loss_of)

    def work() -> float:
        for _ in range(STEPS):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
        return loss.item()

    return work


def prompts(shape: Shape, rows: int) -> np.ndarray:
    """Return random prompts [rows length]."""
    rng = np.random.default_rng(1)
    return rng.integers(4, shape.pieces, (rows, shape.length)).astype(np.int32)


SAMPLED = {"temperature": 0.8, "top_k": 50}


def decode_ours(shape: Shape, rows: int, dry: bool) -> Callable[[bool, int], Work]:
    """Return a function from whether texts are sampled, and from their length, to the work."""
    import flax.linen as nn
    import jax

    from transformer_jax.config import DecodingConfig
    from transformer_jax.decoding.batching.engine import Engine
    from transformer_jax.decoding.batching.stream import Sentence, stream
    from transformer_jax.decoding.text.searching import held, make_search
    from transformer_jax.models.build import build, init_params

    model = build(model_config(shape, dry), shape.pieces, shape.pieces)
    mesh = jax.sharding.Mesh(jax.devices()[:1], "rows")
    everywhere = jax.sharding.NamedSharding(mesh, jax.P())
    init = jax.jit(lambda key: nn.unbox(init_params(model, key)), out_shardings=everywhere)
    (params,) = held([model], init(jax.random.key(0)))
    engine = Engine(model.stepper, mesh)
    texts = prompts(shape, rows).tolist()

    def of(sampled: bool, new: int) -> Work:
        chosen = {"search": "sample", **SAMPLED} if sampled else {"beam_size": 1}
        search = make_search(DecodingConfig(**chosen), 1, (), continues=True)
        sentences = [
            Sentence(text[:-1], new, new, seed=i, first=text[-1]) for i, text in enumerate(texts)
        ]
        room = rows * (shape.length + NEW)  # all at once, as for the peer

        def work() -> None:
            found = list(stream(engine, search, params, sentences, room))
            assert all(np.size(tokens[0]) >= new for _, tokens, _ in found)

        return work

    return of


def decode_transformers(shape: Shape, rows: int, dry: bool) -> Callable[[bool, int], Work]:
    """Return the same of the peer."""
    import torch
    import transformers

    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = transformers.LlamaConfig(
        vocab_size=shape.pieces, hidden_size=shape.width, intermediate_size=shape.hidden,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads, max_position_embeddings=shape.length + NEW,
    )  # fmt: skip
    dtype = torch.float32 if dry else torch.bfloat16
    network = transformers.LlamaForCausalLM(config).to(device, dtype).eval()
    inputs = torch.from_numpy(prompts(shape, rows)).long().to(device)

    def of(sampled: bool, new: int) -> Work:
        chosen: dict[str, Any] = {"do_sample": True, **SAMPLED} if sampled else {"do_sample": False}
        if not dry:
            chosen |= {"cache_implementation": "static"}

        def work() -> None:
            with torch.inference_mode():
                network.generate(
                    input_ids=inputs, attention_mask=torch.ones_like(inputs), pad_token_id=0,
                    max_new_tokens=new, min_new_tokens=new, **chosen,
                )  # fmt: skip
            if device == "cuda":
                torch.cuda.synchronize()

        return work

    return of


def bytes_of_a_step(shape: Shape, rows: int, length: int) -> float:
    """Return what a decoding step must read in bfloat16: the weights that pieces pass through, and
    the keys and values of `length` positions a row.
    """
    weights = operations(replace(shape, length=0)) / 6
    cache = 2 * shape.layers * shape.kv_heads * (shape.width // shape.heads) * length
    return 2.0 * (weights + rows * cache)


def seconds_of(work: Work, rounds: int) -> tuple[float, float]:
    """Return the seconds of the first call and the median of `rounds` after the second."""
    took = []
    for _ in range(rounds + 2):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return round(took[0], 2), statistics.median(took[2:])


def measure(stage: str, dry: bool) -> dict[str, Any]:
    """Run a stage and return its result."""
    _, kind, what, who = stage.split("-")
    shown: dict[str, Any] = {"stage": stage, "dtype": "bfloat16", "dry_run": dry}
    if kind == "decode":
        return shown | decode(small(LLAMA) if dry else LLAMA, int(what), who, dry)
    shape = small(SHAPES[what]) if dry else SHAPES[what]
    shown["dtype"] = "float8" if shape.float8 else shown["dtype"]
    work = (train_ours if who == "ours" else train_torch)(shape, dry)
    if kind == "trace":
        from gpu import slowest_kernels

        return shown | slowest_kernels(work, STEPS)
    losses: list[float] = []
    first, seconds = seconds_of(lambda: losses.append(work()), 1 if dry else 6)
    rate = shape.rows * shape.length * STEPS / seconds
    return shown | {
        "first_call_s": first,
        "loss": round(losses[0], 4),  # of the fifth step
        "seconds": seconds / STEPS,
        "operations_per_s": operations(shape) * rate,
        "target_tokens_per_s": round(rate, 1),
    }


def decode(shape: Shape, rows: int, who: str, dry: bool) -> dict[str, Any]:
    """Return the result of a decoding stage: the greedy rate first, as of all stages."""
    new = 4 if dry else NEW
    shape = shape if dry else replace(shape, length=PROMPT)
    of = (decode_ours if who == "ours" else decode_transformers)(shape, rows, dry)
    shown: dict[str, Any] = {"operations_per_s": None}
    for sampled, name in ((False, ""), (True, "sampled_")):
        called, whole = seconds_of(of(sampled, new), 1 if dry else 3)
        shown[f"{name}first_call_s"] = called
        if not sampled:
            _, shown["first_token_s"] = seconds_of(of(sampled, 1), 1 if dry else 3)
        steps = max(whole - shown["first_token_s"], 1e-9)
        shown[f"{name}target_tokens_per_s"] = round(rows * (new - 1) / steps, 1)
        read = bytes_of_a_step(shape, rows, shape.length + new // 2)
        shown[f"{name}bytes_per_s"] = read * (new - 1) / steps
    return shown


def compared(lines: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each of our stages among results by stage: its rates, and their ratio to
    those of the peer, if that was measured too.
    """
    rows = []
    for stage in (stage for stage in STAGES if stage in lines and stage.endswith("-ours")):
        mine = lines[stage]
        row: dict[str, Any] = {"stage": stage}
        peers = (lines[p] for p in STAGES if p in lines and p != stage
                 and p.rpartition("-")[0] == stage.rpartition("-")[0])  # fmt: skip
        peer = next(peers, {})
        for rate in ("target_tokens_per_s", "sampled_target_tokens_per_s"):
            if rate in mine:
                row[rate] = mine[rate]
            if rate in mine and rate in peer:
                row["ratio" if rate[0] == "t" else "sampled_ratio"] = round(
                    mine[rate] / peer[rate], 3
                )
        for key in ("operations_per_s", "bytes_per_s", "first_token_s", "milliseconds"):
            row |= {key: mine[key]} if mine.get(key) else {}
        rows.append(row)
    return rows


def main() -> None:
    """Run the given stages, or all, and print a JSON line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stages", nargs="*", choices=(*STAGES, []), help="default: all")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes; measures nothing")
    arguments = parser.parse_args()
    for stage in arguments.stages or STAGES:
        print(json.dumps(measure(stage, arguments.dry_run)), flush=True)


if __name__ == "__main__":
    main()

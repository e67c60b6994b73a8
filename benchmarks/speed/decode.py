"""Decoding speed against `transformers` and CTranslate2, on the same weights and sentences.

    python benchmarks/speed/decode.py --workdir=runs/multi30k --source=FILE --peers
        the trained model, outputs of natural length
    python benchmarks/speed/decode.py --workdir=runs/multi30k --source=FILE --model=base --peers
        random weights of that size, 24 forced steps; the tokenizer of the work directory

Beam search with `width` stopping and the `power` penalty, float32, 2 threads. transformers gets
batches of 64 sentences of similar length; CTranslate2, which sorts sentences and drops finished
ones itself, runs as one translator with two threads and as two with one each. Engines run in
separate processes and take turns in one run; the median of each engine's rounds counts, excluding
the first call, which compiles. One JSON line per engine; ours includes the share of the machine's
own float32 matmul rate that the search reaches, counting only the decoder's products with
parameters. --bfloat16 adds a line for ours with bfloat16 operands, --shortlist=N lines for ours
with that many pieces per sentence, using the file that `transformer-jax shortlist` has written into
the work directory. --peers needs the extra `bench`.
"""

import argparse
import dataclasses
import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "2")

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from turns import Worker, matmul, show, show_processor, take_turns

from transformer_jax.api import load
from transformer_jax.base import counting
from transformer_jax.base.vocabulary import BOS, EOS, PAD, RESERVED
from transformer_jax.config import DecodingConfig, ModelConfig
from transformer_jax.data.batches.batch import Side
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.sources.files import read_lines
from transformer_jax.data.store.lexicon import Lexicon
from transformer_jax.decoding.batching.engine import Engine as Batches
from transformer_jax.decoding.batching.stream import Sentence, stream
from transformer_jax.decoding.search.beam import BeamSearch
from transformer_jax.decoding.stepper import stepper_of
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.experiments.process import keep_freed_memory
from transformer_jax.models.build import abstract_params, build, init_params
from transformer_jax.models.model import Model

SIZES = {
    "tiny": ModelConfig(
        d_model=128, d_ff=256, num_heads=4, num_encoder_layers=4, num_decoder_layers=4
    ),
    "base": ModelConfig(),
}
BATCH, FORCED = 64, 24


@dataclasses.dataclass
class Task:
    """Input of every engine."""

    model: Model
    params: Any
    tokenizers: TokenizerPair
    lines: list[str]
    beam: int
    forced: int | None  # exact length of every output; None: until EOS
    shortlist: int = 0
    lexicon: Lexicon | None = None


Engine = Callable[[], int]  # translates all lines, returns the number of target tokens


def ours(task: Task, dtype: str = "float32", shortlist: bool = False) -> Engine:
    """Return our search."""
    lexicon, listed = (task.lexicon, task.shortlist) if shortlist else (None, 0)
    config = DecodingConfig(beam_size=task.beam, length_penalty="power", alpha=1.0, stop="width")
    config = dataclasses.replace(config, tokens_per_batch=BATCH * task.beam * 16, shortlist=listed)
    size = dataclasses.replace(task.model.config, compute_dtype=dtype)
    model = build(size, task.model.src_vocab_size, task.model.tgt_vocab_size)
    if task.forced is None:
        translator = Translator(model, task.tokenizers, config, lexicon=lexicon)

        def run() -> int:
            found = translator.translate(task.params, task.lines)
            return sum(token != EOS for item in found for token in item.ids)

        return run

    mesh = jax.sharding.Mesh(jax.devices(), "rows")
    engine = Batches(model.stepper, mesh)
    params = jax.device_put(task.params, jax.sharding.NamedSharding(mesh, jax.P()))

    def run_forced() -> int:
        ids = task.tokenizers.src.encode(task.lines)
        sentences = [Sentence(source, task.forced, task.forced) for source in ids]
        if lexicon is not None:
            special = range(RESERVED)
            short = functools.partial(lexicon.shortlist, size=listed, needed=special)
            sentences = [s._replace(shortlist=short(s.ids)) for s in sentences]
        found = stream(engine, BeamSearch.of(config), params, sentences, config.tokens_per_batch)
        return sum(int((tokens[0] > 0).sum()) for _, tokens, _ in found)

    return run_forced


def ctranslate2(task: Task, quantization: str, translators: int = 1) -> Engine:
    """Return CTranslate2's search on the exported model, with parallel translators."""
    import ctranslate2 as engine

    from transformer_jax.export.ctranslate2.directory import export

    place = Path(tempfile.mkdtemp())
    export(task.model.config, task.params, task.tokenizers, place / "model", quantization)
    translator = engine.Translator(
        str(place / "model"), inter_threads=translators, intra_threads=2 // translators
    )
    shutil.rmtree(place)
    pieces = [task.tokenizers.src.pieces(i) for i in task.tokenizers.src.encode(task.lines)]
    longest, shortest = task.forced or 256, task.forced or 1

    def run() -> int:
        results = translator.translate_batch(
            pieces, beam_size=task.beam, length_penalty=1.0, max_batch_size=BATCH,
            max_input_length=0, max_decoding_length=longest, min_decoding_length=shortest,
        )  # fmt: skip
        return sum(len(result.hypotheses[0]) for result in results)

    return run


def transformers(task: Task) -> Engine:
    """Return `generate` of a MarianMTModel (post-norm) with the same weights."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    import torch
    from flax.traverse_util import flatten_dict
    from oracle.peers import Transformers
    from oracle.weights import TRANSFORMERS, torch_name

    torch.set_num_threads(2)
    peer = Transformers(task.model.config, task.model.tgt_vocab_size, 512)
    tensors = peer.tensors()
    for path, leaf in flatten_dict(jax.device_get(task.params), sep="/").items():
        tensor, array = tensors[torch_name(path, TRANSFORMERS)], np.asarray(leaf)
        if path.endswith("kernel"):  # [in... out...] with heads unfolded; torch stores [out in]
            array = array.reshape(tensor.shape[::-1]).T
        tensor.data = torch.from_numpy(np.array(array.reshape(tensor.shape)))
    model = peer.model.float().eval()
    batches = [torch.from_numpy(_padded(part)).long() for part in _sorted_batches(task)]
    lengths = {"max_new_tokens": task.forced or 100, "min_new_tokens": task.forced or 0}

    def run() -> int:
        count = 0
        with torch.inference_mode():
            for ids in batches:
                found = model.generate(
                    input_ids=ids, attention_mask=(ids > 0).long(), num_beams=task.beam,
                    length_penalty=1.0, early_stopping=True, pad_token_id=PAD,
                    decoder_start_token_id=BOS, eos_token_id=EOS, **lengths,
                )  # fmt: skip
                count += int(((found != PAD) & (found != BOS) & (found != EOS)).sum())
        return count

    return run


def _sorted_batches(task: Task) -> list[list[list[int]]]:
    ids = sorted(task.tokenizers.src.encode(task.lines), key=len)
    return [ids[start : start + BATCH] for start in range(0, len(ids), BATCH)]


def _padded(ids: list[list[int]]) -> np.ndarray:
    length = -(-max(map(len, ids)) // 8) * 8
    return np.array([row + [PAD] * (length - len(row)) for row in ids], np.int32)


def make_task(arguments: argparse.Namespace) -> Task:
    """Return the task for the trained model, or for random weights."""
    trained = load(arguments.workdir)
    lines = read_lines(arguments.source)[: arguments.sentences]
    model, params, forced = trained.model, trained.params, None
    if arguments.model is not None:
        size = trained.tokenizers.tgt.size
        model, forced = build(SIZES[arguments.model], size, size), FORCED
        params = jax.jit(lambda key: nn.unbox(init_params(model, key)))(jax.random.key(0))
    task = Task(model, params, trained.tokenizers, lines, arguments.beam_size, forced)
    if arguments.shortlist:
        task.shortlist = arguments.shortlist
        task.lexicon = Lexicon.load(Path(arguments.workdir), trained.tokenizers.digest)
    return task


OURS = "transformer_jax"
ENGINES: dict[str, Callable[[Task], Engine]] = {
    OURS: ours,
    f"{OURS}-shortlist": functools.partial(ours, shortlist=True),
    f"{OURS}-bfloat16": functools.partial(ours, dtype="bfloat16"),
    f"{OURS}-bfloat16-shortlist": functools.partial(ours, dtype="bfloat16", shortlist=True),
    "ctranslate2": functools.partial(ctranslate2, quantization="float32"),
    "ctranslate2-2x1": functools.partial(ctranslate2, quantization="float32", translators=2),
    "ctranslate2-int8": functools.partial(ctranslate2, quantization="int8"),
    "ctranslate2-int8-2x1": functools.partial(ctranslate2, quantization="int8", translators=2),
    "transformers": transformers,
}


def engine(name: str, arguments: argparse.Namespace) -> Engine:
    """Return the work of one turn."""
    if name.startswith(OURS):
        keep_freed_memory()  # as translate does
        jax.config.update("jax_num_cpu_devices", 2)  # a stream of sentences on each core
    return ENGINES[name](make_task(arguments))


def main() -> None:
    """Measure, and print one JSON line per engine."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workdir", required=True, help="work directory of a trained model")
    parser.add_argument("--source", required=True, type=Path, help="sentences, one per line")
    parser.add_argument("--model", choices=SIZES, help="random weights of this size instead")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--beam-size", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--shortlist", type=int, default=0, metavar="N")
    parser.add_argument("--peers", action="store_true")
    arguments = parser.parse_args()
    show_processor()
    names = [name for name in ENGINES if arguments.peers or name.startswith(OURS)]
    for option in ("bfloat16", "shortlist"):
        if not getattr(arguments, option):
            names = [name for name in names if option not in name]
    if arguments.model is None and load(arguments.workdir).model.config.residual != "post_norm":
        names = [name for name in names if name != "transformers"]  # Marian is post-norm here
    workers = {"matmul": Worker(matmul)} | {n: Worker(engine, n, arguments) for n in names}
    middle = take_turns(workers, arguments.rounds)
    rate = workers["matmul"].result / middle.pop("matmul")
    peers = [v for k, v in middle.items() if not k.startswith(OURS) and "int8" not in k]
    task = make_task(arguments)
    for name, seconds in middle.items():
        tokens, first = workers[name].result, workers[name].first_seconds
        row = {
            "engine": name,
            "model": arguments.model or "trained",
            "shortlist": task.shortlist if "shortlist" in name else 0,
            "dtype": next((d for d in ("int8", "bfloat16") if d in name), "float32"),
            "target_tokens_per_s": round(tokens / seconds, 1),
            "sentences_per_s": round(len(task.lines) / seconds, 1),
            "first_call_s": round(first, 2),
        }
        if name == OURS:
            operations = tokens * task.beam * flops_per_token(task.model)
            row["share_of_matmul_rate"] = round(operations / seconds / rate, 3)
            if peers:
                row["ratio_to_best_float32_peer"] = round(min(peers) / seconds, 3)
        show(row)


def flops_per_token(model: Model) -> int:
    """Return the operations of one decoder step of one hypothesis.

    Counted from the step itself, with a source of one piece and no earlier target pieces, so that
    the products inside attention are negligible.
    """
    one = jnp.ones((1, 1), jnp.int32)

    def start(params: Any) -> Any:
        stepper = stepper_of(model, params)
        return stepper.start(stepper.context(Side(one, one - 1, one)), 1, 1)

    def started_and_stepped(params: Any) -> Any:
        state = start(params)
        return stepper_of(model, params).step(state, one[None], one - 1, jnp.ones(1, bool))[0]

    params = nn.unbox(abstract_params(model))
    before, after = (
        counting.operations(counting.program(function, params)).products
        for function in (start, started_and_stepped)
    )
    return after - before


if __name__ == "__main__":
    main()

"""A server under load, on loopback: throughput, latency, and the cost relative to `translate`.

    python benchmarks/speed/serve.py --workdir=runs/multi30k --data=DIR --peers
        English sentences of Multi30k, DIR/train.lc.norm.tok.en or --source=FILE

`transformer-jax serve` and the load generator run in separate processes. First closed-loop load: 1,
2, 4 ... clients, each of which sends its next request once the last is answered; then open-loop
load: requests at random times at fractions of the best rate, with latency counted from when they
were due. The same sentences are translated offline before and after, on two devices as `translate`
does; the ratio is to the mean of both. Searches stop as `--stop` says: "width" is what CTranslate2
does, which --peers runs behind a plain starlette server. For a language model, prompts are the
first words of the lines, texts are streamed, and the time to the first token is reported.
--overload=10 sends ten times the best rate for some seconds. One JSON line per load: of its
requests, `refused` were told when to retry (429), `failed` got another error or no answer, and all
others were answered; times cover only these. `load_cpu_s` is the processor time of the load
generator, and `late_p99_ms` how late it sent: a starved one says little about the server.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from turns import show, show_processor

from transformer_jax.api import load
from transformer_jax.data.sources.files import read_lines
from transformer_jax.runs.workdir import WorkDir

TOKENS = 32  # per streamed text
SHARES = (0.5, 0.8)  # of the best rate, for open-loop load
OVERLOAD = 10.0  # seconds of load above the best rate
PATIENCE = 90.0  # seconds after which a request counts as failed


class Answered(NamedTuple):
    """Seconds from when a request was due until its answer, until its first token if streamed, and
    until it was sent; the status, 0 if there was no answer.
    """

    whole: float
    first: float | None
    late: float
    status: int = 200


class Connection:
    """One persistent connection with minimal HTTP/1.1, to use little processor time."""

    def __init__(self, port: int, path: str) -> None:
        self._port, self._path, self._streams = port, path, None

    async def ask(self, body: dict[str, Any], due: float) -> Answered:
        """Send a request that was due at this time, and read its answer."""
        late = time.perf_counter() - due
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        data = json.dumps(body).encode()
        writer.write(
            f"POST {self._path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            f"content-length: {len(data)}\r\n\r\n".encode()
            + data
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        status = int(head.split()[1])
        if status != 200 and not (status == 429 and "\r\nretry-after: " in head):
            raise RuntimeError(f"{head}{await reader.read(500)}")
        if found := re.search(r"content-length: (\d+)", head):
            await reader.readexactly(int(found[1]))
            return Answered(time.perf_counter() - due, None, late, status)
        first, text = None, b""
        while size := int(await reader.readline(), 16):
            text += (await reader.readexactly(size + 2))[:size]
            if first is None and b'"index"' in text:
                first = time.perf_counter() - due
        await reader.readline()
        if b'{"error":' in text:
            raise RuntimeError(text.decode())
        return Answered(time.perf_counter() - due, first, late)

    def close(self) -> None:
        """Close it."""
        if self._streams is not None:
            self._streams[1].close()


async def closed_loop(
    ask: Callable[[], Connection], bodies: list[dict], clients: int
) -> list[Answered]:
    """Return the answers when each client sends one request after another."""
    left, answered = iter(bodies), []

    async def client() -> None:
        connection = ask()
        for body in left:
            answered.append(await connection.ask(body, time.perf_counter()))
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return answered


async def arriving(
    ask: Callable[[], Connection], bodies: list[dict], rate: float
) -> list[Answered]:
    """Return the answers when requests arrive at random times, `rate` per second on average."""
    idle: list[Connection] = []
    chance, due = random.Random(0), time.perf_counter()

    async def one(body: dict, due: float) -> Answered:
        connection = idle.pop() if idle else ask()
        try:
            async with asyncio.timeout(PATIENCE):
                answered = await connection.ask(body, due)
        except (OSError, EOFError, ValueError, RuntimeError) as error:
            print(repr(error), file=sys.stderr)
            connection.close()
            return Answered(PATIENCE, None, 0.0, 0)
        idle.append(connection)
        return answered

    tasks = []
    for body in bodies:
        due += chance.expovariate(rate)
        await asyncio.sleep(max(due - time.perf_counter(), 0))
        tasks.append(asyncio.create_task(one(body, due)))
    answered = await asyncio.gather(*tasks)
    for connection in idle:
        connection.close()
    return answered


def row(engine: str, load: dict, work: Awaitable[list[Answered]], offline: float | None) -> dict:
    """Return the measurements of one load."""
    began, cpu = time.perf_counter(), time.process_time()
    sent = asyncio.run(work)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    answered, statuses = [a for a in sent if a.status == 200], [a.status for a in sent]
    rate = len(answered) / seconds
    middle = np.percentile([a.whole for a in answered], [50, 95, 99]) * 1000
    found = {"engine": engine, **load, "requests": len(sent), "refused": statuses.count(429),
             "failed": statuses.count(0), "sentences_per_s": round(rate, 2)}  # fmt: skip
    found |= {f"p{p}_ms": round(x, 1) for p, x in zip((50, 95, 99), middle, strict=True)}
    if firsts := [a.first for a in answered if a.first is not None]:
        found["first_token_p50_ms"] = round(1000 * float(np.median(firsts)), 1)
    if offline:
        found["ratio_to_offline"] = round(rate / offline, 3)
    late = 1000 * float(np.percentile([a.late for a in sent], 99))
    return found | {"late_p99_ms": round(late, 1), "load_cpu_s": round(cpu, 2)}


def _answers(address: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(address, timeout=10) as answer:
        return answer.status == 200
    return False


@contextmanager
def server(command: list[str], ready: str = "") -> Iterator[int]:
    """Run a server, and yield its port once it says it and the path `ready`, if any, answers."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            while True:
                time.sleep(0.2)
                output.seek(0)
                text = output.read()
                port = re.search(r"http://127\.0\.0\.1:(\d+)", text)
                if port and (not ready or _answers(f"{port[0]}{ready}")):
                    break
                if process.poll() is not None:
                    raise SystemExit(text)
            yield int(port[1])
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()


def offline(arguments: argparse.Namespace, lines: list[str]) -> float:
    """Return the sentences per second of `translate`, or prompts of `generate`, once compiled."""
    code = (
        "import json, sys, time; import jax; jax.config.update('jax_num_cpu_devices', 2)\n"
        "from transformer_jax.api import load\n"
        "from transformer_jax.experiments.process import keep_freed_memory\n"
        "keep_freed_memory(); lines = json.load(sys.stdin); model = load(sys.argv[1])\n"
        "def run():\n"
        "    began = time.perf_counter()\n"
        "    if model.experiment.objective.translates: model.translate(lines, stop=sys.argv[2])\n"
        f"    else: model.generate(lines, {TOKENS}, beam_size=1)\n"
        "    return time.perf_counter() - began\n"
        "run(); print(len(lines) / min(run(), run()))"
    )
    command = [sys.executable, "-c", code, arguments.workdir, arguments.stop]
    given = json.dumps(lines)
    return float(subprocess.run(command, input=given, text=True, capture_output=True,
                                check=True).stdout.split()[-1])  # fmt: skip


def loads(
    engine: str, port: int, path: str, bodies: list[dict], most: int, rate: float | None,
    shares: Sequence[float] = SHARES,
) -> None:  # fmt: skip
    """Put a server under each load, and print a line per load."""
    connect = lambda: Connection(port, path)  # noqa: E731
    asyncio.run(closed_loop(connect, bodies[: 2 * most], most))  # warm
    best, clients = 0.0, 1
    while clients <= most:
        few = bodies[: max(len(bodies) * clients // most, 20)]
        found = row(engine, {"clients": clients}, closed_loop(connect, few, clients), rate)
        best = max(best, found["sentences_per_s"])
        show(found)
        clients *= 2
    for share in shares:
        count = OVERLOAD * share * best if share > 1 else max(len(bodies) // 2, 20)
        few = list(itertools.islice(itertools.cycle(bodies), int(count)))
        coming = {"arrivals_per_s": round(share * best, 2)}
        show(row(engine, coming, arriving(connect, few, share * best), rate))


def peer(workdir: str, port: int) -> None:
    """Serve the model with CTranslate2 in a plain starlette server, without batching requests."""
    import ctranslate2
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    from transformer_jax.export.ctranslate2.directory import export

    model = load(workdir)
    place = Path(tempfile.mkdtemp()) / "model"
    export(model.model.config, model.params, model.tokenizers, place, "float32")
    translator = ctranslate2.Translator(str(place), inter_threads=2, intra_threads=1)
    src, beam = model.tokenizers.src, model.experiment.decoding.beam_size

    def translate(text: str) -> str:
        (ids,) = src.encode([text])
        (found,) = translator.translate_batch([src.pieces(ids)], beam_size=beam)
        return " ".join(found.hypotheses[0])

    async def answer(request: Any) -> JSONResponse:
        text = (await request.json())["text"]
        return JSONResponse({"text": await asyncio.to_thread(translate, text)})

    print("ready", flush=True)
    app = Starlette(routes=[Route("/api/translate", answer, methods=["POST"])])
    uvicorn.run(app, port=port, access_log=False)


def main() -> None:
    """Measure, and print one JSON line per load."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workdir", required=True, help="work directory of a trained model")
    parser.add_argument("--data", type=Path, help="directory of Multi30k")
    parser.add_argument("--source", type=Path, help="sentences, one per line, instead")
    parser.add_argument("--sentences", type=int, default=400)
    parser.add_argument("--clients", type=int, default=16, help="at most this many")
    parser.add_argument("--stop", choices=("width", "optimal"), default="width")
    parser.add_argument(
        "--rows", default="16", help="texts that our server decodes at a time on each device"
    )
    parser.add_argument("--overload", type=float, default=[], nargs="*", metavar="N",
                        help="multiples of the best rate, sent to our server last")  # fmt: skip
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--as-peer", type=int, metavar="PORT", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.as_peer is not None:
        peer(arguments.workdir, arguments.as_peer)
        return
    if arguments.source is None and arguments.data is None:
        parser.error("give --data or --source")
    show_processor()
    source = arguments.source or arguments.data / "train.lc.norm.tok.en"
    lines = [line for line in read_lines(source) if line.strip()][: arguments.sentences]
    translates = WorkDir(arguments.workdir).experiment().objective.translates
    if translates:
        path, bodies = "/api/translate", [{"text": line} for line in lines]
    else:
        lines = [" ".join(line.split()[:3]) for line in lines]
        path = "/api/generate"
        bodies = [{"prompt": p, "max_tokens": TOKENS, "stream": True} for p in lines]
    first = offline(arguments, lines)
    command = [sys.executable, "-m", "transformer_jax.cli.main", "serve", "--port=0"]
    command.append(f"--rows={arguments.rows}")
    command += [f"--config.decoding.stop={arguments.stop}"] * translates
    with server([*command, f"--workdir={arguments.workdir}"], "/ready") as port:
        rate = (first + offline(arguments, lines)) / 2
        show({"engine": "transformer_jax offline", "sentences_per_s": round(rate, 2)})
        shares = (*SHARES, *arguments.overload)
        loads("transformer_jax", port, path, bodies, arguments.clients, rate, shares)
    if arguments.peers and translates:
        free = str(20_000 + os.getpid() % 10_000)
        command = [sys.executable, __file__, f"--workdir={arguments.workdir}", f"--as-peer={free}"]
        with server(command) as port:
            loads("ctranslate2", port, path, bodies, arguments.clients, None)


if __name__ == "__main__":
    main()

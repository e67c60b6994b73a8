"""The server as a process: signals under load, new checkpoints, slow clients."""

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import jax
import pytest
from server.conftest import translator, writer
from server.test_faults import answered_beside, slow_clients

from transformer_jax.config import TokenizerConfig
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.runs.workdir import WorkDir

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
LINE = "a dog runs"


def save(place: Path, step: int, factor: float, make=translator) -> None:
    """Save a checkpoint of a tiny model, its parameters times a factor."""
    trained, workdir = make(), WorkDir(place)
    evaluation = dataclasses.replace(trained.experiment.evaluation, checkpoint="last")
    tgt = dataclasses.replace(trained.experiment.tgt, codec="characters")
    codec = {"tgt": tgt, "tokenizer": TokenizerConfig()}
    changed = {"evaluation": evaluation} | (codec if make is writer else {})
    experiment = dataclasses.replace(trained.experiment, **changed)
    with workdir.claim(experiment):
        trained.tokenizers.save(place)
        checkpoints = Checkpoints(workdir.checkpoints, experiment.checkpoint)
        host = {"step": step, "tokenizer": trained.tokenizers.digest}
        params = jax.tree.map(lambda x: x * factor, trained.params)
        checkpoints.save(step, params, {}, host, None)
        checkpoints.close()


class Process:
    """A server in its own process."""

    def __init__(
        self, workdir: Path, *arguments: str, key: str = "", wait: bool = True, before: str = ""
    ) -> None:
        self.out = workdir.parent / "out"
        environment = os.environ | {"TRANSFORMER_JAX_API_KEY": key, "JAX_PLATFORMS": "cpu"}
        code = f"import sys\n{before}\nfrom transformer_jax.cli.main import main\nsys.exit(main())"
        command = [sys.executable, "-c", code, "serve", "--port=0"]
        with open(self.out, "wb") as output:
            self.process = subprocess.Popen(
                [*command, f"--workdir={workdir}", *arguments], cwd=ROOT, env=environment,
                stdout=output, stderr=output,
            )  # fmt: skip
        self.port = int(self.wait_for(r"listening on http://127\.0\.0\.1:(\d+)")[1])
        if wait:
            self.wait_for(r" ready, compiled in .*\n")

    def wait_for(self, pattern: str, seconds: float = 180.0) -> re.Match:
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.out.read_text())):
            assert self.process.poll() is None, self.out.read_text()
            assert time.monotonic() < end, self.out.read_text()
            time.sleep(0.05)
        return found

    def ask(self, text: str = LINE, path: str = "/api/translate", body: dict | None = None):
        """Return the status and the answer; status 0 without a connection."""
        given = json.dumps(body or {"text": text}).encode()
        address = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(address, given, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except (urllib.error.URLError, ConnectionError):
            return 0, None

    def streamed(self, path: str, body: dict) -> list[dict]:
        """Return the server-sent events of an answer."""
        given = json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", given)
        with urllib.request.urlopen(request, timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]

    def children(self) -> list[int]:
        """Return the ids of the search processes."""
        found = subprocess.run(
            ["pgrep", "-P", str(self.process.pid), "-f", "processes.child"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return [int(line) for line in found.stdout.split()]

    def text(self) -> str:
        status, answer = self.ask()
        assert status == 200, answer
        return answer["results"][0]["translations"][0]["text"]


@pytest.fixture
def workdir(tmp_path):
    save(tmp_path / "run", 3, 1.0)
    return tmp_path / "run"


@contextlib.contextmanager
def running(workdir, *arguments, **given):
    server = Process(workdir, *arguments, **given)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def test_new_checkpoints_are_served_and_damaged_ones_are_not(workdir):
    """SIGHUP loads a new one; a damaged one is named in the log."""
    with running(workdir, "--rows=2") as server:
        first = server.text()
        assert first == translator().translate(LINE)
        save(workdir, 6, 1.4)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("reloaded: ")
        second = server.text()
        assert second != first
        save(workdir, 9, 1.0)
        for path in (workdir / "checkpoints" / "9").rglob("d/*"):  # the arrays
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("error: reload failed; the previous model stays in use")
        assert server.text() == second
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0


def test_watch_loads_new_checkpoints(workdir):
    with running(workdir, "--rows=2", "--watch=0.2") as server:
        first = server.text()
        save(workdir, 6, 1.4)
        server.wait_for("reloaded: ")
        assert server.text() != first


def test_sigterm_under_load_loses_no_accepted_request(workdir):
    """Accepted requests are answered in full; then the process exits with code 0."""
    with running(workdir, "--rows=2", "--queue=512", "--max-texts=8") as server:
        wanted = server.text()
        seen = []

        def client(_):
            while True:
                status, answer = server.ask(body={"texts": [LINE] * 8})
                seen.append(status)
                if status != 200:
                    return
                texts = [row["translations"][0]["text"] for row in answer["results"]]
                assert texts == [wanted] * 8

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            clients = [pool.submit(client, n) for n in range(12)]
            time.sleep(1.5)
            server.process.send_signal(signal.SIGTERM)
            for future in clients:
                future.result(60)
        assert server.process.wait(60) == 0
        assert seen.count(200) >= 12
        assert set(seen) <= {200, 503, 0}
        assert 500 not in seen
        assert "Traceback" not in server.out.read_text()


def test_a_second_signal_ends_the_process_at_once(workdir):
    with running(workdir, "--rows=2", "--drain=300") as server:
        held = socket.create_connection(("127.0.0.1", server.port))
        held.sendall(b"POST /api/translate HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("shutting down: 1 requests")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) != 0
        held.close()


def test_sigterm_during_compilation_exits_promptly(workdir, tmp_path, monkeypatch):
    """The exit does not wait for the compiler, and nothing crashes."""
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path / "empty"))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    with running(workdir, wait=False) as server:
        assert server.ask()[0] == 503
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0


def test_clients_with_slow_headers_are_cut_off(workdir):
    """Others are answered meanwhile."""
    with running(workdir, "--rows=2") as server:
        slow = socket.create_connection(("127.0.0.1", server.port))
        slow.sendall(b"GET / HTTP/1.1\r\n")
        end = time.monotonic() + 25
        while not select.select([slow], [], [], 0)[0]:  # nothing is sent: readable means closed
            assert time.monotonic() < end
            with contextlib.suppress(OSError):
                slow.sendall(b"x: y\r\n")
            assert server.ask()[0] == 200
            time.sleep(0.5)
        slow.close()


def test_endless_headers_are_refused(workdir):
    """Whether in one line or in many; a body may be longer."""
    with running(workdir, "--rows=2") as server:
        for line in (b"x: y\r\n", b"y" * 6):
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.settimeout(5)  # less than slow headers may take
                client.sendall(b"GET / HTTP/1.1\r\nz: " + line * 1000)
                time.sleep(0.1)
                client.sendall(line * 6000)
                assert client.recv(100).startswith(b"HTTP/1.1 400")
        assert server.ask(" " * 100_000 + "ab")[0] == 413  # which was read


def test_others_are_answered_beside_a_thousand_slow_connections(workdir):
    """More than a process may usually have open; in the end all are cut off."""
    few = (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (256, r.getrlimit(r.RLIMIT_NOFILE)[1]))"
    )
    with running(workdir, "--rows=2", before=few) as server:
        answered_beside(slow_clients(server.port, 1000), server.ask, 60)
        assert "Traceback" not in server.out.read_text()


DIES = """
from transformer_jax.server.tickets import Worker
turns, turn = iter(range(20)), Worker._turn
Worker._turn = lambda worker: (next(turns), turn(worker))
"""


def test_the_process_exits_when_its_search_thread_dies(workdir):
    """It exits with an error code, for a supervisor to restart it; waiting clients are answered."""
    with running(workdir, "--rows=2", before=DIES) as server:

        def client(_):
            while (status := server.ask()[0]) == 200:
                pass
            return status

        slow = slow_clients(server.port, 6)
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            last = list(pool.map(client, range(12)))
        assert set(last) <= {503, 0}
        assert 503 in last
        assert server.process.wait(30) == 70
        assert "the search thread has ended" in server.out.read_text()
        for held in slow:
            held.close()


def test_processes_stream_the_text_that_a_language_model_writes(tmp_path):
    """In parts as it grows, with and without processes."""
    save(tmp_path / "run", 3, 1.0, writer)
    body = {"prompt": "ab", "max_tokens": 10, "n": 3, "sample": True, "seed": 7}
    found = []
    for processes in (1, 2):
        options = "--rows=2", f"--processes={processes}", "--max-tokens=10", "--max-prompt=12"
        with running(tmp_path / "run", *options) as server:
            whole = [row["text"] for row in server.ask("", "/api/generate", body)[1]["texts"]]
            rows = server.streamed("/api/generate", body | {"stream": True})
            texts = [rows[0]["prompt"]] * 3
            for row in rows:
                if "index" in row:
                    texts[row["index"]] += row["text"]
            assert texts == whole
            stopped = server.ask("", "/api/generate", body | {"stop": [whole[0][4]]})[1]["texts"]
            assert stopped[0]["text"] == whole[0][: 2 + whole[0][2:].index(whole[0][4])]
            found.append(whole)
    assert found[0] == found[1]


def test_killed_search_processes_lose_no_request(workdir):
    """Nor do signals that a supervisor sends to all processes of a service."""
    with running(workdir, "--rows=2", "--processes=2", "--queue=512", "--max-texts=8") as server:
        wanted, seen, ending = server.text(), [], threading.Event()

        def client(_):
            while not ending.is_set():
                status, answer = server.ask(body={"texts": [LINE] * 8})
                seen.append((status, [r["translations"][0]["text"] for r in answer["results"]]))

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            clients = [pool.submit(client, n) for n in range(12)]
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL):
                time.sleep(1)
                for child in server.children():
                    os.kill(child, number)
            server.wait_for("exit code -9; starting another")
            time.sleep(1)
            ending.set()
            for future in clients:
                future.result(120)
        assert len(seen) > 12
        assert all(one == (200, [wanted] * 8) for one in seen)
        assert server.out.read_text().count("starting another") == 2
        children = server.children()
        server.process.kill()
        server.process.wait()
        end = time.monotonic() + 10
        while any(Path(f"/proc/{child}").exists() for child in children):
            assert time.monotonic() < end, "search processes outlive the server"
            time.sleep(0.05)


def test_a_client_that_stalls_after_an_early_refusal_is_cut_off(workdir):
    """It sends a little more of its request after the answer, then nothing."""
    with running(workdir, "--rows=2") as server:
        half = socket.create_connection(("127.0.0.1", server.port))
        half.sendall(b"POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n")
        assert half.recv(1000).startswith(b"HTTP/1.1 404")
        time.sleep(0.2)
        half.sendall(b"x")
        half.settimeout(25)
        while half.recv(1000):
            pass
        half.close()


def test_invalid_arguments_are_rejected(workdir):
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    for arguments, said in (
        ([f"--port={port}"], "cannot listen there"),
        (["--port=99999999"], "must lie between 0 and 65535"),
        (["--max-texts=999"], "is more than --queue=256"),
        (["--rows=0"], "must be above 0"),
        (["--processes=0"], "--processes=0: must be between 1 and"),
        (["--processes=999"], "--processes=999: must be between 1 and"),
        (["--timeout=nan"], "must be above 0"),
        (["--watch=-1"], "--watch=-1.0: must be a number of seconds, at least 0"),
    ):
        command = [sys.executable, "-m", "transformer_jax.cli.main", "serve", *arguments]
        found = subprocess.run(
            [*command, f"--workdir={workdir}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert found.returncode == 2, found.stderr
        assert said in found.stderr
        assert "Traceback" not in found.stderr
    taken.close()

"""transformer-jax serve --workdir=DIR [--host=ADDRESS] [--port=N]"""

import argparse
import importlib.util
import logging
import math
import os
import re
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.base.messages import Formatter
from transformer_jax.cli.arguments import CHECKPOINTS, WORKDIRS, Parser
from transformer_jax.cli.model import adjusted, load_adjusted, prepare_process
from transformer_jax.config import Experiment
from transformer_jax.runs.workdir import WorkDir

_KEY = "TRANSFORMER_JAX_API_KEY"
_NEEDS = ("starlette", "uvicorn", "httptools", "msgspec", "prometheus_client")

_HELP = f"""\
Serve a translation or language model over HTTP: a page at /, its own protocol under /api/,
LibreTranslate's /translate and OpenAI's /v1/completions; see docs/serving.md. Concurrent requests
are batched. Models that classify, label, answer, transcribe or forecast are served by /api/predict.

If the environment variable {_KEY} is set, clients must send it. SIGTERM stops the
server once requests in progress are answered; SIGHUP reloads the checkpoint.

The fields of decoding, evaluation and data can be changed."""

# Limits: the field of server/settings.py, its unit, its meaning.
_LIMITS = {
    "rows": ("N", "texts searched at a time by each process, or on each accelerator"),
    "queue": ("N", "most texts that wait; requests beyond are refused: 429"),
    "timeout": ("SECONDS", "in which a text must be finished: else 504"),
    "max_body": ("BYTES", "per request"),
    "max_characters": ("N", "per text"),
    "max_texts": ("N", "per request"),
    "max_batch": ("N", "texts per request to /api/batches"),
    "max_prompt": ("N", "pieces of a prompt"),
    "max_tokens": ("N", "pieces written after a prompt"),
}


def main(argv: Sequence[str]) -> int:
    """Serve until a signal, and return the exit code."""
    arguments, overrides = _parser().read(argv)
    experiment = adjusted(WorkDir(arguments.workdir[0]).experiment(), overrides)
    missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"serve: needs {', '.join(missing)}: pip install {' '.join(missing)}")

    from transformer_jax.experiments.process import open_many_files
    from transformer_jax.server.app import application
    from transformer_jax.server.model import reads_whole
    from transformer_jax.server.service import Service
    from transformer_jax.server.uvicorn_server import Server

    _log_to_stderr()
    place = _bound(arguments.host, arguments.port)
    prepare_process()
    open_many_files()
    settings = _settings(arguments)
    checkpoint = arguments.checkpoint or experiment.evaluation.checkpoint
    pool = None if reads_whole(experiment) else _pool(arguments.processes)
    load, steps = _loading(arguments.workdir, checkpoint, experiment, settings, pool)
    service = Service(load, settings, steps)
    server = Server(application(service), service, arguments.drain, arguments.watch)
    server.run([place])
    code = 70 if server.failed else 0
    if pool is not None:
        pool.close()
    if service.loading:  # an interpreter that ends while XLA compiles is aborted
        logging.shutdown()
        os._exit(code)
    return code


def _parser() -> Parser:
    from transformer_jax.server.settings import Settings

    parser = Parser(_HELP)
    add = parser.add_argument
    add("--workdir", required=True, action="append", help=WORKDIRS)
    add("--checkpoint", help=CHECKPOINTS)
    add("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0: all interfaces; "
        "default: %(default)s")  # fmt: skip
    add("--port", type=int, default=8000, help="default: %(default)s; 0: any free one")
    add("--name", help="model name for clients; default: that of the work directory")
    for name, (unit, what) in _LIMITS.items():
        default = getattr(Settings, name)
        add(f"--{name.replace('_', '-')}", type=type(default), default=default, metavar=unit,
            help=f"{what}; default: %(default)s")  # fmt: skip
    add("--processes", type=int, metavar="N", help="that search, each on its share of the cores; "
        "default: one per core, up to 4; with an accelerator, only the server's own")  # fmt: skip
    add("--drain", type=float, default=60.0, metavar="SECONDS", help="for requests to finish "
        "after SIGTERM; default: %(default)s")  # fmt: skip
    add("--watch", type=float, default=0.0, metavar="SECONDS", help="how often to look for a "
        "new checkpoint and load it; default: never")  # fmt: skip
    add("--allow-reload", action="store_true", help="reload the checkpoint on POST /reload")
    add("--allow-origin", action="append", metavar="ORIGIN", help="whose web pages may use the "
        "server from a browser, such as https://example.org; may be repeated; '': only the "
        "server's own page; default: all")  # fmt: skip
    return parser


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address, which accepts no connections yet."""
    if not 0 <= port <= 65535:
        raise UserError(f"--port={port}: must lie between 0 and 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        place = socket.socket(family, kind, protocol)
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(address)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"--host={host} --port={port}: cannot listen there ({reason}); choose another"
        ) from None
    return place


def _settings(arguments: argparse.Namespace) -> Any:
    from transformer_jax.server.settings import Settings

    limits = {name: getattr(arguments, name) for name in _LIMITS}
    for name, value in limits.items():
        if not 0 < value < math.inf:
            raise UserError(f"--{name.replace('_', '-')}={value}: must be above 0")
    for name in ("drain", "watch"):
        value = getattr(arguments, name)
        if not 0 <= value < math.inf:
            raise UserError(f"--{name}={value}: must be a number of seconds, at least 0")
    if arguments.max_texts > arguments.queue:
        raise UserError(
            f"--max-texts={arguments.max_texts}: is more than --queue={arguments.queue}, so such a "
            "request would never be accepted; lower it"
        )
    name = arguments.name or Path(arguments.workdir[0]).absolute().name
    key = os.environ.get(_KEY) or None
    if key is None and arguments.host not in ("127.0.0.1", "::1", "localhost"):
        logging.getLogger("transformer_jax").warning(
            "--host=%s without %s: anyone who can reach this machine can use the model",
            arguments.host,
            _KEY,
        )
    origins = _origins(arguments.allow_origin)
    return Settings(
        name=name, key=key, allow_reload=arguments.allow_reload, allow_origins=origins, **limits
    )


def _origins(given: list[str] | None) -> tuple[str, ...]:
    """Return the origins whose pages may use the server, as browsers write them."""
    if given is None:
        return ("*",)
    for origin in given:
        if origin not in ("", "*") and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s]+", origin):
            raise UserError(
                f"--allow-origin={origin}: must be a scheme and a host, without a path, such as "
                "https://example.org"
            )
    return tuple(origin for origin in given if origin)


def _pool(processes: int | None) -> Any:
    """Return the search processes, or None if the server searches itself."""
    import jax

    from transformer_jax.data.store.encoding import cores

    most = len(cores()) if jax.default_backend() == "cpu" and os.name == "posix" else 1
    count = min(jax.local_device_count(), most) if processes is None else processes
    if not 0 < count <= most:
        raise UserError(
            f"--processes={count}: must be between 1 and {most}, the number of cores, or 1 on "
            "accelerators"
        )
    if count == 1:
        return None
    from transformer_jax.server.processes.pool import SearchPool

    return SearchPool(count)


def _loading(
    workdirs: Sequence[str], checkpoint: str, experiment: Experiment, settings: Any, pool: Any,
) -> tuple[Callable[[], Any], Callable[[], list[int]]]:  # fmt: skip
    """Return a function that loads the model, and one that returns the steps it would load."""
    from transformer_jax.runs.checkpoint import Checkpoints
    from transformer_jax.server.model import Served

    def load() -> Served:
        trained = load_adjusted(workdirs, checkpoint, experiment)
        return Served(trained, experiment.decoding, settings, pool)

    def steps() -> list[int]:
        numbers: list[int] = []
        for workdir in workdirs:
            checkpoints = Checkpoints(WorkDir(workdir).checkpoints, experiment.checkpoint)
            for name in checkpoint.split(","):
                numbers += checkpoints.choose(name)
            checkpoints.close()
        return numbers

    return load, steps


def _log_to_stderr() -> None:
    """Log with timestamps to standard error."""
    log = logging.getLogger("transformer_jax")
    for handler in list(log.handlers):
        log.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter("%(asctime)s "))
    log.addHandler(handler)
    log.setLevel(logging.INFO)

"""Several processes as one program: joining, agreement, and detecting that one is gone."""

import atexit
import hashlib
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax._src import distributed  # its key-value store has no public name
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer_jax.base.disk import DiskError
from transformer_jax.base.errors import UserError
from transformer_jax.sharding.mesh import AXES, on_every_device

log = logging.getLogger("transformer_jax")

SILENCE = 20.0  # seconds without a heartbeat after which a process counts as gone
_PERIOD = 1.0  # seconds between heartbeats
GONE = 75  # the exit code of the remaining processes: the same command again resumes


@contextmanager
def joined(
    coordinator: str | None, num_processes: int | None, process_id: int | None
) -> Iterator[None]:
    """Join several processes: at "HOST:PORT" of process 0, or as JAX detects them with "auto".

    JAX detects SLURM, Open MPI, TPU pods and the like. With None this is the only process. When one
    ends early, the others report which within little more than SILENCE, and exit with GONE.

    Raises:
      UserError: if the processes cannot find each other.
    """
    if coordinator is None:
        if (num_processes, process_id) != (None, None):
            raise UserError("--num_processes and --process_id need --coordinator=HOST:PORT")
        yield
        return
    _connect(coordinator, num_processes, process_id)
    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(over,), daemon=True)
    watch.start()
    try:
        yield
        together("the end")  # no process leaves while another needs it
    except BaseException as error:
        _fail(error)
        raise
    over.set()
    watch.join()  # a thread waiting in the store would not survive interpreter shutdown


def _connect(coordinator: str, num_processes: int | None, process_id: int | None) -> None:
    automatic = coordinator == "auto"
    if automatic != (num_processes is None) or automatic != (process_id is None):
        raise UserError(
            f"--coordinator={coordinator}: HOST:PORT needs --num_processes and --process_id; "
            "auto takes neither"
        )
    if not automatic and (process_id is None or not 0 <= process_id < (num_processes or 0)):
        raise UserError(
            f"--process_id={process_id}: must be at least 0 and below "
            f"--num_processes={num_processes}"
        )
    if not automatic:
        _check_port(coordinator, listens=process_id == 0)
    # JAX's SIGTERM handler would interfere with ours, which agrees on a step by itself.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            None if automatic else coordinator,
            num_processes,
            process_id,
            cluster_detection_method=None if automatic else "deactivate",
        )
    except (ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"--coordinator={coordinator}: {reason}") from None


def _check_port(coordinator: str, listens: bool) -> None:
    """Check HOST:PORT, and for the process that listens there that nobody else does: JAX would end
    in a segmentation fault.

    Raises:
      UserError: if it is not an address, or in use.
    """
    host, _, text = coordinator.rpartition(":")
    port = int(text) if text.isdecimal() and len(text) < 6 else 0
    if not host or not 0 < port < 65536:
        raise UserError(
            f"--coordinator={coordinator}: must be HOST:PORT of process 0, with a port from 1 to "
            "65535, or auto"
        )
    if not listens or "JAX_COORDINATOR_BIND_ADDRESS" in os.environ:
        return
    try:
        # As JAX does: at every address of this machine, of IPv4 as well.
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        socket.create_server(("", port), family=family, dualstack_ipv6=both).close()
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise UserError(
            f"--coordinator={coordinator}: port {port} cannot be used ({reason}); choose another, "
            "the same for all processes"
        ) from None


def together(what: str) -> None:
    """Wait until every process is here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(what)


@contextmanager
def all_or_none(
    errors: tuple[type[Exception], ...] = (OSError, DiskError),
    elsewhere: Callable[[int], Exception] = lambda i: DiskError(f"process {i} cannot write"),
) -> Iterator[None]:
    """Raise an error in every process if one encounters an error of these kinds inside: its own, or
    that of the first process that has one, by its index.

    For files that a single process writes, or reads its part of, so that all continue alike. There
    is no waiting for others inside.
    """
    error: Exception | None = None
    try:
        yield
    except errors as met:
        error = met
    if jax.process_count() > 1:
        failed = multihost_utils.process_allgather(np.array(error is not None))
        if failed.any() and error is None:
            raise elsewhere(int(failed.argmax()))
    if error is not None:
        raise error


def from_first(text: str) -> str:
    """Return process 0's text; in all processes it must have the same number of bytes."""
    if jax.process_count() == 1:
        return text
    mine = np.frombuffer(text.encode(), np.uint8)
    return bytes(np.asarray(multihost_utils.broadcast_one_to_all(mine))).decode()


def check_same(what: str, digest: str) -> None:
    """Check that this process has the same digest of something as the first one.

    Raises:
      UserError: if it has not.
    """
    if jax.process_count() == 1:
        return
    mine = np.frombuffer(hashlib.blake2b(digest.encode(), digest_size=16).digest(), np.uint8)
    if not np.array_equal(multihost_utils.broadcast_one_to_all(mine), mine):
        raise UserError(
            f"{what}: process {jax.process_index()} has a different one from process 0; "
            "all must read the same files"
        )


def _fail(error: BaseException) -> None:
    """Tell the others why this process ends, and end it without waiting for them."""
    if isinstance(error, UserError):
        code, reason = error.exit_code, str(error)
    elif isinstance(error, KeyboardInterrupt):
        code, reason = 130, "interrupted"
    else:
        # When a process dies, others often see only a failed operation. While this waits, `_watch`
        # finds out which process it was, reports it and exits.
        log.info("%s: checking whether another process is gone", type(error).__name__)
        time.sleep(SILENCE + 2 * _PERIOD)
        code, reason = 1, f"{type(error).__name__}: {error}".splitlines()[0]
    message = f"process {jax.process_index()} ({socket.gethostname()}) stopped: {reason}"
    _store().key_value_set("gone", f"{GONE if code == 1 else code} {message}", allow_overwrite=True)
    atexit.register(_leave, code)  # before JAX's own handler, which waits for all processes


def _leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _store() -> Any:
    return distributed.global_state.client


def _watch(over: threading.Event) -> None:
    """Send heartbeats, and check those of the others, until the program ends."""
    store, me = _store(), distributed.global_state.process_id
    # By process, its last sign and how often it was unchanged. Checks are counted, not seconds, so
    # that no process takes the others for dead after the computer slept.
    heard: dict[str, tuple[str, int]] = {}
    count = 0
    while not over.is_set():
        try:
            count += 1
            sign = f"{count} {socket.gethostname()}"
            store.key_value_set(f"alive/{me}", sign, allow_overwrite=True)
            for key, sign in store.key_value_dir_get("alive/"):
                old, missed = heard.get(key, ("", 0))
                heard[key] = sign, missed + 1 if sign == old else 0
                if missed * _PERIOD >= SILENCE:
                    name = f"process {key.rpartition('/')[2]} ({sign.partition(' ')[2]})"
                    _say_goodbye(GONE, f"{name} has sent no heartbeat for {SILENCE:.0f} s")
            code, _, message = store.blocking_key_value_get("gone", int(_PERIOD * 1000)).partition(
                " "
            )
            _say_goodbye(int(code), message)
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error) and not over.is_set():  # else none is gone
                _say_goodbye(GONE, "process 0, the coordinator, is gone")


def _say_goodbye(code: int, reason: str) -> None:
    again = "; run the same command again to resume from the last checkpoint"
    log.error("%s%s", reason, again if code == GONE else "")
    _leave(code)


class Agreement:
    """The maximum over processes of a value from each, the same in all of them.

    No process waits for the current step: the answer is that of the previous call, except in the
    first call.
    """

    def __init__(self, mesh: Mesh) -> None:
        self._rows = NamedSharding(mesh, PartitionSpec(AXES))
        self._greatest = jax.jit(lambda x: x.max(0), out_shardings=on_every_device(mesh))
        self._pending: Any = None

    def __call__(self, *values: float) -> list[float]:
        if jax.process_count() == 1:
            return list(values)
        mine = np.tile(np.array(values, np.float32), (jax.local_device_count(), 1))
        said = self._greatest(jax.make_array_from_process_local_data(self._rows, mine))
        answer, self._pending = said if self._pending is None else self._pending, said
        return np.asarray(answer).tolist()

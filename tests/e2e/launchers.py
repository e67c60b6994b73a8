"""The documented script of Slurm on this machine, with stand-ins on PATH for what it calls."""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "docs/launch"

# Slurm's srun for one machine: as many processes as the job has tasks, each with its variables. It
# passes SIGTERM on, ends the others after one fails, and returns the highest exit code. The program
# is imported once, then forked.
SRUN = """import os, signal, sys, time
import transformer_jax.experiments.train
from transformer_jax.cli.main import main
options, sys.argv = sys.argv[1:3], sys.argv[3:]
assert options[0] == "--kill-on-bad-exit=1" and options[1].startswith("--cpus-per-task="), options
codes = {}
for number in range(int(os.environ["SLURM_NTASKS"])):
    task = os.fork()
    if not task:
        os.environ |= {"SLURM_PROCID": str(number), "SLURM_LOCALID": str(number),
                       "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_NUM_NODES": "1"}
        place = os.path.join(os.environ["PIDS"], str(number))
        with open(place + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(place + ".new", place)
        sys.exit(main())
    codes[task] = None
def passed(number, frame=None):
    for task, code in codes.items():
        if code is None:
            os.kill(task, number)
def wait(seconds, enough):
    until = time.monotonic() + seconds
    while None in codes.values() and not enough() and time.monotonic() < until:
        task, status = os.waitpid(-1, os.WNOHANG)
        if task:
            code = os.waitstatus_to_exitcode(status)
            codes[task] = code if code >= 0 else 128 - code
        time.sleep(0.05)
signal.signal(signal.SIGTERM, passed)
wait(1e9, lambda: any(codes.values()))
passed(signal.SIGTERM)
wait(5, lambda: False)
passed(signal.SIGKILL)
wait(60, lambda: False)
sys.exit(max(codes.values()))
"""


def executable(place: Path, text: str) -> None:
    """Write a program."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    place.chmod(0o755)


class Cluster:
    """`count` processes of transformer-jax, each with one CPU device."""

    def __init__(self, home: Path, count: int, **environment: str) -> None:
        self.home, self.count, self.pids = home, count, home / "pids"
        self.pids.mkdir(parents=True)
        tools = home / "bin"
        executable(tools / "srun", f"#!{sys.executable}\n{SRUN}")
        executable(tools / "scontrol", f'#!/bin/sh\necho "$@" > {home}/scontrol\n')
        self.environment = os.environ | {
            "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
            "PIDS": str(self.pids), "PAUSE": "0", "SLURM_JOB_ID": str(_job()),
            "SLURM_NTASKS": str(count), "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1",
            **environment,
        }  # fmt: skip

    def slurm(self, *arguments: str) -> subprocess.Popen:
        """Start the script, as sbatch does."""
        with open(self.home / "output", "ab") as output:
            return subprocess.Popen(
                ["bash", LAUNCH / "train.slurm", *arguments], cwd=ROOT, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def pid(self, number: int) -> int | None:
        """Return the process id of a process that has started, or None."""
        try:
            return int((self.pids / str(number)).read_text())
        except FileNotFoundError:
            return None

    def said(self) -> str:
        """Return what all of them printed."""
        return (self.home / "output").read_text(errors="replace")


def _job() -> int:
    """Return a job id that makes JAX choose a free port, for it derives one from the other."""
    for job in range(os.getpid(), os.getpid() + 4096):
        with socket.socket() as free:
            try:
                free.bind(("", job % 4096 + 61440))
            except OSError:
                continue
            return job
    raise OSError("no port is free")

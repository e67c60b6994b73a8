"""Memory that a process keeps, and the devices it makes of cores."""

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from transformer_jax.experiments.process import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()

def use():
    np.ones(2**23)  # 64 MB, written to and freed

use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_memory_is_used_again():
    """Without a fault: freed as usual, each of its pages costs one every time."""

    def faults(how: str) -> int:
        run = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        return int(run.stdout)

    usual = faults("usual")
    assert faults("keep") < usual / 20


DEVICES = """
import os, sys

cores = int(sys.argv[1])
os.sched_getaffinity = lambda process: set(range(cores))
from transformer_jax.experiments.process import use_every_core

use_every_core()
import jax
print(jax.device_count())
"""


@pytest.mark.parametrize(("cores", "devices"), [(1, 1), (2, 2), (3, 3), (16, 4)])
def test_each_core_is_a_device_up_to_four(cores, devices):
    environment = {
        name: value for name, value in os.environ.items()
        if name not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")
    }  # fmt: skip
    command = [sys.executable, "-c", DEVICES, str(cores)]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) == devices

"""Memory that a process keeps, and the cores it uses as devices."""

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy as np
from transformer_jax.experiments.process import keep_freed_memory

def use():
    np.ones(2**23)  # 64 MB, written to and freed

def faults():
    use()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        use()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

usual = faults()
keep_freed_memory()
print(usual, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_memory_is_reused():
    """Without page faults; by default, every page costs one each time."""
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    usual, kept = map(int, run.stdout.split())
    assert kept < usual / 20


DEVICES = """
import os
import jax
from jax.extend.backend import clear_backends
from transformer_jax.experiments.process import use_every_core

nothing_said = jax.config.jax_num_cpu_devices
for cores in (1, 2, 3, 16):
    os.sched_getaffinity = lambda process: set(range(cores))
    clear_backends()
    jax.config.update("jax_num_cpu_devices", nothing_said)
    use_every_core()
    print(jax.device_count())
"""


def test_each_core_is_a_device_up_to_four():
    environment = {
        name: value for name, value in os.environ.items()
        if name not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")
    }  # fmt: skip
    command = [sys.executable, "-c", DEVICES]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["1", "2", "3", "4"]

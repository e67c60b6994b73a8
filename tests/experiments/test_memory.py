"""Memory that a process keeps."""

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

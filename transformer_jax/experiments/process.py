"""What a program sets for its whole process, before it computes anything."""

import ctypes
import os
from contextlib import suppress

import jax

from transformer_jax.disk import cache_dir

# By the numbers of malloc.h: one arena for all threads, nothing by mmap, no trimming.
_MALLOC = {-8: 1, -4: 0, -1: -1}


def use_compilation_cache() -> None:
    """Keep compiled programs, so that a second start compiles nothing."""
    jax.config.update("jax_compilation_cache_dir", str(cache_dir() / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def use_every_core() -> None:
    """Make devices of a CPU's cores, up to 4, so that each searches among sentences of its own.

    To be called before anything is computed; it changes nothing on accelerators, nor where the
    number of devices is given already.
    """
    given = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not given and jax.config.jax_num_cpu_devices < 1:  # type: ignore[attr-defined]
        lent = hasattr(os, "sched_getaffinity")  # on Linux: the cores that this process may use
        cores = len(os.sched_getaffinity(0)) if lent else os.cpu_count() or 1
        jax.config.update("jax_num_cpu_devices", min(4, cores))


def keep_freed_memory() -> None:
    """Have the C library keep what is freed, for the next step to use; Linux with glibc only.

    On a CPU, XLA asks for its temporary memory anew in every step. If it goes back to the system in
    between, every page of it costs a fault: a fifth of a small model's step. The price is that the
    process stays as large as it ever was. To be called before arrays are made: later it
    helps less.
    """
    with suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in _MALLOC.items():
            mallopt(parameter, value)


def open_many_files() -> None:
    """Let the process have as many files and connections open as the system allows; not on Windows.

    Often it begins with 1,024, which slow clients alone could use up.
    """
    with suppress(ImportError, OSError, ValueError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

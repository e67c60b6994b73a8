"""Process-wide settings of the programs, made before anything is computed."""

import ctypes
import os
from contextlib import suppress

import jax

from transformer_jax.base.disk import cache_dir
from transformer_jax.data.store.encoding import cores

# Option numbers of malloc.h: one arena for all threads, no mmap, no trimming.
_MALLOC = {-8: 1, -4: 0, -1: -1}


def use_compilation_cache() -> None:
    """Cache compiled programs on disk, so that a second start compiles nothing."""
    jax.config.update("jax_compilation_cache_dir", str(cache_dir() / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def use_every_core() -> None:
    """Make up to 4 devices from a CPU's cores, so that each decodes its own sentences.

    Call it before anything is computed; it has no effect on accelerators, or if the number of
    devices is already set.
    """
    forced = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not forced and jax.config.jax_num_cpu_devices < 1:  # type: ignore[attr-defined]
        jax.config.update("jax_num_cpu_devices", min(4, len(cores())))


def keep_freed_memory() -> None:
    """Make the C library keep freed memory for the next step; Linux with glibc only.

    On a CPU, XLA allocates its temporary memory anew in every step. If it is returned to the system
    in between, every page costs a fault: a fifth of a small model's step. The price is that the
    process never shrinks. Call it before arrays are created: later it helps less.
    """
    with suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in _MALLOC.items():
            mallopt(parameter, value)


def open_many_files() -> None:
    """Raise the process's limit of open files and connections to the system's; not on Windows.

    The default is often 1,024, which slow clients alone could use up.
    """
    with suppress(ImportError, OSError, ValueError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

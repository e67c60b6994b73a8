"""The machine's processor, and which of the instructions that decide a CPU's speed it has."""

import functools
import platform
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

# As Linux spells them: vectors of 256 and 512 bits; sums of products of 8-bit integers; products of
# bfloat16, as vectors, as tiles, and on ARM.
INSTRUCTIONS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "bf16")
_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}
_CPUINFO = Path("/proc/cpuinfo")


def described() -> dict[str, Any]:
    """Return the name of the processor, and those of INSTRUCTIONS that it has."""
    return {"processor": name(), "instructions": list(instructions())}


def name() -> str:
    """Return the name of the processor, or at least its architecture."""
    return _line("model name") or platform.processor() or platform.machine()


def instructions() -> tuple[str, ...]:
    """Return those of INSTRUCTIONS that the processor has; none where Linux does not say."""
    has = (_line("flags") or _line("Features")).split()
    return tuple(word for word in INSTRUCTIONS if word in has)


def multiplies_bfloat16() -> bool:
    """Return whether the processor has instructions for products of bfloat16. Without them XLA
    computes such products in float32, conversions included: slower than those of float32.
    """
    return not _BFLOAT16.isdisjoint(instructions())


@functools.cache
def _line(field: str) -> str:
    """Return the first value of a field of /proc/cpuinfo, or ""."""
    with suppress(OSError):
        text = _CPUINFO.read_text(encoding="utf-8")
        if found := re.search(rf"^{field}\s*: (.*)", text, re.MULTILINE):
            return found[1]
    return ""

"""Accelerators as their makers describe them."""

from typing import NamedTuple


class Chip(NamedTuple):
    """One accelerator."""

    memory: float  # bytes
    operations: float  # most a second, bfloat16 matrix products without sparsity
    watts: float | None  # board power; None: not published


_V5E, _V6E, _V5P = Chip(16e9, 197e12, None), Chip(32e9, 918e12, None), Chip(95e9, 459e12, None)

# By topology, as libtpu names them: the smallest first.
TPUS = {
    "v5e:2x2": _V5E,
    "v5e:2x4": _V5E,
    "v5e:4x4": _V5E,
    "v6e:2x4": _V6E,
    "v5p:2x2x2": _V5P,
}

GPUS = {
    "L4": Chip(24e9, 121e12, 72),
    "RTX 4090": Chip(24e9, 165e12, 450),
    "A100 40GB": Chip(40e9, 312e12, 400),
    "A100 80GB": Chip(80e9, 312e12, 400),
    "H100 SXM": Chip(80e9, 989e12, 700),
    "H200 SXM": Chip(141e9, 989e12, 700),
    "B200": Chip(180e9, 2250e12, 1000),
}

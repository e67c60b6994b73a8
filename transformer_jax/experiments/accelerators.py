"""Published figures of accelerators."""

from typing import NamedTuple


class Links(NamedTuple):
    """The bandwidth of a device, in bytes per second in one direction."""

    node: int  # devices that are connected directly
    near: float  # to those devices
    far: float  # to other devices


class Chip(NamedTuple):
    """One accelerator."""

    memory: float  # bytes
    operations: float  # peak per second, dense bfloat16 matrix products
    watts: float | None = None  # board power; None: not published
    links: Links | None = None  # None: no interconnect


# Inside a slice, along one axis of the torus: half the bidirectional rate, divided by the axes.
_V5E = Chip(16e9, 197e12, links=Links(256, 100e9, 3.1e9))
_V6E = Chip(32e9, 918e12, links=Links(256, 200e9, 12.5e9))
_V5P = Chip(95e9, 459e12, links=Links(8960, 200e9, 6.25e9))

# By libtpu's names of topologies, the smallest first.
TPUS = {
    "v5e:2x2": _V5E,
    "v5e:2x4": _V5E,
    "v5e:4x4": _V5E,
    "v6e:2x4": _V6E,
    "v5p:2x2x2": _V5P,
    "v5e:8x8": _V5E,
    "v5p:4x4x4": _V5P,
    "v5e:16x16": _V5E,
    "v5p:8x8x16": _V5P,
}

# NVLink inside a node, one network card per device between nodes.
_A100, _H100 = Links(8, 300e9, 25e9), Links(8, 450e9, 50e9)

GPUS = {
    "L4": Chip(24e9, 121e12, 72),
    "RTX 4090": Chip(24e9, 165e12, 450),
    "A100 40GB": Chip(40e9, 312e12, 400, _A100),
    "A100 80GB": Chip(80e9, 312e12, 400, _A100),
    "H100 SXM": Chip(80e9, 989e12, 700, _H100),
    "H200 SXM": Chip(141e9, 989e12, 700, _H100),
    "B200": Chip(180e9, 2250e12, 1000, Links(8, 900e9, 50e9)),
}

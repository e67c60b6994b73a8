"""The communication between devices in a compiled program, read from its HLO text."""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_COLLECTIVE = re.compile(
    r"= (\(.*?\)|\S+) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)"
    r"(-start)?\("
)
_ARRAY = re.compile(r"\b([a-z]+)(\d+)[a-z0-9]*\[([\d,]*)\]")
_LISTED = re.compile(r"replica_groups=\{\{([\d,]+)\}")
_COUNTED = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(
    r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))?"
    r" \{([^}]*)\}"
)
_AXIS = re.compile(r"'(\w+)'(?:=(\d+)|:\((\d+)\)(\d+))?")
_ALL = re.compile(r"replica_groups=\{\}")
_PARTITIONS = re.compile(r"num_partitions=(\d+)")
_PAIRS = re.compile(r"source_target_pairs=\{(\{.*?\})\}")
_CALLED = re.compile(r"\b(?:body|to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_WIDENED = "_promoted"  # in the name of the sum that an all-reduce applies
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')


class Collective(NamedTuple):
    """The collectives of one kind among groups of one shape, in one run of a program."""

    kind: str  # XLA's name, such as "all-reduce"
    devices: int  # per group
    span: int  # from the first to the last device number of a group, inclusive
    times: int
    sent: float  # bytes that each device sends, with ring algorithms


def collectives(text: str) -> list[Collective]:
    """Return the collectives of one run of a compiled program; `text` is its `as_text()`.

    The body of a loop counts once per known trip, or once if that is unknown; all branches of a
    conditional count.
    """
    bodies, entry = _computations(text)
    partitions = int(matched[1]) if (matched := _PARTITIONS.search(text)) else 1
    total: dict[tuple[str, int, int], tuple[int, float]] = {}
    for kind, group, sent, times in _run(entry, bodies, partitions, 1):
        key = kind, len(group), max(group) - min(group) + 1
        count, so_far = total.get(key, (0, 0.0))
        total[key] = count + times, so_far + times * sent
    return [Collective(*key, *value) for key, value in sorted(total.items())]


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
    """Return the lines of each computation, and the name of the entry computation."""
    bodies: dict[str, list[str]] = {}
    name = entry = ""
    for line in text.splitlines():
        if matched := _COMPUTATION.match(line):
            name = matched[2]
            bodies[name] = []
            entry = name if matched[1] else entry
        elif name:
            bodies[name].append(line)
    return bodies, entry


def _run(
    name: str, bodies: dict[str, list[str]], partitions: int, times: int
) -> Iterator[tuple[str, list[int], float, int]]:
    """Yield the kind, a group, the bytes sent and the count of each collective of a computation."""
    for line in bodies.get(name, ()):
        if matched := _COLLECTIVE.search(line):
            group = _group(line, partitions)
            if len(group) > 1:
                size = _bytes(matched[1])
                if _WIDENED in line:  # for a CPU: of bfloat16, as float32
                    size //= 2
                yield (
                    matched[2],
                    group,
                    _sent(matched[2], size, len(group), bool(matched[3])),
                    times,
                )
            continue  # it only calls its reduction
        trips = _TRIPS.search(line)
        inner = times * int(trips[1]) if trips else times
        called = _CALLED.findall(line)
        for branches in _BRANCHES.findall(line):
            called += [branch.strip().lstrip("%") for branch in branches.split(",")]
        for one in called:
            yield from _run(one, bodies, partitions, inner)


def _group(line: str, partitions: int) -> list[int]:
    """Return the devices of the first group, or of the pair that is furthest apart.

    Raises:
      ValueError: if their notation is unknown.
    """
    if matched := _LISTED.search(line):
        return [int(number) for number in matched[1].split(",")]
    if matched := _COUNTED.search(line):
        return _numbers(matched[2], matched[3])[: int(matched[1].split(",")[-1])].tolist()
    if matched := _MESH.search(line):
        places = _along(matched[1], matched[4])
        return (_numbers(matched[2], matched[3])[places] if matched[2] else places).tolist()
    if matched := _PAIRS.search(line):
        pairs = [sorted(map(int, pair.split(","))) for pair in matched[1].strip("{}").split("},{")]
        first, last = max(pairs, key=lambda pair: pair[1] - pair[0])
        return sorted({first, last})
    if _ALL.search(line):
        return list(range(partitions))
    raise ValueError(f"cannot parse the devices of this collective: {line.strip()}")


def _numbers(shape: str, order: str | None) -> np.ndarray:
    """Return arange(prod(shape)), reshaped, transposed by `order` and flattened."""
    sizes = [int(n) for n in shape.split(",")]
    axes = [int(n) for n in order.split(",")] if order else range(len(sizes))
    return np.arange(math.prod(sizes)).reshape(sizes).transpose(tuple(axes)).reshape(-1)


def _along(mesh: str, axes: str) -> np.ndarray:
    """Return the first group along axes of a mesh, or parts of axes, as in 'axis':(before)size."""
    sizes = {name: int(size) for name, size, _, _ in _AXIS.findall(mesh)}
    group = np.zeros(1, int)
    for name, _, before, size in _AXIS.findall(axes):
        names = list(sizes)
        stride = math.prod(sizes[one] for one in names[names.index(name) + 1 :])
        count = int(size or sizes[name])
        stride *= sizes[name] // (int(before or 1) * count)
        group = (group[:, None] + stride * np.arange(count)).reshape(-1)
    return group


def _bytes(result: str) -> int:
    """Return the size of a result, one array or several; each `pred` takes a byte."""
    arrays = _ARRAY.findall(result)
    sizes = [
        math.prod(int(n) for n in shape.split(",") if n) * int(bits) for _, bits, shape in arrays
    ]
    return sum(sizes) // 8 + sum(
        math.prod(int(n) for n in shape.split(",") if n)
        for shape in re.findall(r"\bpred\[([\d,]*)\]", result)
    )


def _sent(kind: str, size: int, devices: int, starts: bool) -> float:
    """Return the bytes that a device sends for a result of `size` bytes.

    The result of an asynchronous start also contains its operands, except for all-reduce.
    """
    n = devices
    if kind == "all-reduce":
        return 2 * size * (n - 1) / n
    if kind == "all-gather":
        return (size * n / (n + 1) if starts else size) * (n - 1) / n
    if kind == "reduce-scatter":
        return (size / (n + 1) if starts else size) * (n - 1)
    alone = size / 2 if starts else size
    return alone * (n - 1) / n if kind == "all-to-all" else alone

"""Estimates of how a step scales to many devices: the share of its time spent computing."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax

from transformer_jax.config import Experiment
from transformer_jax.experiments.accelerators import GPUS, Chip
from transformer_jax.experiments.collectives import Collective

SHARE = 0.4  # of its peak that a device is assumed to reach in matrix products


class Step(NamedTuple):
    """The seconds that a device computes and communicates in a step."""

    computing: float
    near: float  # communication inside a node
    far: float  # communication between nodes

    @property
    def efficiency(self) -> tuple[float, float]:
        """The share of a step spent computing: without and with communication overlapped."""
        exchanging = self.near + self.far
        waited = self.computing / (self.computing + exchanging)
        return waited, self.computing / max(self.computing, exchanging)


def predict(operations: float, found: Sequence[Collective], chip: Chip) -> Step:
    """Return the time of a step from a roofline model; `operations` are those of one device.

    Latency is ignored, although it dominates when messages are small. A chip without links does not
    communicate.
    """
    computing = operations / (SHARE * chip.operations)
    if chip.links is None:
        return Step(computing, 0.0, 0.0)
    near = far = 0.0
    for one in found:
        inside = one.sent / chip.links.near
        if one.span <= chip.links.node:
            near += inside
        else:  # a ring leaves a node once; its devices in the node each have a link of their own
            stride = (one.span - 1) // (one.devices - 1)
            mine = max(1, chip.links.node // stride)
            far += max(inside, one.sent / mine / chip.links.far)
    return Step(computing, near, far)


def exchanged(found: Sequence[Collective]) -> Iterator[str]:
    """Yield a line for each kind of collective."""
    for kind in sorted({one.kind for one in found}):
        mine = [one for one in found if one.kind == kind]
        groups = ", ".join(str(size) for size in sorted({one.devices for one in mine}))
        yield (
            f"{kind}: {sum(one.times for one in mine):,} among {groups} devices, "
            f"{gigabytes(sum(one.sent for one in mine))} sent"
        )


def described(name: str, count: int, step: Step) -> str:
    """Return a line for `count` devices of a kind."""
    exchanging = f"{_ms(step.near + step.far)} of communication"
    if step.far:
        exchanging += f", {_ms(step.far)} of it between nodes"
    low, high = (f"{share:.0%}" for share in step.efficiency)
    return (
        f"{count:,} x {name}: {_ms(step.computing)} of products at {SHARE:.0%} of the peak, "
        f"{exchanging}; {low} of the time computing, {high} if communication overlaps with it"
    )


def on_gpus(
    experiment: Experiment, peak: int, operations: float, found: Sequence[Collective], state: int
) -> Iterator[str]:
    """Yield estimates for a mesh of known size on the GPUs that can hold it, and warnings about
    unsuitable choices.

    `peak` is the memory in bytes of one device, `operations` are those of all devices; `state` is
    the size in bytes of parameters, gradients and optimizer state, unsharded.
    """
    count = jax.device_count()
    fit = {n: c for n, c in GPUS.items() if c.links is not None and peak <= 0.9 * c.memory}
    steps = {name: predict(operations / count, found, chip) for name, chip in fit.items()}
    for name, step in steps.items():
        yield f"GPU: {described(name, count, step)}"
    for name, chip in [*fit.items()][:1]:
        yield from (f"warning: {line}" for line in _foolish(experiment, name, chip, state))
    slow = [name for name, step in steps.items() if step.near + step.far > step.computing]
    if slow:
        yield (
            f"warning: on {', '.join(slow)} a step would communicate for longer than it computes; "
            "use fewer devices or a larger config.data.tokens_per_batch than "
            f"{experiment.data.tokens_per_batch}"
        )


def _foolish(experiment: Experiment, name: str, chip: Chip, state: int) -> Iterator[str]:
    mesh, links = experiment.mesh, chip.links
    if links is not None and mesh.tensor > links.node:
        yield (
            f"config.mesh.tensor={mesh.tensor} shards every layer across nodes of {links.node} "
            f"devices; use at most {links.node}, and config.mesh.data or fsdp for the rest"
        )
    for axis in ("fsdp", "tensor"):
        size = getattr(mesh, axis)
        if size > 1 and state <= 0.5 * chip.memory:
            yield (
                f"config.mesh.{axis}={size} shards a state of {gigabytes(state)}, which fits on "
                f"one {name}; config.mesh.data instead communicates only gradients"
            )


def gigabytes(size: float) -> str:
    """Return a size in bytes as text."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"

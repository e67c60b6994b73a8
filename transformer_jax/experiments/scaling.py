"""What many devices would make of a step: how much of the time they would compute."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax

from transformer_jax.config import Experiment
from transformer_jax.experiments.accelerators import GPUS, Chip
from transformer_jax.experiments.collectives import Collective

SHARE = 0.4  # of its peak that a device is taken to reach in matrix products


class Step(NamedTuple):
    """The seconds that a device computes and exchanges in a step."""

    computing: float
    near: float  # exchanges inside a node
    far: float  # exchanges between nodes

    @property
    def efficiency(self) -> tuple[float, float]:
        """The share of a step that is computing: exchanges are waited for, or hidden behind it."""
        exchanging = self.near + self.far
        waited = self.computing / (self.computing + exchanging)
        return waited, self.computing / max(self.computing, exchanging)


def predict(operations: float, found: Sequence[Collective], chip: Chip) -> Step:
    """Return what a step takes by a roofline; `operations` are those of one device.

    Latency is left out, which is what counts where messages are small. A chip without links
    exchanges nothing.
    """
    computing = operations / (SHARE * chip.operations)
    if chip.links is None:
        return Step(computing, 0.0, 0.0)
    near = far = 0.0
    for one in found:
        inside = one.sent / chip.links.near
        if one.span <= chip.links.node:
            near += inside
        else:  # a ring leaves a node once, and each of its devices there has a link of its own
            stride = (one.span - 1) // (one.devices - 1)
            mine = max(1, chip.links.node // stride)
            far += max(inside, one.sent / mine / chip.links.far)
    return Step(computing, near, far)


def exchanged(found: Sequence[Collective]) -> Iterator[str]:
    """Yield a line for each kind of exchange."""
    for kind in sorted({one.kind for one in found}):
        mine = [one for one in found if one.kind == kind]
        groups = ", ".join(str(size) for size in sorted({one.devices for one in mine}))
        yield (
            f"{kind}: {sum(one.times for one in mine):,} among {groups} devices, "
            f"{gigabytes(sum(one.sent for one in mine))} sent"
        )


def described(name: str, count: int, step: Step) -> str:
    """Return a line for so many devices of a name."""
    exchanging = f"{_ms(step.near + step.far)} of exchanges"
    if step.far:
        exchanging += f", {_ms(step.far)} of it between nodes"
    low, high = (f"{share:.0%}" for share in step.efficiency)
    return (
        f"{count:,} x {name}: {_ms(step.computing)} of products at {SHARE:.0%} of the peak, "
        f"{exchanging}; {low} of the time computing, {high} if exchanges are hidden behind it"
    )


def on_gpus(
    experiment: Experiment, peak: int, operations: float, found: Sequence[Collective], state: int
) -> Iterator[str]:
    """Yield what a mesh of known size would do on GPUs that can hold it, and warn of what is
    foolish about it.

    `peak` is what one device holds, `operations` are those of all; `state` is the size in bytes of
    parameters, gradients and optimizer state, undivided.
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
            f"warning: on {', '.join(slow)} a step would exchange for longer than it computes; "
            "take fewer devices or a larger config.data.tokens_per_batch than "
            f"{experiment.data.tokens_per_batch}"
        )


def _foolish(experiment: Experiment, name: str, chip: Chip, state: int) -> Iterator[str]:
    mesh, links = experiment.mesh, chip.links
    if links is not None and mesh.tensor > links.node:
        yield (
            f"config.mesh.tensor={mesh.tensor} divides every layer among nodes of {links.node} "
            f"devices; take at most {links.node}, and config.mesh.data or fsdp for the rest"
        )
    for axis in ("fsdp", "tensor"):
        size = getattr(mesh, axis)
        if size > 1 and state <= 0.5 * chip.memory:
            yield (
                f"config.mesh.{axis}={size} divides a state of {gigabytes(state)}, which one "
                f"{name} holds; config.mesh.data in its place exchanges gradients alone"
            )


def gigabytes(size: float) -> str:
    """Return a number of bytes as text."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"

"""What a classifier of moving digits sees in the frames of a clip, and in their order.

    python benchmarks/studies/moving_digits.py test runs/video-directions
    python benchmarks/studies/moving_digits.py write DIR [--digits=1]

test   its accuracy on the test clips as they are, on the same ones with their frames in a random
       order, with the first frame or the mean of all in the place of each, and played backwards
       (where the opposite direction is right); beside it, for one digit, that of the peak of the
       phase correlation of the first two frames, which needs no training. One JSON line for each.
write  DIR/shuffled, DIR/still and DIR/mean, with train.npz, validation.npz and test.npz of such
       clips, to train on: opposite directions show the same frames, so that what is blind to their
       order is right in at most half of all clips, and what has one frame in an eighth.

           python train.py --config=configs/video.py:directions --config.data.source=arrays \\
             --config.data.directory=DIR/still --config.data.target_language=labels
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from transformer_jax.api import load
from transformer_jax.config import DataConfig
from transformer_jax.data import sources
from transformer_jax.data.random import random
from transformer_jax.data.sources.moving_digits import DIRECTIONS
from transformer_jax.evaluation.metrics import interval

_NAMES = [*DIRECTIONS]  # each four places from its opposite


def shuffled(clips: np.ndarray) -> np.ndarray:
    """Return clips [n T H W], each with its frames in an order of its own."""
    numbers = np.arange(len(clips))[:, None], np.arange(clips.shape[1])
    order = np.argsort(random(1, *numbers), axis=1)
    return np.take_along_axis(clips, order[:, :, None, None], axis=1)


def still(clips: np.ndarray) -> np.ndarray:
    """Return clips with the first frame in the place of each."""
    return np.repeat(clips[:, :1], clips.shape[1], axis=1)


def mean(clips: np.ndarray) -> np.ndarray:
    """Return clips with the mean of all frames in the place of each."""
    blurred = np.rint(clips.mean(1, keepdims=True)).astype(np.uint8)
    return np.repeat(blurred, clips.shape[1], axis=1)


CONTROLS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "shuffled": shuffled, "still": still, "mean": mean,
}  # fmt: skip


def correlated(clips: np.ndarray) -> list[str]:
    """Return the direction of the peak of the phase correlation of the first two frames."""
    one, other = (np.fft.fft2(clips[:, frame].astype(np.float64)) for frame in (0, 1))
    product = other * one.conj()
    peaks = np.fft.ifft2(product / np.maximum(np.abs(product), 1e-9)).real
    steps = np.array([*DIRECTIONS.values()]) * 2
    return [_NAMES[i] for i in peaks[:, steps[:, 0], steps[:, 1]].argmax(1)]


def _report(name: str, said: Sequence[str], labels: Sequence[str]) -> None:
    right = sum(one == other for one, other in zip(said, labels, strict=True))
    ends = [round(100 * end, 2) for end in interval(right, len(labels))]
    share = round(100 * right / len(labels), 2)
    row = {"clips": name, "percent": share, "interval": ends, "of": len(labels)}
    print(json.dumps(row), flush=True)


def test(workdir: str, checkpoint: str) -> None:
    """Print the accuracies of a trained model."""
    trained = load(workdir, checkpoint)
    data = trained.experiment.data
    corpus = sources.load(data, "test", trained.experiment.objective)
    clips, labels = np.stack(corpus.src), list(corpus.tgt)

    def said(changed: np.ndarray) -> list[str]:
        return [next(iter(one)) for one in trained.classify(changed)]

    _report("as they are", said(clips), labels)
    for name, control in CONTROLS.items():
        _report(name, said(control(clips)), labels)
    opposite = [_NAMES[(_NAMES.index(label) + 4) % 8] for label in labels]
    _report("backwards", said(clips[:, ::-1]), opposite)
    if data.num_digits == 1:
        _report("phase correlation", correlated(clips), labels)


def write(directory: Path, digits: int) -> None:
    """Write the clips of each control, of the sizes of configs/video.py."""
    data = DataConfig(
        source="moving_digits", target_language="direction", num_digits=digits,
        num_examples=(20_000, 1000, 2000),
    )  # fmt: skip
    splits: tuple[sources.Split, ...] = ("train", "validation", "test")
    for split in splits:
        corpus = sources.load(data, split)
        clips = np.stack(corpus.src)
        for name, control in CONTROLS.items():
            (directory / name).mkdir(parents=True, exist_ok=True)
            path = directory / name / f"{split}.npz"
            np.savez(path, clips=control(clips), labels=np.array(corpus.tgt))


def main() -> None:
    """Test or write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("test", "write"))
    parser.add_argument("place", help="a work directory; for write, the folder of the clips")
    parser.add_argument("--checkpoint", default="last")
    parser.add_argument("--digits", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.what == "test":
        test(arguments.place, arguments.checkpoint)
    else:
        write(Path(arguments.place), arguments.digits)


if __name__ == "__main__":
    main()

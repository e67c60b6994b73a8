"""Drawn pictures beside real ones and beside what needs no network, as a classifier sees them.

    python train.py --config=configs/pictures.py:cifar10 --config.data.directory=DIR
    transformer-jax draw --workdir=RUN --checkpoint=500 --num-samples=100 --output=drawn-500.npz
    python benchmarks/studies/drawings.py DIR drawn-*.npz --classifier=runs/pictures-cifar10

DIR has train.npz and validation.npz with `images` and `labels`; each drawn file has `images` and
`labels` of as many pictures as half of validation has, or fewer. For each, a JSON line: the
share (%) in which the classifier sees the label; the Frechet distance of its features from as many
of one half of validation; and how near drawings are to training pictures: the median, over the
drawings, of the root mean square difference (of 255) from the nearest one.

The same is said of the other half of validation, which is the floor of distances and copies
nothing; of the mean picture of each class with the noise of a pixel of that class; of a normal
distribution of each class in its 32 principal components; and of training pictures themselves.
"""

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import transformer_jax
from transformer_jax.api import TrainedModel
from transformer_jax.data.sources.array_files import read_arrays
from transformer_jax.decoding.text.classify import features
from transformer_jax.evaluation.drawn import frechet_distance

_COMPONENTS = 32
_NEAREST = 200  # drawings whose nearest training picture is looked for


class Pictures(NamedTuple):
    """Pictures of bytes [n H W] or [n H W C], and the names of what they show."""

    images: np.ndarray
    labels: list[str]

    @classmethod
    def read(cls, path: Path) -> "Pictures":
        """Return those of a file."""
        arrays = read_arrays(path, ["images", "labels"], ["names"])
        names, labels = arrays.get("names"), arrays["labels"]
        images = arrays["images"]
        images = images[..., 0] if images.shape[-1] == 1 else images
        return cls(images, [str(x if names is None else names[x]) for x in labels])

    def some(self, places: np.ndarray) -> "Pictures":
        """Return those at places."""
        return Pictures(self.images[places], [self.labels[i] for i in places])


def main() -> None:
    """Print a line for each file and each control."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("drawn", type=Path, nargs="*")
    parser.add_argument("--classifier", required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    train, held_out = (
        Pictures.read(arguments.directory / f"{part}.npz") for part in ("train", "validation")
    )
    order = np.random.default_rng(arguments.seed).permutation(len(held_out.labels))
    half = len(order) // 2
    drawn = {path.name: Pictures.read(path) for path in arguments.drawn}
    count = min([half, *(len(one.labels) for one in drawn.values())])
    real, other = held_out.some(order[:count]), held_out.some(order[half : half + count])
    draw = np.random.default_rng(arguments.seed)
    rows = {"real pictures": other}
    rows["class mean and noise"] = normal(train, real.labels, 0, draw)
    rows["normal in 32 components"] = normal(train, real.labels, _COMPONENTS, draw)
    rows["training pictures"] = train.some(draw.permutation(len(train.labels))[:count])
    rows |= {name: spread(one, count) for name, one in drawn.items()}
    classifier = transformer_jax.load(arguments.classifier)
    seen = features(classifier.loaded, [*real.images])
    for name, pictures in rows.items():
        found = judged(classifier, pictures, seen) | {"copied": nearest(pictures, train)}
        values = {key: round(value, 3) for key, value in found.items()}
        print(json.dumps({"pictures": name, "count": count, **values}), flush=True)


def spread(pictures: Pictures, count: int) -> Pictures:
    """Return some of them, evenly spread."""
    return pictures.some(np.linspace(0, len(pictures.labels) - 1, count).astype(int))


def judged(classifier: TrainedModel, pictures: Pictures, real: np.ndarray) -> dict[str, float]:
    """Return what a classifier says of pictures, given its features of real ones."""
    said = [next(iter(one)) for one in classifier.classify([*pictures.images])]
    right = np.mean([x == y for x, y in zip(said, pictures.labels, strict=True)])
    own = features(classifier.loaded, [*pictures.images])
    return {"accuracy": 100 * float(right), "frechet_distance": frechet_distance(own, real)}


def nearest(pictures: Pictures, train: Pictures) -> float:
    """Return the median root mean square difference of pictures from the nearest of training."""
    some = spread(pictures, min(_NEAREST, len(pictures.labels))).images
    flat, others = (x.reshape(len(x), -1).astype(np.float32) for x in (some, train.images))
    squares = np.square(others).sum(1)[None] - 2 * flat @ others.T
    least = squares.min(1) + np.square(flat).sum(1)
    return float(np.median(np.sqrt(np.maximum(least, 0) / flat.shape[1])))


def normal(
    train: Pictures, labels: list[str], components: int, draw: np.random.Generator
) -> Pictures:
    """Return pictures of labels from a normal distribution of each class: in its principal
    components, or with 0 of them its mean and the deviation of each pixel.
    """
    flat = train.images.reshape(len(train.images), -1).astype(np.float32)
    names, made = np.array(train.labels), np.zeros((len(labels), flat.shape[1]), np.float32)
    for label in dict.fromkeys(labels):
        own = flat[names == label]
        mean, places = own.mean(0), np.flatnonzero(np.array(labels) == label)
        size: Any = (len(places), components or flat.shape[1])
        noise = draw.standard_normal(size).astype(np.float32)
        if components:
            _, scales, axes = np.linalg.svd(own[:2000] - mean, full_matrices=False)
            scales = scales[:components] / np.sqrt(min(len(own), 2000))
            noise = noise * scales @ axes[:components]
        else:
            noise *= own.std(0)
        made[places] = mean + noise
    shape = (len(labels), *train.images.shape[1:])
    return Pictures(np.clip(np.rint(made), 0, 255).astype(np.uint8).reshape(shape), labels)


if __name__ == "__main__":
    main()

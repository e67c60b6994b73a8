"""Reconstruction error of pictures encoded as codes, and how many of the codes are used; or as
latents, and how these are spread.
"""

from dataclasses import asdict
from typing import Any

import numpy as np

from transformer_jax.api import TrainedEnsemble, TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.data.codecs.patches import Patches
from transformer_jax.data.sources import Corpus
from transformer_jax.decoding.pictures import PictureLatents
from transformer_jax.evaluation import drawings
from transformer_jax.evaluation.run import Evaluation, origin


def evaluate(trained: TrainedModel, corpus: Corpus, split: str, checkpoint: str) -> Evaluation:
    """Return the root mean squared error of pixels (of 255), and of codes the number that a split
    uses and the perplexity of their frequencies, which equals that number if all are equally
    frequent; of latents, their mean and their deviation from it. Each picture's row has its mean
    squared error; some also have what reports draw.

    Raises:
      UserError: if the model is an ensemble.
    """
    if isinstance(trained, TrainedEnsemble):
        raise UserError("an ensemble cannot make pictures: load one checkpoint of one --workdir")
    coded, codec = trained.picture_codes, trained.tokenizers.tgt
    assert isinstance(codec, Patches)
    pictures = np.stack([np.reshape(picture, codec.form.shape[1:]) for picture in corpus.tgt])
    codes = coded.encode(pictures)
    made = coded.decode(codes)
    squares = np.square(made.astype(np.float32) - pictures).mean((1, 2, 3), dtype=np.float64)
    error = float(squares.mean() ** 0.5)
    of_codes = _latents if isinstance(coded, PictureLatents) else _codes
    values, line = of_codes(codes, trained.experiment.model.num_codes)
    scores: dict[str, dict[str, Any]] = {
        name: {"value": float(value), "signature": ""}
        for name, value in ({"pixel_error": error} | values).items()
    }
    details = [f"pixel error = {error:.2f} of 255 (root mean square)", line]
    result = {
        "split": split, "checkpoint": checkpoint, "steps": trained.steps,
        "sentences": len(pictures), "scores": scores, "details": details, "decoding": None,
        "evaluation": asdict(trained.experiment.evaluation), "references": corpus.fingerprint,
    }  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"line": number, **origin(value), "mse": x}
        for number, (value, x) in enumerate(zip(corpus.tgt, squares.tolist(), strict=True), 1)
    ]
    for place, drawn in drawings.reconstructions(pictures, made, squares).items():
        rows[place] |= drawn
    return Evaluation(result, None, rows, f"{len(pictures):,} pictures")


def _codes(codes: np.ndarray, count: int) -> tuple[dict[str, float], str]:
    """Return scores of codes [n L], of which there are `count`, and a line that says them."""
    share = np.unique(codes, return_counts=True)[1] / codes.size
    perplexity = float(np.exp(-(share * np.log(share)).sum()))
    line = f"codes used = {len(share)} of {count}, perplexity {perplexity:.1f}"
    return {"codes_used": len(share), "code_perplexity": perplexity}, line


def _latents(latents: np.ndarray, _: int) -> tuple[dict[str, float], str]:
    """Return scores of latents [n rows columns K], and a line that says them."""
    mean, spread = float(latents.mean(dtype=np.float64)), float(latents.std(dtype=np.float64))
    line = f"latents: mean {mean:.3f}, deviation {spread:.3f}, {latents.shape[-1]} channels"
    return {"latent_mean": mean, "latent_deviation": spread}, line

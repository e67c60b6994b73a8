"""Reconstruction error of pictures encoded as codes, and how many of the codes are used."""

from dataclasses import asdict
from typing import Any

import numpy as np

from transformer_jax.api import TrainedEnsemble, TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.data.codecs.patches import Patches
from transformer_jax.data.sources import Corpus
from transformer_jax.evaluation import drawings
from transformer_jax.evaluation.run import Evaluation, origin


def evaluate(trained: TrainedModel, corpus: Corpus, split: str, checkpoint: str) -> Evaluation:
    """Return the root mean squared error of pixels (of 255), the number of distinct codes that a
    split uses, and the perplexity of their frequencies, which equals that number if all codes are
    equally frequent. Each picture's row has its mean squared error; some also have what reports
    draw.

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
    share = np.unique(codes, return_counts=True)[1] / codes.size
    scores: dict[str, dict[str, Any]] = {
        name: {"value": float(value), "signature": ""}
        for name, value in (
            ("pixel_error", squares.mean() ** 0.5),
            ("codes_used", len(share)),
            ("code_perplexity", np.exp(-(share * np.log(share)).sum())),
        )
    }
    details = [
        f"pixel error = {scores['pixel_error']['value']:.2f} of 255 (root mean square)",
        f"codes used = {len(share)} of {trained.experiment.model.num_codes}, perplexity "
        f"{scores['code_perplexity']['value']:.1f}",
    ]
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

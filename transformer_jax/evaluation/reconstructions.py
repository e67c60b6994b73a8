"""How near pictures are to what a model makes of their codes."""

from dataclasses import asdict
from typing import Any

import numpy as np

from transformer_jax.api import TrainedEnsemble, TrainedModel
from transformer_jax.data.codecs.patches import Patches
from transformer_jax.data.sources import Corpus
from transformer_jax.errors import UserError
from transformer_jax.evaluation import drawings
from transformer_jax.evaluation.run import Evaluation


def evaluate(trained: TrainedModel, corpus: Corpus, split: str, checkpoint: str) -> Evaluation:
    """Return the root of the mean squared error of pixels (of 255), and how many codes a split has:
    those that it uses, and the perplexity of their frequencies, which is as many where all are as
    frequent. A row for each picture has its mean squared error, some of
    them what reports draw.

    Raises:
      UserError: if the model is an ensemble.
    """
    if isinstance(trained, TrainedEnsemble):
        raise UserError("pictures are made by one model: load one checkpoint of one --workdir")
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
        f"pixel error = {scores['pixel_error']['value']:.2f} of 255 (root of the mean square)",
        f"codes used = {len(share)} of {trained.experiment.model.num_codes}, perplexity "
        f"{scores['code_perplexity']['value']:.1f}",
    ]
    result = {
        "split": split, "checkpoint": checkpoint, "steps": trained.steps,
        "sentences": len(pictures), "scores": scores, "details": details, "decoding": None,
        "evaluation": asdict(trained.experiment.evaluation), "references": corpus.fingerprint,
    }  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"line": number, "mse": x} for number, x in enumerate(squares.tolist(), 1)
    ]
    for place, drawn in drawings.reconstructions(pictures, made, squares).items():
        rows[place] |= drawn
    return Evaluation(result, None, rows)

"""Checks of objectives whose models make pictures: autoencoders and diffusion models."""

from typing import Any

from transformer_jax.config.bounds import check
from transformer_jax.config.choices.codecs import GRIDDED


def check_reconstruct(run: Any, field: str) -> None:
    """Reject what an autoencoder does not read, and scores that pictures do not have."""
    check(
        run.src.codec == "patches",
        f"src.codec={run.src.codec!r}: objective.name={run.objective.name!r} outputs "
        "what it reads; choose 'patches', as for tgt.codec",
    )
    check(
        run.evaluation.bleu_sentences == 0,
        f"evaluation.bleu_sentences={run.evaluation.bleu_sentences}: pictures have no BLEU; "
        "set it to 0, and checkpoint.best_by='loss'",
    )


def check_diffusion(run: Any, field: str) -> None:
    """Reject pictures and conditions that the model does not draw, and predictions that fail."""
    model, objective, name = run.model, run.objective, f"{field}={run.objective.name!r}"
    check(
        run.src.codec in GRIDDED,
        f"src.codec={run.src.codec!r}: {name} draws pictures; choose 'patches', or 'tubelets' for "
        "clips",
    )
    place = f"decoding.autoencoder={run.decoding.autoencoder!r}"
    check(
        (run.src.codec == "latents") == (run.decoding.autoencoder is not None),
        f"{place}: with src.codec='latents' it makes pictures of what is drawn; set it to the work "
        "directory that encoded them"
        if run.src.codec == "latents"
        else f"{place}: has no effect with src.codec={run.src.codec!r}, whose values are pictures; "
        "leave it at None",
    )
    classes = run.tgt.codec == "classes"
    fitting = "class" if classes else "text"
    check(
        model.condition == fitting,
        f"model.condition={model.condition!r}: tgt.codec={run.tgt.codec!r} says what a picture "
        f"shows as a {fitting}; choose {fitting!r}"
        + ("" if classes else ", or tgt.codec='classes'"),
    )
    check(
        objective.prediction != "epsilon" or objective.noise_schedule != "rectified_flow",
        "objective.prediction='epsilon': where drawing begins with noise_schedule='rectified_flow' "
        "there is only noise, which says nothing of the picture; choose 'velocity' or 'sample', or "
        "noise_schedule='linear'",
    )
    check(
        run.evaluation.bleu_sentences == 0,
        f"evaluation.bleu_sentences={run.evaluation.bleu_sentences}: pictures have no BLEU; "
        "set it to 0, and checkpoint.best_by='loss'",
    )
    check(
        run.decoding.guidance == 1 or objective.condition_dropout > 0,
        f"decoding.guidance={run.decoding.guidance}: needs predictions without the target side, "
        "which objective.condition_dropout=0 does not train; set it to 1, or train with a "
        "condition_dropout such as 0.1",
    )

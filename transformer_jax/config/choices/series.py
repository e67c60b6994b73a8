"""What objectives of time series and of the steps of an agent need of the rest of an experiment."""

from typing import Any

from transformer_jax.config.bounds import check


def check_forecast(run: Any, field: str) -> None:
    """Reject windows that are not a whole number of patches, and rows with several windows."""
    model, window = run.model, run.objective.window
    patched = model.stem == "series" and model.architecture == "encoder"
    together = "together" if model.stem == "variates" else "apart"
    check(
        run.objective.channels == together,
        f"objective.channels={run.objective.channels!r}: model.stem={model.stem!r} reads channels "
        f"{together}; choose {together!r}, or another stem",
    )
    check(
        not patched
        or (
            window >= model.patch_length and (window - model.patch_length) % model.patch_stride == 0
        ),
        f"objective.window={window}: is not model.patch_length={model.patch_length} plus a "
        f"multiple of model.patch_stride={model.patch_stride}, so patches would miss rows; "
        "change one of them",
    )
    check(
        not patched or model.patch_stride <= model.patch_length,
        f"model.patch_stride={model.patch_stride}: is above model.patch_length="
        f"{model.patch_length}, so the rows between patches would not be read; lower it",
    )
    check(
        run.data.batching == "bucket",
        f"data.batching={run.data.batching!r}: a row of objective.name='forecast' is a "
        "window; choose 'bucket'",
    )


def check_actions(run: Any, field: str) -> None:
    """Reject codecs that do not fit the model's actions, and more steps than it has vectors for."""
    wanted = {"discrete": "labels", "continuous": "actions"}[run.model.actions]
    check(
        run.tgt.codec == wanted,
        f"tgt.codec={run.tgt.codec!r}: the actions of model.actions={run.model.actions!r} are "
        f"{wanted}; choose {wanted!r}, or other actions",
    )
    check(
        run.data.max_steps <= run.model.max_positions,
        f"model.max_positions={run.model.max_positions}: is below data.max_steps="
        f"{run.data.max_steps}, and so has no vector for the last steps; raise the former or lower "
        "the latter",
    )

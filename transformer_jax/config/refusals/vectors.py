"""Validation of inputs other than text."""

from typing import TYPE_CHECKING

from transformer_jax.config.bounds import check, either, is_part
from transformer_jax.config.words import OF_VECTORS, VECTORS

if TYPE_CHECKING:
    from transformer_jax.config.manual import Experiment


def check_vectors(run: "Experiment") -> None:
    """Reject what does not go with vectors, or with text, on the source side."""
    kind, codec = run.objective.kind, run.codecs[0]
    check(
        run.tgt.codec not in VECTORS or kind in OF_VECTORS,
        f"tgt.codec={run.tgt.codec!r}: vectors can be read but not written; choose another",
    )
    _check_reading(run, codec in VECTORS)
    if kind == "forecast":
        _check_forecast(run)
    elif kind == "reconstruct":
        _check_reconstruct(run)
    if codec in VECTORS and kind != "forecast":
        _check_source(run)


def _check_reading(run: "Experiment", vectors: bool) -> None:
    """Reject stems, sources and codecs that do not go together."""
    model, data, forecasts = run.model, run.data, run.objective.kind == "forecast"
    own = OF_VECTORS.get(run.objective.kind)
    read = f"{'tgt' if run.objective.one_sided else 'src'}.codec={run.codecs[0]!r}"
    stems = ("series",) if forecasts else ("linear", "convolution", "conv1d")
    check(
        model.stem in (stems if vectors else ("embedding",)),
        f"model.stem={model.stem!r}: {read} produces "
        + (f"vectors; choose {either(stems)}" if vectors else "pieces; choose "
           "'embedding', or a codec of vectors"),
    )  # fmt: skip
    among = VECTORS.get(run.codecs[0], ())
    others = {name for names in VECTORS.values() for name in names} - {"tfds"}
    check(
        data.source in among if vectors else data.source not in others,
        f"data.source={data.source!r}: {read} reads "
        + (f"{' or '.join(among)}; choose {either(among)}" if vectors else "text; choose another "
           f"source, or one of the codecs {either(VECTORS)}"),
    )  # fmt: skip
    for word in data.augment:
        of = "log_mel" if word.endswith("_mask") else "patches"
        check(
            run.codecs[0] == of or is_part(word),
            f"data.augment={data.augment}: {word!r} is for src.codec={of!r}, not "
            f"{run.codecs[0]!r}; remove it",
        )
    check(
        forecasts == (run.codecs[0] == "series"),
        f"{read}: " + ("objective.name='forecast' reads time series; choose tgt.codec='series'"
        if forecasts else "time series are for objective.name='forecast'; choose that, or "
        "another codec"),
    )  # fmt: skip
    check(
        own is None or run.codecs[0] == own,
        f"{read}: objective.name={run.objective.name!r} reads {own}; choose tgt.codec={own!r}",
    )


def _check_source(run: "Experiment") -> None:
    """Reject what does not go with pictures or audio on the source side."""
    codec, model, data = run.src.codec, run.model, run.data
    check(
        run.objective.kind in ("classify", "regress", "translate", "ctc", "reconstruct"),
        f"src.codec={codec!r}: objective.name={run.objective.name!r} reads text; choose "
        "'classify', 'regress', 'translate', 'ctc' or 'reconstruct'",
    )
    check(
        not data.prefixes and data.long_sources == "drop" and not data.subword_dropout,
        f"data.prefixes={data.prefixes}, data.long_sources={data.long_sources!r}, "
        f"data.subword_dropout={data.subword_dropout}: are for sources of text; leave them at "
        "(), 'drop' and 0",
    )
    check(
        model.stem != "convolution" or codec == "patches",
        f"model.stem='convolution': src.codec={codec!r} produces no patches; choose 'conv1d'",
    )
    check(
        model.grid_positions == "none" or codec == "patches",
        f"model.grid_positions={model.grid_positions!r}: src.codec={codec!r} has no rows and "
        "columns of patches; set it to 'none'",
    )
    check(
        model.stem != "convolution" or run.src.patch_size == 2**model.stem_layers,
        f"model.stem_layers={model.stem_layers}: reduces patches of {2**model.stem_layers} pixels "
        f"to one vector, but src.patch_size={run.src.patch_size}; change one of them",
    )
    check(
        model.stem == "linear" or data.batching != "pack",
        f"data.batching='pack': model.stem={model.stem!r} convolves a row, which must therefore "
        "hold one source; choose 'bucket'",
    )


def _check_forecast(run: "Experiment") -> None:
    """Reject windows that are not a whole number of patches, and rows with several windows."""
    model, window = run.model, run.objective.window
    check(
        window >= model.patch_length and (window - model.patch_length) % model.patch_stride == 0,
        f"objective.window={window}: is not model.patch_length={model.patch_length} plus a "
        f"multiple of model.patch_stride={model.patch_stride}, so patches would miss rows; "
        "change one of them",
    )
    check(
        model.patch_stride <= model.patch_length,
        f"model.patch_stride={model.patch_stride}: is above model.patch_length="
        f"{model.patch_length}, so the rows between patches would not be read; lower it",
    )
    check(
        run.data.batching == "bucket",
        f"data.batching={run.data.batching!r}: a row of objective.name='forecast' is a "
        "window; choose 'bucket'",
    )


def _check_reconstruct(run: "Experiment") -> None:
    """Reject what does not go with reconstructing pictures."""
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

"""Validation of inputs other than text."""

from typing import Any

from transformer_jax.config.bounds import check, either, is_part
from transformer_jax.config.choices.codecs import CODECS, GRIDDED, VECTORS
from transformer_jax.config.choices.objectives import OBJECTIVES
from transformer_jax.config.choices.record import with_
from transformer_jax.config.choices.sources import AUGMENTATIONS, SOURCES
from transformer_jax.config.choices.stems import STEMS


def check_vectors(run: Any) -> None:
    """Reject what does not go with vectors, or with text, on the source side."""
    codec = run.codecs[0]
    check(
        run.tgt.codec not in VECTORS
        or run.objective.record.vectors is not None
        or run.tgt.codec in run.objective.record.besides,
        f"tgt.codec={run.tgt.codec!r}: vectors can be read but not written; choose another",
    )
    _check_reading(run, codec in VECTORS)
    if codec in VECTORS and run.objective.record.vectors is None and not run.objective.record.acts:
        _check_source(run)


def _check_reading(run: Any, vectors: bool) -> None:
    """Reject stems, sources and codecs that do not go together."""
    model, data, forecasts = run.model, run.data, run.objective.record.forecasts
    own = run.objective.record.vectors
    read = f"{'tgt' if run.objective.one_sided else 'src'}.codec={run.codecs[0]!r}"
    acts = run.objective.record.acts
    of = own or ("states" if acts else "patches")
    of = run.codecs[0] if run.codecs[0] in ("tubelets", "latents") and not own else of
    stems = tuple(word for word, stem in STEMS.items() if of in stem.codecs)
    check(
        model.stem in (stems if vectors else ("embedding",)),
        f"model.stem={model.stem!r}: {read} produces "
        + (f"vectors; choose {either(stems)}" if vectors else "pieces; choose "
           "'embedding', or a codec of vectors"),
    )  # fmt: skip
    among = CODECS[run.codecs[0]].sources if vectors else ()
    others = with_(SOURCES, text=False)
    check(
        data.source in among if vectors else data.source not in others,
        f"data.source={data.source!r}: {read} reads "
        + (f"{' or '.join(among)}; choose {either(among)}" if vectors else "text; choose another "
           f"source, or one of the codecs {either(VECTORS)}"),
    )  # fmt: skip
    for word in data.augment:
        if is_part(word):
            continue
        codecs = AUGMENTATIONS[word].codecs
        check(
            run.codecs[0] in codecs,
            f"data.augment={data.augment}: {word!r} is for codec={either(codecs)}, and not for "
            f"{read}; remove it",
        )
    check(
        forecasts == (run.codecs[0] == "series"),
        f"{read}: " + ("objective.name='forecast' reads time series; choose tgt.codec='series'"
        if forecasts else "time series are for objective.name='forecast'; choose that, or "
        "another codec"),
    )  # fmt: skip
    check(
        acts == (run.codecs[0] == "states"),
        f"{read}: " + (f"objective.name={run.objective.name!r} reads states of an agent; choose "
        "src.codec='states'" if acts else "states of an agent are for objective.name="
        f"{either(with_(OBJECTIVES, acts=True))}; choose that, or another codec"),
    )  # fmt: skip
    check(
        own is None or run.codecs[0] == own,
        f"{read}: objective.name={run.objective.name!r} reads {own}; choose tgt.codec={own!r}",
    )


def _check_source(run: Any) -> None:
    """Reject what does not go with pictures or audio on the source side."""
    codec, model, data = run.src.codec, run.model, run.data
    check(
        run.objective.record.senses,
        f"src.codec={codec!r}: objective.name={run.objective.name!r} reads text; choose "
        f"{either(with_(OBJECTIVES, senses=True))}",
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
        model.grid_positions == "none" or codec in GRIDDED,
        f"model.grid_positions={model.grid_positions!r}: src.codec={codec!r} has no rows and "
        "columns of patches; set it to 'none'",
    )
    axes = CODECS[codec].axes if codec in CODECS else 0
    check(
        not model.grid or not axes or len(model.grid) == axes,
        f"model.grid={model.grid}: src.codec={codec!r} has "
        + ("times, rows and columns of tubelets, as in (4, 4, 4); give" if axes == 3 else
           "rows and columns of patches, as in (8, 8); give") + " the number of each",
    )  # fmt: skip
    check(
        model.stem != "convolution" or run.src.patch_size == 2**model.stem_layers,
        f"model.stem_layers={model.stem_layers}: reduces patches of {2**model.stem_layers} pixels "
        f"to one vector, but src.patch_size={run.src.patch_size}; change one of them",
    )
    check(
        not STEMS[model.stem].rows or data.batching != "pack",
        f"data.batching='pack': model.stem={model.stem!r} convolves a row, which must therefore "
        "hold one source; choose 'bucket'",
    )

"""Stems: how the values of a source side enter a model."""

from dataclasses import dataclass
from typing import Any

from transformer_jax.config.bounds import check, default_unless, either, is_part
from transformer_jax.config.choices.architectures import ARCHITECTURES, VECTOR_READERS
from transformer_jax.config.choices.mixers import ALONG
from transformer_jax.config.choices.record import Need, Record, check_needs, readers, with_


@dataclass(frozen=True, kw_only=True)
class Stem(Record):
    """What is known about a stem.

    codecs: the codecs of vectors that it reads; none: pieces.
    rows: whether it needs each source in a row of its own, as it convolves a row.
    inverted: whether an autoencoder can reconstruct what it reads, or a diffusion model predict it.
    """

    codecs: tuple[str, ...] = ()
    rows: bool = False
    inverted: bool = False


def _check_convolution(model: Any, field: str) -> None:
    """Reject pictures of unknown size, and channels that cannot be halved."""
    check(
        len(model.grid) == 2,
        f"grid={model.grid}: stem='convolution' needs the rows and columns of patches in a "
        "picture, as in (8, 8)",
    )
    check(
        model.d_model % 2 ** (model.stem_layers - 1) == 0,
        f"d_model={model.d_model}: stem_layers={model.stem_layers} halves it "
        f"{model.stem_layers - 1} times; choose a multiple of {2 ** (model.stem_layers - 1)}",
    )


def _check_series(model: Any, field: str) -> None:
    readers_of = ("encoder", "dlinear") if model.stem == "series" else ("encoder",)
    check(
        model.architecture in readers_of,
        f"stem={model.stem!r}: architecture={model.architecture!r} writes pieces; choose "
        f"{either(readers_of)}",
    )


def _check_variates(model: Any, field: str) -> None:
    _check_series(model, field)
    check(
        model.positions == "none" and model.relative_positions == "none",
        f"positions={model.positions!r}, relative_positions={model.relative_positions!r}: "
        "stem='variates' reads the channels of a series, which have no order; set both to 'none'",
    )


def _check_pairs(model: Any, field: str) -> None:
    check(
        model.architecture == "evoformer",
        f"stem='pairs': architecture={model.architecture!r} has no representation of pairs; choose "
        "'evoformer'",
    )


def _check_conv1d(model: Any, field: str) -> None:
    placed = model.grid_positions != "none" or model.architecture == "prefix_decoder"
    check(
        not placed,
        f"stem='conv1d': halves a sequence, and grid_positions={model.grid_positions!r} and "
        "architecture='prefix_decoder' are for patches; choose another stem, or change those",
    )


STEMS = {
    "embedding": Stem(),
    "linear": Stem(codecs=("patches", "tubelets", "latents", "log_mel", "frames"), inverted=True),
    "convolution": Stem(
        codecs=("patches",), rows=True, inverted=True, reads=("stem_layers", "grid"),
        check=_check_convolution,
    ),
    "series": Stem(
        codecs=("series",), rows=True,
        reads=("patch_length", "patch_stride", "distribution", "series_norm"),
        check=_check_series,
    ),
    "variates": Stem(
        codecs=("series",), rows=True, reads=("distribution", "series_norm"),
        check=_check_variates,
    ),
    "conv1d": Stem(codecs=("patches", "log_mel", "frames"), rows=True, check=_check_conv1d),
    "trajectory": Stem(
        codecs=("states",), rows=True,
        needs=(Need("architecture", ("decision_transformer",), "{has} reads steps of an agent"),),
    ),
    "pairs": Stem(codecs=("coordinates",), check=_check_pairs),
}  # fmt: skip


def check_stem(model: Any) -> None:
    """Reject stems, grids and patches that do not go together."""
    placed = model.grid_positions != "none"
    unplaced = "embedding", "series", "variates", "trajectory"
    patched = model.stem not in unplaced and bool(model.grid)
    channels = 4 if model.grid_positions == "sinusoidal" else 1
    check(
        not placed or (patched and model.d_model % channels == 0),
        f"grid_positions={model.grid_positions!r}: needs a stem of patches of pictures, their rows "
        "and columns in grid, and a d_model divisible by 4; leave it at 'none'",
    )
    check(
        model.grid_positions != "sinusoidal" or len(model.grid) != 3 or model.d_model % 16 == 0,
        f"d_model={model.d_model}: grid_positions='sinusoidal' of a clip, grid={model.grid}, has "
        "sines and cosines of a time in a quarter of it, and of a row and of a column in three "
        "eighths each; choose a multiple of 16, or 'learned'",
    )
    check(
        len(model.grid) in (0, 2, 3) and all(1 <= n <= 2**10 for n in model.grid),
        f"grid={model.grid}: must be the rows and columns of patches in a picture, as in (8, 8), "
        "after the times of tubelets in a clip",
    )
    check(
        model.stem != "embedding" or model.architecture != "prefix_decoder",
        "stem='embedding': architecture='prefix_decoder' reads vectors; choose another stem, "
        "or architecture='decoder' and objective.name='prefix_lm'",
    )
    check(
        model.stem == "pairs" or model.architecture != "evoformer",
        f"stem={model.stem!r}: architecture='evoformer' reads distances; choose 'pairs'",
    )
    check(
        model.stem == "linear" or model.architecture != "factorised_encoder",
        f"stem={model.stem!r}: architecture='factorised_encoder' reads tubelets; choose 'linear'",
    )
    along = [kind for kind in model.encoder_pattern if kind in ALONG]
    check(
        model.stem == "linear" or not along,
        f"encoder_pattern={model.encoder_pattern}: {along[:1]} mixes along axes of a clip, and "
        f"stem={model.stem!r} reads none; choose stem='linear', or another layer",
    )
    inverted = with_(STEMS, inverted=True)
    check(
        model.architecture not in ("autoencoder", "variational_autoencoder")
        or model.stem in inverted,
        f"stem={model.stem!r}: architecture={model.architecture!r} reconstructs the vectors it "
        f"reads; choose {either(inverted)}",
    )
    check(
        model.architecture != "diffusion_transformer" or model.stem in inverted,
        f"stem={model.stem!r}: architecture='diffusion_transformer' reads and predicts patches; "
        f"choose {either(inverted)}",
    )
    if model.stem != "embedding":
        _check_reader(model)
    check_needs(model, "stem", STEMS, (model.stem,))


def check_stem_reads(model: Any) -> None:
    """Reject fields that the stem does not read."""
    whole = "prefix_decoder", "diffusion_transformer", "factorised_encoder"
    gridded = model.grid_positions != "none" or model.architecture in whole
    gridded = gridded or not {*model.encoder_pattern}.isdisjoint(ALONG)
    for name, words in readers(STEMS).items():
        default_unless(
            model.stem in words or (name == "grid" and gridded), model, name,
            because=f"has no effect with stem={model.stem!r}", otherwise=f"choose {either(words)}",
        )  # fmt: skip


def _check_reader(model: Any) -> None:
    """Reject models that do not read vectors."""
    check(
        model.architecture != "prefix_decoder"
        or all(kind == "full" or is_part(kind) for kind in model.decoder_pattern),
        f"decoder_pattern={model.decoder_pattern}: in architecture='prefix_decoder' padding may "
        "separate vectors and text, and windows and states do not skip it; choose 'full'",
    )
    check(
        ARCHITECTURES[model.architecture].vectors,
        f"stem={model.stem!r}: architecture={model.architecture!r} reads pieces; choose "
        f"'embedding', or architecture={either(VECTOR_READERS)}",
    )
    check(
        model.token_types == 0,
        f"token_types={model.token_types}: has no effect with stem={model.stem!r}; set it to 0",
    )
    check(
        model.token_dropout is None,
        f"token_dropout={model.token_dropout}: there are no pieces with stem={model.stem!r}; set "
        "it to None",
    )
    check(
        model.unordered_pieces == 0,
        f"unordered_pieces={model.unordered_pieces}: there are no pieces with stem={model.stem!r}; "
        "set it to 0",
    )
    check(
        model.tied_embeddings != "all" or model.architecture != "encoder_decoder",
        f"stem={model.stem!r}: there is no source embedding for tied_embeddings='all' to share; "
        "choose 'decoder' or 'none'",
    )

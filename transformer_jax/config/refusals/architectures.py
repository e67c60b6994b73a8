"""Validation of a model's architecture and input."""

import dataclasses
from typing import TYPE_CHECKING

from transformer_jax.config.bounds import SIZE, check, default_unless, either, is_part, within
from transformer_jax.config.words import (
    CELLS,
    OWN_FIELDS,
    PLACES,
    RECURRENT,
    STEM_FIELDS,
    TWO_WAY,
    WRITERS,
)

if TYPE_CHECKING:
    from transformer_jax.config.manual import ModelConfig


def check_encoder(model: "ModelConfig") -> None:
    """Reject fields of encoders in models without one."""
    default_unless(
        model.architecture in WRITERS, model, "logits_bias",
        because=f"has no effect with architecture={model.architecture!r}",
    )  # fmt: skip
    for name in ("token_types", "pooling", "pooler"):
        among = ("encoder", "elmo", "decoder") if name == "pooling" else ("encoder",)
        default_unless(
            model.architecture in among, model, name,
            because=f"has no effect with architecture={model.architecture!r}",
            otherwise="choose 'encoder'",
        )  # fmt: skip


def check_perceiver(model: "ModelConfig") -> None:
    """Reject latents in other architectures, and what does not go with them."""
    within(1, SIZE, num_latents=model.num_latents)
    perceives = model.architecture == "perceiver"
    default_unless(
        perceives, model, "num_latents",
        because=f"has no effect with architecture={model.architecture!r}",
        otherwise="choose 'perceiver'",
    )  # fmt: skip
    check(
        not perceives or model.layer_sharing != "universal",
        "layer_sharing='universal': adds positions to each layer's input, and latents have none; "
        "choose 'all'",
    )
    check(
        not perceives
        or {*PLACES}.isdisjoint(model.encoder_pattern)
        or model.max_positions >= model.num_latents,
        f"max_positions={model.max_positions}: is below num_latents={model.num_latents}, the "
        f"positions of encoder_pattern={model.encoder_pattern}; raise it or lower num_latents",
    )


def check_autoencoder(model: "ModelConfig") -> None:
    """Reject codes in other architectures, and stems that produce no vectors."""
    within(1, 2**20, num_codes=model.num_codes)
    within(2, SIZE, code_width=model.code_width)
    within(0, 1e3, commitment=model.commitment)
    coded = model.architecture == "autoencoder"
    default_unless(
        coded, model, "num_codes", "code_width", "commitment",
        because=f"has no effect with architecture={model.architecture!r}",
        otherwise="choose 'autoencoder'",
    )  # fmt: skip
    check(
        not coded or model.stem in ("linear", "convolution"),
        f"stem={model.stem!r}: architecture='autoencoder' reconstructs the vectors it reads; "
        "choose 'linear' or 'convolution'",
    )


def check_stem(model: "ModelConfig") -> None:
    """Reject stems, grids and patches that do not go together."""
    within(1, 10, stem_layers=model.stem_layers)
    within(1, SIZE, patch_length=model.patch_length, patch_stride=model.patch_stride)
    placed = model.grid_positions != "none"
    patched = model.stem not in ("embedding", "series") and bool(model.grid)
    check(
        not placed or (patched and model.d_model % 4 == 0),
        f"grid_positions={model.grid_positions!r}: needs a stem of patches of pictures, their rows "
        "and columns in grid, and a d_model divisible by 4; leave it at 'none'",
    )
    for name, stem in STEM_FIELDS.items():
        read = name == "grid" and (placed or model.architecture == "prefix_decoder")
        default_unless(
            read or model.stem == stem, model, name,
            because=f"has no effect with stem={model.stem!r}", otherwise=f"choose {stem!r}",
        )  # fmt: skip
    check(
        len(model.grid) in (0, 2) and all(1 <= n <= 2**10 for n in model.grid),
        f"grid={model.grid}: must be the rows and columns of patches in a picture, as in (8, 8)",
    )
    check(
        model.stem != "embedding" or model.architecture != "prefix_decoder",
        "stem='embedding': architecture='prefix_decoder' reads vectors; choose another stem, "
        "or architecture='decoder' and objective.name='prefix_lm'",
    )
    if model.stem != "embedding":
        _check_reader(model)
    if model.stem == "convolution":
        _check_convolution(model)


def _check_reader(model: "ModelConfig") -> None:
    """Reject models that do not read vectors, or not those of the given stem."""
    check(
        model.stem != "series" or model.architecture == "encoder",
        f"stem='series': architecture={model.architecture!r} writes pieces; choose 'encoder'",
    )
    check(
        model.architecture != "prefix_decoder"
        or all(kind == "full" or is_part(kind) for kind in model.decoder_pattern),
        f"decoder_pattern={model.decoder_pattern}: in architecture='prefix_decoder' padding may "
        "separate vectors and text, and windows and states do not skip it; choose 'full'",
    )
    readers = "encoder", "perceiver", "encoder_decoder", "prefix_decoder", "autoencoder"
    check(
        model.architecture in readers,
        f"stem={model.stem!r}: architecture={model.architecture!r} reads pieces; choose "
        f"'embedding', or architecture={either(readers)}",
    )
    check(
        model.token_types == 0,
        f"token_types={model.token_types}: has no effect with stem={model.stem!r}; set it to 0",
    )
    check(
        model.tied_embeddings != "all" or model.architecture != "encoder_decoder",
        f"stem={model.stem!r}: there is no source embedding for tied_embeddings='all' to share; "
        "choose 'decoder' or 'none'",
    )
    placed = model.grid_positions != "none" or model.architecture == "prefix_decoder"
    check(
        model.stem != "conv1d" or not placed,
        f"stem='conv1d': halves a sequence, and grid_positions={model.grid_positions!r} and "
        "architecture='prefix_decoder' are for patches; choose another stem, or change those",
    )


def _check_convolution(model: "ModelConfig") -> None:
    """Reject pictures of unknown size, and channels that cannot be halved."""
    check(
        bool(model.grid),
        "grid=(): stem='convolution' needs the rows and columns of patches in a picture, as in "
        "(8, 8)",
    )
    check(
        model.d_model % 2 ** (model.stem_layers - 1) == 0,
        f"d_model={model.d_model}: stem_layers={model.stem_layers} halves it "
        f"{model.stem_layers - 1} times; choose a multiple of {2 ** (model.stem_layers - 1)}",
    )


def check_two_stream(model: "ModelConfig") -> None:
    """Reject what does not go with XLNet's query stream."""
    if model.architecture != "two_stream":
        return
    check(
        (model.positions, model.relative_positions) != ("none", "none"),
        "positions='none': with relative_positions='none' too, the queries of architecture="
        "'two_stream' are all identical; choose positions or relative_positions",
    )
    check(
        not model.input_norm,
        "input_norm=True: the streams of architecture='two_stream' start without a norm, as "
        "XLNet's do; set it to False",
    )
    # A query with every position masked gets the mean of all values, that of its target included.
    check(
        all(kind == "full" or is_part(kind) for kind in model.decoder_pattern),
        f"decoder_pattern={model.decoder_pattern}: queries of architecture='two_stream' attend to "
        "any position, and a window may be empty; choose 'full'",
    )


def own_fields(model: "ModelConfig") -> tuple[str, ...] | None:
    """Return the fields that apply to a model without Transformer layers, else None."""
    if model.architecture != "recurrent":
        return OWN_FIELDS.get(model.architecture)
    if not model.reads_by_cells:
        return None
    normed, headed = (
        model.recurrence == "rnmt_plus", model.source_attention == "multi_head_additive"
    )  # fmt: skip
    return (*RECURRENT, *("norm_epsilon",) * normed, *("num_heads",) * headed)


def check_recurrent(model: "ModelConfig") -> None:
    """Reject what recurrent models, ELMo and decomposable attention do not have."""
    own = ("recurrence", "source_attention", "input_feeding", "reverse_source")
    fields, recurrent = own_fields(model), model.architecture == "recurrent"
    for name in (item.name for item in dataclasses.fields(model)):
        known = (recurrent or name not in own) if fields is None else name in fields
        means = f"has no effect with architecture={model.architecture!r}"
        default_unless(known, model, name, because=means)
    check(
        fields is None or model.positions == "none",
        f"positions={model.positions!r}: architecture={model.architecture!r} has none; set it to "
        "'none'",
    )
    check(
        model.architecture != "elmo" or {*model.encoder_pattern} <= {*CELLS},
        f"encoder_pattern={model.encoder_pattern}: layers of architecture='elmo' are "
        f"{either(CELLS)}",
    )
    if recurrent:
        _check_translator(model)


def _check_translator(model: "ModelConfig") -> None:
    """Reject combinations that recurrent translation models do not support."""
    cells = ("lstm",) if model.recurrence == "rnmt_plus" else CELLS
    check(
        {*model.decoder_pattern} <= {*cells},
        f"decoder_pattern={model.decoder_pattern}: layers of architecture='recurrent' with "
        f"recurrence={model.recurrence!r} are {either(cells)}",
    )
    check(
        model.reads_by_cells or {*model.encoder_pattern}.isdisjoint((*CELLS, *TWO_WAY)),
        f"encoder_pattern={model.encoder_pattern}: layers of architecture='recurrent' are either "
        f"{either((*CELLS, *TWO_WAY))}, or the Transformer's; do not mix the two",
    )
    check(
        model.source_attention != "multi_head_additive" or model.d_model % model.num_heads == 0,
        f"d_model={model.d_model} is not a multiple of num_heads={model.num_heads}: choose another "
        "num_heads, or source_attention='additive'",
    )
    check(
        model.reads_by_cells or not model.reverse_source,
        f"reverse_source=True: layers of {model.encoder_pattern} read a source in both directions; "
        "set it to False",
    )
    feeds = model.recurrence == "luong" and model.source_attention != "none"
    check(
        feeds or not model.input_feeding,
        f"input_feeding=True: recurrence={model.recurrence!r} with source_attention="
        f"{model.source_attention!r} feeds inputs its own way; set it to False",
    )
    check(
        model.recurrence not in ("gnmt", "rnmt_plus") or model.source_attention != "none",
        f"source_attention='none': recurrence={model.recurrence!r} feeds the attention context to "
        "all layers; choose another",
    )

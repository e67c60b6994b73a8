"""Architectures: whole models, what they are made of and what they can read."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from transformer_jax.config.bounds import check, default_unless, either, is_part
from transformer_jax.config.choices.mixers import CELLS, PLACES, TWO_WAY
from transformer_jax.config.choices.record import Record, check_read, with_


@dataclass(frozen=True, kw_only=True)
class Architecture(Record):
    """What is known about a whole model.

    stacks: its stacks of layers, in the order in which a text passes through them.
    layered: whether its layers are the Transformer's, with a mixer and a feed-forward part.
    fields: all fields of the model that apply, if it has no such layers.
    crosses: whether layers attend to the output of another stack, or to latents.
    one_sequence: whether its input stands at the first positions of what it writes.
    vectors: whether it can read vectors instead of pieces.
    rows: whether it needs each text in a row of its own.
    deep_norm: whether DeepNorm's constants are defined for it.
    initializers: the initial values that are defined for all of its maps; None: all.
    widens: whether it is known of all its maps how they change with its width.
    """

    stacks: tuple[str, ...] = ("encoder", "decoder")
    layered: bool = True
    fields: tuple[str, ...] | None = None
    crosses: bool = False
    one_sequence: bool = False
    vectors: bool = False
    rows: bool = False
    deep_norm: bool = False
    initializers: tuple[str, ...] | None = None
    widens: bool = False


def _check_perceiver(model: Any, field: str) -> None:
    check(
        model.layer_sharing != "universal",
        "layer_sharing='universal': adds positions to each layer's input, and latents have none; "
        "choose 'all'",
    )
    check(
        {*PLACES}.isdisjoint(model.encoder_pattern) or model.max_positions >= model.num_latents,
        f"max_positions={model.max_positions}: is below num_latents={model.num_latents}, the "
        f"positions of encoder_pattern={model.encoder_pattern}; raise it or lower num_latents",
    )


def _check_factorised(model: Any, field: str) -> None:
    has = "architecture='factorised_encoder'"
    check(
        len(model.grid) == 3,
        f"grid={model.grid}: {has} reads the frames of a clip one by one; set it to the times, "
        "rows and columns of tubelets, as in (4, 4, 4)",
    )
    check(
        model.layer_sharing != "universal",
        f"layer_sharing='universal': adds the positions of a row to each layer's input, and {has} "
        "has those of frames and of times; choose 'all'",
    )


def _check_two_stream(model: Any, field: str) -> None:
    """Reject what does not go with XLNet's query stream."""
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


def _check_elmo(model: Any, field: str) -> None:
    check(
        {*model.encoder_pattern} <= {*CELLS},
        f"encoder_pattern={model.encoder_pattern}: layers of architecture='elmo' are "
        f"{either(CELLS)}",
    )


def _check_recurrent(model: Any, field: str) -> None:
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


def _check_diffusion(model: Any, field: str) -> None:
    """Reject what does not go with an encoder that a vector of time and condition leads."""
    has = "architecture='diffusion_transformer'"
    check(
        model.residual == "adaptive_norm",
        f"residual={model.residual!r}: {has} is led by the time, which only 'adaptive_norm' reads; "
        "choose that",
    )
    check(
        len(model.grid) in (2, 3),
        f"grid={model.grid}: {has} needs the rows and columns of patches in a picture, as in "
        "(7, 7), or the times, rows and columns of tubelets in a clip",
    )
    check(
        model.layer_sharing != "universal" and not model.input_norm and model.lora_rank is None,
        f"layer_sharing={model.layer_sharing!r}, input_norm={model.input_norm}, lora_rank="
        f"{model.lora_rank}: are for models of texts, not for {has}; leave them at 'none', False "
        "and None",
    )
    check(
        model.condition != "text" or model.relative_positions == "none",
        f"relative_positions={model.relative_positions!r}: {has} with condition='text' has a text "
        "and a picture in one sequence, with no distance between them; set it to 'none'",
    )
    last = model.num_encoder_layers - 1
    kinds = [model.encoder_pattern[i % len(model.encoder_pattern)] for i in range(last)]
    check(
        "joint_last" not in kinds,
        f"encoder_pattern={model.encoder_pattern}: after 'joint_last' the text is not there for "
        "another layer; name all layers, and that for the last",
    )


def _check_decisions(model: Any, field: str) -> None:
    """Reject other readers of steps, and schemes for the positions of pieces."""
    has = "architecture='decision_transformer'"
    check(
        model.stem == "trajectory",
        f"stem={model.stem!r}: {has} reads the steps of an agent; choose 'trajectory'",
    )
    check(
        model.layer_sharing != "universal" and model.lora_rank is None,
        f"layer_sharing={model.layer_sharing!r}, lora_rank={model.lora_rank}: are for models of "
        f"texts, not for {has}; leave them at 'none' and None",
    )
    check(
        {*PLACES}.isdisjoint(model.decoder_pattern),
        f"decoder_pattern={model.decoder_pattern}: has a vector for each of max_positions, and in "
        f"{has} these are time steps of two or three positions; choose another",
    )


def _check_evoformer(model: Any, field: str) -> None:
    """Reject sizes that heads do not divide, and bins without a width."""
    for width, heads in (("d_model", "num_heads"), ("pair_width", "pair_heads")):
        one, other = getattr(model, width), getattr(model, heads)
        check(one % other == 0, f"{width}={one}: is not a multiple of {heads}={other}")
    check(
        model.nearest_distance < model.farthest_distance,
        f"nearest_distance={model.nearest_distance}: is not below farthest_distance="
        f"{model.farthest_distance}; lower it",
    )


def _check_dlinear(model: Any, field: str) -> None:
    check(
        model.stem == "series",
        f"stem={model.stem!r}: architecture='dlinear' reads windows of a time series; choose "
        "'series'",
    )
    check(
        model.trend_rows % 2 == 1,
        f"trend_rows={model.trend_rows}: the moving average is centred, with as many rows on "
        "either side; choose an odd number",
    )


# Fields of all models with a table of pieces, dropout and computation.
_TABLES = ("architecture", "d_model", "dropout_rate", "positions", "embedding_norm",
           "embedding_scale", "compute_dtype")  # fmt: skip
_PAIRS = ("pair_width", "pair_heads", "outer_width", "pair_parts", "recycling", "distance_bins",
          "nearest_distance", "farthest_distance")  # fmt: skip
# Fields of the map to logits of models that write.
_LOGITS = "logits_factor", "logits_softcap", "logits_bias"
ARCHITECTURES = {
    "encoder_decoder": Architecture(
        crosses=True, vectors=True, deep_norm=True, widens=True,
        reads=("unordered_pieces", *_LOGITS),
    ),
    "decoder": Architecture(
        stacks=("decoder",), one_sequence=True, deep_norm=True, widens=True,
        reads=("pooling", *_LOGITS),
    ),
    "two_stream": Architecture(
        stacks=("decoder",), deep_norm=True, widens=True, reads=_LOGITS, check=_check_two_stream
    ),
    "encoder": Architecture(
        stacks=("encoder",), vectors=True, deep_norm=True, widens=True,
        reads=("token_types", "pooling", "pooler", "token_dropout"),
    ),
    "perceiver": Architecture(
        stacks=("encoder",), crosses=True, vectors=True, rows=True, reads=("num_latents",),
        check=_check_perceiver,
    ),
    "factorised_encoder": Architecture(
        stacks=("encoder",), vectors=True, rows=True,
        reads=("num_time_layers", "pooling", "pooler"), check=_check_factorised,
    ),
    "recurrent": Architecture(
        layered=False, rows=True,
        reads=("recurrence", "source_attention", "input_feeding", "reverse_source"),
        fields=(
            *_TABLES, "num_encoder_layers", "num_decoder_layers", "encoder_pattern",
            "decoder_pattern", "window", "recurrence", "source_attention", "input_feeding",
            "reverse_source", "tied_embeddings", "logits_scale",
        ),
        check=_check_recurrent,
    ),
    "elmo": Architecture(
        stacks=("encoder",), layered=False, reads=("pooling",),
        fields=(*_TABLES, "num_encoder_layers", "encoder_pattern", "pooling", "tied_embeddings",
                "logits_scale"),
        check=_check_elmo,
    ),
    "decomposable_attention": Architecture(
        stacks=(), layered=False, fields=(*_TABLES, "d_ff")
    ),
    "prefix_decoder": Architecture(
        one_sequence=True, vectors=True, rows=True, reads=_LOGITS
    ),
    "autoencoder": Architecture(
        vectors=True, reads=("num_codes", "code_width", "commitment"), initializers=("xavier",)
    ),
    "variational_autoencoder": Architecture(
        vectors=True, reads=("code_width", "kl_weight"), initializers=("xavier",)
    ),
    "diffusion_transformer": Architecture(
        stacks=("encoder",), vectors=True, rows=True, reads=("condition",),
        initializers=("xavier",), check=_check_diffusion,
    ),
    "decision_transformer": Architecture(
        stacks=("decoder",), vectors=True, rows=True, reads=("actions",), check=_check_decisions,
    ),
    "evoformer": Architecture(
        stacks=("encoder",), layered=False, vectors=True, rows=True, reads=_PAIRS,
        fields=("architecture", "d_model", "dropout_rate", "positions", "compute_dtype", "norm",
                "norm_epsilon", "num_encoder_layers", "num_heads", "stem", *_PAIRS),
        check=_check_evoformer,
    ),
    "dlinear": Architecture(
        stacks=(), layered=False, vectors=True, rows=True, reads=("trend_rows",),
        fields=("architecture", "stem", "positions", "compute_dtype", "distribution",
                "series_norm", "trend_rows"),
        check=_check_dlinear,
    ),
}  # fmt: skip


def fields_of(model: Any) -> tuple[str, ...] | None:
    """Return the fields that apply to a model without the Transformer's layers, else None."""
    fields = ARCHITECTURES[model.architecture].fields
    if model.architecture != "recurrent" or fields is None:
        return fields
    if not model.reads_by_cells:
        return None
    normed = model.recurrence == "rnmt_plus"
    headed = model.source_attention == "multi_head_additive"
    return (*fields, *("norm_epsilon",) * normed, *("num_heads",) * headed)


def check_architecture(model: Any) -> None:
    """Reject what an architecture cannot have."""
    fields, record = fields_of(model), ARCHITECTURES[model.architecture]
    for missing in {"encoder", "decoder"} - {*record.stacks}:
        default_unless(
            False, model, f"num_{missing}_layers", f"{missing}_pattern",
            because=f"architecture={model.architecture!r} has no {missing}",
        )  # fmt: skip
    check(
        fields is None or model.positions == "none",
        f"positions={model.positions!r}: architecture={model.architecture!r} has none; set it to "
        "'none'",
    )
    if record.check is not None:
        record.check(model, "architecture")


def check_architecture_reads(model: Any) -> None:
    """Reject fields that the architecture does not read."""
    means = f"has no effect with architecture={model.architecture!r}"
    fields = fields_of(model)
    if fields is None:
        check_read(
            model, ARCHITECTURES, (model.architecture,), lambda _: means,
            lambda words: f"choose {('encoder' if 'encoder' in words else words[0])!r}",
        )  # fmt: skip
        return
    others = (item.name for item in dataclasses.fields(model) if item.name not in fields)
    default_unless(False, model, *others, because=means)


VECTOR_READERS = with_(ARCHITECTURES, vectors=True)

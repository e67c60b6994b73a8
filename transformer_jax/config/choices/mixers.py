"""Mixers: what mixes values along a sequence in a layer, the words of patterns of layers."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from transformer_jax.config.bounds import ELEMENTS, check, default_unless, either, is_part
from transformer_jax.config.choices.kernels import STORING
from transformer_jax.config.choices.positions import ROTARY
from transformer_jax.config.choices.record import (
    Need,
    Record,
    check_needs,
    check_read,
    known,
    with_,
)
from transformer_jax.config.choices.states import (
    check_both_ends,
    check_channels_with_states,
    check_inner_heads,
    check_pairs,
    check_retention,
    check_values,
    check_width,
)

_BOTH = "encoder", "decoder"
_UNGATED = ("attention_gate",)


@dataclass(frozen=True, kw_only=True)
class Mixer(Record):
    """What is known about a kind of layer.

    ignores: fields of attention that it does not read.
    weights: what weighs values: a "softmax" over positions, keys for each of the "channels", or
      "none" that could be dropped or have a position added.
    heads: whether it has heads.
    stacks: the stacks that it can be in: only encoders if it needs the whole text, only decoders if
      it runs from left to right.
    cell: a recurrent cell without heads, "forward" or from "both" ends.
    ordered: whether it knows the order of what it has read, so that it can be beside layers that
      need a relative scheme to know it.
    averages: whether it also adds up what came before a token, in its order, whatever it may attend
      to, so that it reads no prefix in both directions.
    sends: what devices that share a row's positions send: "all" keys and values, or what it reads;
      those "near" others, of a window; or, from one to the next, a "state".
    rows: whether it needs each text in a row of its own.
    within: whether it reads `window`, which must be set for such a layer, and only then.
    clip: whether it mixes along some axes of a clip, whose tubelets `grid` counts.
    parts: residual parts of a layer, if not its mixer, its cross-attention and its feed-forward.
    initializers: the initial values that are defined for all of its maps; None: all.
    widens: whether it is known of all its maps how they change with the model's width.
    """

    ignores: tuple[str, ...] = ()
    weights: Literal["softmax", "channels", "none"] = "none"
    heads: bool = True
    stacks: tuple[str, ...] = _BOTH
    cell: Literal["forward", "both"] | None = None
    ordered: bool = False
    averages: bool = False
    sends: Literal["all", "near", "state"] = "all"
    rows: bool = False
    within: bool = False
    clip: bool = False
    parts: int | None = None
    initializers: tuple[str, ...] | None = None
    widens: bool = False


def _check_latent(model: Any, pattern: str) -> None:
    has = f"'latent' in {pattern}={getattr(model, pattern)}"
    check(
        model.rotated_channels < model.key_size or model.relative_positions not in ROTARY,
        f"rope_fraction={model.rope_fraction}: rotates all {model.key_size} channels of a head, "
        f"and {has} maps the others from its latent; lower it",
    )
    for name in ("latent_size", "query_latent_size"):
        check(
            model.d_model * (getattr(model, name) or 1) <= ELEMENTS,
            f"{name}={getattr(model, name)}: a matrix of d_model={model.d_model} x "
            f"{getattr(model, name)} has more than {ELEMENTS} elements; lower them",
        )


def _check_two_heads(model: Any, pattern: str) -> None:
    check(
        model.kv_heads % 2 == 0,
        f"num_kv_heads={model.kv_heads}: {pattern}={getattr(model, pattern)} has pairs of heads; "
        "choose an even number of both kinds",
    )


def _check_buckets(model: Any, pattern: str) -> None:
    check(
        model.hash_buckets % 2 == 0,
        f"hash_buckets={model.hash_buckets}: a rotation has two buckets per axis; choose an even "
        "number",
    )


def _check_kernel(model: Any, pattern: str) -> None:
    check(
        model.conv_kernel % 2 == 1,
        f"conv_kernel={model.conv_kernel}: the kernel is centred, with as many positions on either "
        "side; choose an odd number",
    )


def _check_channels(model: Any, pattern: str) -> None:
    channels = with_(MIXERS, weights="channels")
    check(
        model.kv_heads == model.num_heads and model.key_size == model.value_size,
        f"{pattern}={getattr(model, pattern)}: {either(channels)} weight each channel of a value "
        "by that of its key; leave num_kv_heads and v_head_dim at None",
    )


def _cell(**known: Any) -> Mixer:
    return Mixer(heads=False, initializers=("xavier",), **known)


def _joint(parts: int) -> Mixer:
    why = "{has} has a text and a picture, which only a diffusion transformer reads"
    return Mixer(
        weights="softmax", stacks=("encoder",), rows=True, parts=parts, ignores=_UNGATED,
        needs=(
            Need("architecture", ("diffusion_transformer",), why),
            Need("condition", ("text",), "{has} has a text beside the picture"),
        ),
    )  # fmt: skip


def _check_clip(model: Any, pattern: str) -> None:
    has = f"{pattern}={getattr(model, pattern)}"
    check(
        len(model.grid) == 3,
        f"grid={model.grid}: {has} mixes along axes of a clip; set it to the times, rows and "
        "columns of tubelets, as in (4, 4, 4)",
    )
    check(
        model.condition != "text" or model.architecture != "diffusion_transformer",
        f"condition='text': {has} mixes along axes of a clip, and a text before it has none; "
        "choose 'class', or encoder_pattern=('full',)",
    )
    check(
        model.residual != "reversible" or "divided" not in getattr(model, pattern),
        f"residual='reversible': a layer of {has} has a part that is not inverted; choose another",
    )


def _along(parts: int | None = None) -> Mixer:
    why = "{has} mixes along axes of a clip, which only the encoder of vectors has"
    near = "{has} has positions of its own along each axis of a clip; add some with grid_positions"
    return Mixer(
        weights="softmax", stacks=("encoder",), rows=True, clip=True, parts=parts, ignores=_UNGATED,
        needs=(
            Need("architecture", ("encoder_decoder", "encoder", "diffusion_transformer"), why),
            Need("relative_positions", ("none",), near),
        ),
        check=_check_clip,
    )  # fmt: skip


def _averages(stack: Literal["encoder", "decoder"], *reads: str) -> Mixer:
    why = "{has} has values of another size than keys"
    return Mixer(
        reads=("state_width", "state_size", *reads),
        ignores=("query_key_norm", "num_kv_heads", *_UNGATED),
        weights="softmax", averages=True, stacks=(stack,),
        needs=(Need("attention", STORING, why),), check=check_values,
    )  # fmt: skip


def _states(word: str, check: Any, *reads: str, sends: Any = "state") -> dict[str, Mixer]:
    """Return the records of a layer that reads a text from left to right, and from both ends."""
    record = Mixer(reads=reads, heads=False, ordered=True, sends=sends, check=check)
    return {
        word: replace(record, stacks=("decoder",)),
        f"bi{word}": replace(record, stacks=("encoder",)),
    }


_HEADS = "state_width", "state_heads", "state_size"
_FEATURES = "num_features", "redraw_every", "feature_seed"
_BOTH_ENDS = _cell(cell="both", sends="state", stacks=("encoder",), check=check_both_ends)
MIXERS = {
    "full": Mixer(weights="softmax", widens=True),
    "differential": Mixer(
        weights="softmax",
        needs=(Need("attention", STORING, "{has} has values of another size than keys"),),
        check=_check_two_heads,
    ),
    "latent": Mixer(
        reads=("latent_size", "query_latent_size"),
        ignores=("query_key_norm", "num_kv_heads", *_UNGATED),
        weights="softmax",
        initializers=("xavier",),
        needs=(
            Need(
                "relative_positions",
                ("none", *ROTARY, "alibi", "t5", "toeplitz"),
                "needs the keys of each head, which {has} does not keep",
            ),
        ),
        check=_check_latent,
    ),
    "local": Mixer(weights="softmax", within=True, widens=True, sends="near"),
    "dilated": Mixer(
        weights="softmax", within=True, widens=True, sends="near", reads=("dilation",)
    ),
    "longformer": Mixer(
        weights="softmax",
        ignores=_UNGATED,
        within=True,
        reads=("global_tokens",),
        stacks=("encoder",),
        rows=True,
        initializers=("xavier",),
    ),
    "bigbird": Mixer(
        weights="softmax",
        ignores=_UNGATED,
        widens=True,
        reads=("block_size", "random_blocks", "feature_seed"),
        stacks=("encoder",),
        rows=True,
    ),
    "lsh": Mixer(
        reads=("block_size", "hash_rounds", "hash_buckets", "redraw_every", "feature_seed"),
        ignores=("query_key_norm",),
        rows=True,
        initializers=("xavier",),
        needs=(Need("num_kv_heads", (None,), "the keys of {has} are its queries"),),
        check=_check_buckets,
    ),
    "linear": Mixer(sends="state"),
    "delta_rule": Mixer(sends="state", stacks=("decoder",), initializers=("xavier",)),
    "random_features": Mixer(sends="state", reads=_FEATURES),
    "gated_random_features": Mixer(sends="state", reads=_FEATURES, stacks=("decoder",)),
    "favor": Mixer(sends="state", reads=_FEATURES),
    "aft_full": Mixer(weights="channels", reads=("position_rank",), check=_check_channels),
    "aft_local": Mixer(
        weights="channels", within=True, reads=("position_rank",), check=_check_channels
    ),
    "aft_conv": Mixer(weights="channels", within=True, check=_check_channels),
    "aft_simple": Mixer(weights="channels", check=_check_channels),
    "ssru": _cell(stacks=("decoder",)),
    **_states("mamba2", check_inner_heads, *_HEADS, "state_groups", "state_conv"),
    **_states("gated_delta", check_inner_heads, *_HEADS, "state_groups", "state_conv"),
    **_states("s4d", check_pairs, "state_size", sends="all"),
    **_states("mamba", check_channels_with_states, "state_width", "state_size", "state_conv"),
    **_states("retention", check_retention, *_HEADS),
    **_states("rwkv7", check_width, "state_heads"),
    "mega": _averages("decoder"),
    "bimega": _averages("encoder"),
    "mega_chunk": _averages("decoder", "block_size"),
    "bimega_chunk": _averages("encoder", "block_size"),
    **dict.fromkeys(("elman", "lstm", "gru"), _cell(cell="forward", sends="state")),
    **dict.fromkeys(("bielman", "bilstm", "bigru"), _BOTH_ENDS),
    "conformer": Mixer(
        weights="softmax",
        reads=("conv_kernel",),
        stacks=("encoder",),
        rows=True,
        parts=4,
        needs=(Need("residual", ("pre_norm",), "each sublayer of {has} is preceded by a norm"),),
        check=_check_kernel,
    ),
    "joint": _joint(parts=4),
    "joint_last": _joint(parts=2),
    "space": _along(),
    "time": _along(),
    "divided": _along(parts=3),
}
SOFTMAX = with_(MIXERS, weights="softmax")
RANKED = with_(MIXERS, weights="softmax", averages=False)  # of any order
CELLS = with_(MIXERS, cell="forward")
TWO_WAY = with_(MIXERS, cell="both")
WITHIN = with_(MIXERS, within=True)
PLACES = tuple(word for word, mixer in MIXERS.items() if "position_rank" in mixer.reads)
HANDED_ON = with_(MIXERS, sends="state")
ALONG = with_(MIXERS, clip=True)  # axes of a clip
ROWS = with_(MIXERS, rows=True)  # need each text in its own row


def without_scores(pattern: tuple[str, ...]) -> list[str]:
    """Return the built-in layers that are not attention with a softmax over positions."""
    return [kind for kind in pattern if kind not in SOFTMAX and not is_part(kind)]


def without_ranks(pattern: tuple[str, ...]) -> list[str]:
    """Return the built-in layers that read a text in its own order alone."""
    return [kind for kind in pattern if kind not in RANKED and not is_part(kind)]


def kinds_of(model: Any) -> set[str]:
    """Return the words of all patterns of layers that a model has."""
    return {kind for name in model.stacks for kind in getattr(model, f"{name}_pattern")}


def check_patterns(model: Any) -> None:
    """Reject patterns of the wrong length, mixers in the wrong stack, and what they cannot do."""
    for name in ("encoder_pattern", "decoder_pattern"):
        pattern = getattr(model, name)
        layers = getattr(model, f"num_{name.removesuffix('_pattern')}_layers")
        check(
            1 <= len(pattern) <= layers,
            f"{name}={pattern}: must name 1 to {layers} layers, the depth of the stack",
        )
    patterns = model.encoder_pattern + model.decoder_pattern
    near = model.architecture == "recurrent" and model.source_attention.startswith("local")
    needed = near or not {*patterns}.isdisjoint(WITHIN)
    check(
        (model.window is None) != needed or any(map(is_part, patterns)),
        f"window={model.window}: must be set if, and only if, encoder_pattern or decoder_pattern "
        f"has a layer of {either(WITHIN)}, or source_attention is local",
    )
    for name in ("encoder_pattern", "decoder_pattern"):
        _check_stack(model, name)
        check_needs(model, name, MIXERS, getattr(model, name))


def _check_stack(model: Any, name: str) -> None:
    """Reject mixers that cannot be in this stack."""
    stack = name.removesuffix("_pattern")
    codes = model.architecture in ("autoencoder", "variational_autoencoder")
    reads_all = stack == "encoder" or codes
    why = {
        "encoder": "runs left to right; an encoder reads the whole text",
        "decoder": "reads whole texts; a decoder does not have the end yet",
        "autoencoder": "runs left to right; this decoder reads all codes at once",
    }["autoencoder" if codes and stack == "decoder" else stack]
    records = known(MIXERS, getattr(model, name), name)
    for kind in getattr(model, name):
        stacks = records[kind].stacks if kind in records else _BOTH
        check(
            ("encoder" if reads_all else "decoder") in stacks,
            f"{name}={getattr(model, name)}: {kind!r} {why}; choose another",
        )


def check_scores(model: Any) -> None:
    """Reject what layers without pairwise scores cannot have."""
    for name in ("encoder_pattern", "decoder_pattern"):
        pattern = getattr(model, name)
        others = without_scores(pattern)
        if len(others) < len(pattern):  # the others have scores
            others = [kind for kind in others if not MIXERS[kind].ordered]
        if not others or (name == "decoder_pattern" and model.architecture == "recurrent"):
            continue
        for option, why in (
            ("relative_positions", "has no pairwise scores to apply it to"),
            ("attention_dropout_rate", "has no weights to drop"),
        ):
            has = f"{others[0]!r} in {name}={pattern} {why}"
            default_unless(False, model, option, because=has)


# Fields of attention with a softmax alone.
_OF_SCORES = (
    "attention_temperature", "attention_softcap", "attention_gate", "score_scale", "score_size"
)  # fmt: skip


def check_mixers_read(model: Any) -> None:
    """Reject fields of mixers that no layer is, and fields of attention that no layer reads."""
    check_read(
        model, MIXERS, model.encoder_pattern + model.decoder_pattern,
        because=lambda words: "neither encoder_pattern nor decoder_pattern has a layer of "
        f"{either(words)}",
    )  # fmt: skip
    if not model.layered:
        return  # they have their own checks
    kinds = kinds_of(model) | ({"full"} if model.crosses else set())
    records = known(MIXERS, kinds)
    for name in (*_OF_SCORES, "query_key_norm", "num_kv_heads"):
        default_unless(
            any(_reads(records.get(kind), name) for kind in kinds), model, name,
            because=f"no layer of {sorted(kinds)} reads it",
        )  # fmt: skip
    default_unless(
        model.score_scale == "inverse_sqrt", model, "score_size",
        because=f"has no effect with score_scale={model.score_scale!r}",
    )  # fmt: skip
    default_unless(
        any(known_.within and known_.weights == "softmax" for known_ in map(records.get, kinds)
            if known_ is not None) or any(map(is_part, kinds)),
        model, "local_rope_theta", because=f"no layer of {sorted(kinds)} has a window",
    )  # fmt: skip


def _reads(mixer: Mixer | None, field: str) -> bool:
    """Return whether a kind of layer reads a field of attention; one without a record may."""
    if mixer is None:
        return True
    scores = mixer.weights == "softmax" or field not in _OF_SCORES
    return scores and mixer.heads and field not in mixer.ignores

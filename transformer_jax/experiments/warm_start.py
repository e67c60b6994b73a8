"""Initialisation from another run: which parameters are taken, resized, or left at random values.

A name here is a parameter's path, "encoder/layer_0/feed_forward/up/kernel".
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from transformer_jax.api.load import load
from transformer_jax.api.trained import TrainedModel
from transformer_jax.base.disk import user_path
from transformer_jax.base.errors import UserError
from transformer_jax.config import Experiment, InitConfig
from transformer_jax.config.bounds import either
from transformer_jax.config.choices.chat import CHAT_TEMPLATES, OF_SOURCE
from transformer_jax.config.convert import differences
from transformer_jax.data.codecs.chat import ChatTemplate
from transformer_jax.data.codecs.codec import Codec, VectorCodec
from transformer_jax.data.codecs.imported import Imported
from transformer_jax.data.codecs.pair import TokenizerPair, kind_named
from transformer_jax.data.sources import Corpus
from transformer_jax.export.huggingface.directory import is_directory, read
from transformer_jax.export.huggingface.special_ids import reads
from transformer_jax.models.build import abstract_params, build_for
from transformer_jax.runs.workdir import WorkDir, run_and_checkpoint
from transformer_jax.training.selected import matches
from transformer_jax.training.state import TrainState

_NOISE = 0.1  # of new pieces around the mean of the old ones, in the latter's standard deviations


class WarmStart(NamedTuple):
    """The initial state, and log lines that say where it comes from."""

    state: TrainState
    lines: list[str]


def tokenizers_of(experiment: Experiment, train: Corpus) -> TokenizerPair | None:
    """Return the tokenizers of the source, if the experiment takes them over; if it predicts labels
    of texts, the source side only, with a codec of the labels in its training text.

    Raises:
      UserError: if the config asks for another tokenizer.
    """
    init = experiment.init
    if init.source is None or not init.tokenizer:
        return None
    theirs, tokenizers = _named(init, _read_tokenizers, init.source)
    different = differences(theirs, experiment)
    said = experiment.objective.record.labels
    if said is not None:  # ignore the source's target side
        (there, _), (here, _) = theirs.codecs, experiment.codecs
        different = {k: v for k, v in different.items() if k != "tokenizer.joint"}
        different = {k: v for k, v in different.items() if k.split(".")[0] not in ("src", "tgt")}
        different |= {"src.codec": (there, here)} if there != here else {}
    for name in ("src", "tgt", "tokenizer"):
        for path, (there, here) in different.items():
            if path.split(".")[0] == name:
                raise UserError(
                    f"config.{path}={here!r}: the tokenizer of {init.source} has {there!r}; "
                    "set it to that, or train a new one with --config.init.tokenizer=False"
                )
    if said is not None:
        codec = kind_named(experiment.tgt.codec).train(experiment.tokenizer, train.tgt, ())
        return TokenizerPair(tokenizers.src, codec)
    return tokenizers


def template_of(experiment: Experiment) -> ChatTemplate | None:
    """Return the chat template of a new run, if its objective reads conversations.

    Raises:
      UserError: if there is no such template.
    """
    objective, source = experiment.objective, experiment.init.source
    if not objective.record.chats:
        return None
    if objective.chat_template != OF_SOURCE:
        return ChatTemplate.named(objective.chat_template)
    assert source is not None
    path, _ = run_and_checkpoint(source)
    template = ChatTemplate.beside(user_path(path))
    if template is None:
        raise UserError(
            f"config.objective.chat_template={OF_SOURCE!r}: {source} has none; choose "
            f"{either(CHAT_TEMPLATES)}, or a file"
        )
    return template


def begin(experiment: Experiment, state: TrainState, tokenizers: TokenizerPair) -> WarmStart:
    """Return step 0 with the parameters of the source for which the names match.

    Raises:
      UserError: if no name matches, or a parameter has another size in the source.
    """
    init = experiment.init
    loaded = _load(init)
    sources: dict[str, np.ndarray] = {}
    owner: dict[str, TrainedModel] = {}
    for theirs in loaded:
        arrays = _flat(theirs.params)
        # Those with a rename first: others that already have the new name must not precede them.
        for name in sorted(arrays, key=lambda name: _renamed(name, init.rename, {}) == name):
            mine = _renamed(name, init.rename, sources)
            if mine not in sources:
                sources[mine], owner[mine] = arrays[name], theirs
    ours, axes = flatten_dict(state.params, sep="/"), _axes(experiment, tokenizers)
    leaves: dict[str, Any] = {}
    taken: list[str] = []
    resized: list[str] = []
    fresh: list[str] = []
    for name, leaf in ours.items():
        if name not in sources or not matches(init.take, name):
            leaves[name] = leaf
            fresh.append(name)
            continue
        pairs = owner[name].tokenizers, tokenizers
        codecs = [_codec(name, axes[name], pair) for pair in pairs]
        array, how = _fit(name, sources[name], leaf, (codecs[0], codecs[1]), experiment.seed)
        leaves[name] = jax.device_put(array.astype(leaf.dtype), leaf.sharding)
        (resized if how else taken).append(f"{name} {how}".strip())
    if not taken and not resized and init.take:
        raise UserError(
            f"config.init.source={init.source!r}: has no parameter with a matching name; it has "
            f"{', '.join(_groups(sources))}, and this model {', '.join(_groups(ours))}: see "
            "config.init.take and config.init.rename"
        )
    left = [name for name in sources if name not in ours or not matches(init.take, name)]
    places = [f"{x.path}, step {', '.join(map(str, x.steps))}" for x in loaded]
    lines = [f"parameters initialised from {' and '.join(places)}:"]
    for what, named in (("taken", taken), ("new", fresh), ("not taken", left)):
        lines += [f"  {what}: {group}" for group in _groups(named)]
    if isinstance(tokenizers.src, Imported):
        lines.append(f"  {reads(tokenizers.src, experiment.model.architecture)}")
    lines += [f"  resized: {line}" for line in resized]
    params = unflatten_dict(leaves, sep="/")
    average = None if state.average is None else jax.tree.map(np.array, params)
    if average is not None:  # separate arrays: a step donates both
        average = jax.tree.map(lambda x, y: jax.device_put(x, y.sharding), average, params)
    return WarmStart(replace(state, params=params, average=average), lines)


def _named(init: InitConfig, read: Callable[[str, str | None], Any], place: str | None) -> Any:
    """Return what `read` gives for a source: its work directory and, if named, its checkpoint."""
    assert place is not None
    field = "source" if place == init.source else "also"
    try:
        path, checkpoint = run_and_checkpoint(place)
        return read(str(user_path(path)), checkpoint)
    except UserError as error:
        raise UserError(f"config.init.{field}={place!r}: {error}") from None


def _load(init: InitConfig) -> list[TrainedModel]:
    return [_named(init, _read, place) for place in (init.source, *init.also)]


def _read(path: str, checkpoint: str | None) -> TrainedModel:
    if is_directory(Path(path)):
        return _of_huggingface(Path(path))
    return load(path, checkpoint)


def _read_tokenizers(path: str, checkpoint: str | None) -> tuple[Experiment, TokenizerPair]:
    if is_directory(Path(path)):
        theirs = _of_huggingface(Path(path))
        return theirs.experiment, theirs.tokenizers
    experiment = WorkDir(path).experiment()
    return experiment, TokenizerPair.load(Path(path), experiment.tokenizer.joint, experiment.codecs)


def _of_huggingface(directory: Path) -> TrainedModel:
    experiment, params, codecs = read(directory, heads=True)
    model = build_for(experiment, *codecs.sizes)
    return TrainedModel(experiment, model, params, codecs, [0], directory)


def _flat(params: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(x) for name, x in flatten_dict(params, sep="/").items()}


def _renamed(name: str, rename: Sequence[str], given: Mapping[str, Any]) -> str:
    """Return a parameter's name here: from the first entry whose name is not taken yet."""
    for entry in rename:
        there, here = entry.split("=")
        if name.startswith(there) and (moved := here + name.removeprefix(there)) not in given:
            return moved
    return name


def _axes(experiment: Experiment, tokenizers: TokenizerPair) -> dict[str, str | None]:
    """Return the logical name of each parameter's first axis: what its rows are."""
    boxed = abstract_params(build_for(experiment, *tokenizers.sizes))
    flat = flatten_dict(boxed, sep="/")
    return {name: box.names[0] if getattr(box, "names", ()) else None for name, box in flat.items()}


def _codec(name: str, axis: str | None, tokenizers: TokenizerPair) -> Codec | None:
    """Return the codec whose pieces are the rows of a parameter, or None."""
    if axis == "classes":
        return tokenizers.tgt
    if axis != "vocab":
        return None
    written = name.startswith(("tgt", "output")) or isinstance(tokenizers.src, VectorCodec)
    return tokenizers.tgt if written else tokenizers.src


def _fit(
    name: str,
    array: np.ndarray,
    leaf: Any,
    codecs: tuple[Codec | None, Codec | None],
    seed: int,
) -> tuple[np.ndarray, str]:
    """Return an array of the leaf's shape, and how its rows were found unless all were copied."""
    theirs, ours = codecs
    rows_alone = array.ndim == leaf.ndim and array.shape[1:] == leaf.shape[1:]
    if theirs is not None and ours is not None and rows_alone:
        if theirs.digest == ours.digest:
            return array, ""
        return _by_pieces(array, theirs, ours, seed)
    if array.shape == leaf.shape:
        return array, ""
    if rows_alone and name.endswith("positions/table"):
        rows = min(len(array), len(leaf))
        grown = np.array(leaf)
        grown[:rows] = array[:rows]
        return grown, f"{len(array):,} -> {len(leaf):,} positions"
    raise UserError(
        f"config.init.source: {name} is {_sizes(array)} there and {_sizes(leaf)} here; make them "
        "equal, or exclude it from config.init.take"
    )


def _by_pieces(array: np.ndarray, theirs: Codec, ours: Codec, seed: int) -> tuple[np.ndarray, str]:
    """Return rows in the order of our pieces; rows of new pieces are drawn around the mean."""
    places = {piece: row for row, piece in enumerate(theirs.pieces(range(theirs.size)))}
    rows = [places.get(piece) for piece in ours.pieces(range(ours.size))]
    noise = np.random.default_rng([seed, ours.size]).normal(size=(ours.size, *array.shape[1:]))
    table = array.mean(0) + _NOISE * array.std(0) * noise
    known = [number for number, row in enumerate(rows) if row is not None]
    table[known] = array[[row for row in rows if row is not None]]
    return table, f"{theirs.size:,} -> {ours.size:,} pieces, {len(known):,} of them known"


def _sizes(array: Any) -> str:
    return " x ".join(map(str, array.shape))


def _groups(names: Sequence[str] | dict[str, Any]) -> list[str]:
    """Return "encoder/layer_0 (16 parameters)" and so on."""
    counts = Counter("/".join(name.split("/")[:-1][:2]) for name in names)
    return [f"{group} ({count})" for group, count in counts.items()]

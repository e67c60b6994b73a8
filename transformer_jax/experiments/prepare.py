"""Data preparation: reading, tokenisation, selection and batch planning. Nothing is written into
the work directory here, so a mistake in the input leaves no half-made run behind.
"""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from transformer_jax.base.disk import cache_dir, user_path
from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, Experiment
from transformer_jax.config.choices.codecs import STRICT
from transformer_jax.config.registry import pick
from transformer_jax.data import sources
from transformer_jax.data.batches import mixing
from transformer_jax.data.batches.batching import PLANS, GroupPlan, Plan, filled, longer_side
from transformer_jax.data.batches.blend import Blend, Several, members_of
from transformer_jax.data.codecs import classes, trees
from transformer_jax.data.codecs.codec import Codec, VectorCodec, check, special_of
from transformer_jax.data.codecs.latents import Latents
from transformer_jax.data.codecs.pair import TokenizerPair, train_pair
from transformer_jax.data.codecs.subword_dropout import Sampling
from transformer_jax.data.codecs.text_augmentation import enlarged
from transformer_jax.data.objectives import Objective, noun_of, objective_named
from transformer_jax.data.objectives.reinforcing import Prompts
from transformer_jax.data.objectives.taught import Taught
from transformer_jax.data.sources import Corpus, array_files, text_files
from transformer_jax.data.store.teacher_files import TeacherStore, digest_of
from transformer_jax.data.store.token_store import Selection, TokenStore, Uneven, open_store
from transformer_jax.evaluation import metrics, validation
from transformer_jax.experiments import round_trip, warm_start
from transformer_jax.runs.workdir import WorkDir


class Prepared(NamedTuple):
    """Everything a run reads."""

    tokenizers: TokenizerPair
    objective: Objective
    noun: str  # what messages call an item
    texts: Corpus | None  # of training, if it reads them again
    train: TokenStore  # the items of the objective
    items: int  # of the training data; fewer than in `train` if it was segmented more than once
    selection: Selection
    plan: Plan
    validation: Corpus
    validation_store: TokenStore  # the items of the objective
    notes: list[str]  # for the log, about mixtures, codecs and the validation split
    warnings: list[str]  # about texts that codecs or scores do not suit
    identity: dict[str, str]  # digests that must match for a run to resume


def prepare(experiment: Experiment, workdir: WorkDir) -> Prepared:
    """Read the data and plan the batches.

    Raises:
      UserError: if something about the data is wrong.
    """
    data = experiment.data
    metrics.check(experiment.evaluation)
    corpora = sources.tasks(data, experiment.objective)
    read = sources.whole([*corpora.values()])
    corpora, added = enlarged(corpora, experiment)
    train = sources.whole([*corpora.values()])
    held_out = sources.load(data, "validation", experiment.objective)
    tokenizer, codecs = experiment.tokenizer, experiment.codecs
    if experiment.tgt.codec == "trees":
        _check(data, read, held_out, lambda x, place: trees.check_pairs(x.src, x.tgt, place))
    # Before the first checkpoint, nothing depends on a tokenizer in the work directory; but with
    # several processes, the first has just saved it there.
    if workdir.checkpoints.exists() or jax.process_index() > 0:
        tokenizers = TokenizerPair.load(workdir.path, tokenizer.joint, codecs)
    else:
        taken = warm_start.tokenizers_of(experiment, train)
        symbols = experiment.objective.symbols
        template = warm_start.template_of(experiment)
        texts = train.tgt if template is None else template.learned(train.tgt, symbols)
        columns = train.src, texts, codecs, symbols, experiment.src
        tokenizers = taken or train_pair(tokenizer, *columns)
        tokenizers = replace(tokenizers, template=template)
        if isinstance(tokenizers.src, Latents):
            origin = array_files.made_by(data, "train")
            tokenizers = replace(tokenizers, src=tokenizers.src.made_by(origin))
    if isinstance(tokenizers.src, Latents):
        _check_latents(data, tokenizers.src)
    if isinstance(tokenizers.src, VectorCodec):
        tokenizers.src.check_read_by(experiment.model)
    watched, said = objective_named(experiment.objective.name), tokenizers.tgt
    if "class" in watched.predicts:
        _check(data, read, held_out, lambda x, place: classes.check(said, x.tgt, place))
    if experiment.tgt.codec in STRICT and experiment.objective.document != "file":
        _check(data, read, held_out, lambda x, place: check(said, x.tgt, place))
    if experiment.src.codec in STRICT:
        asked = tokenizers.src
        _check(data, read, held_out, lambda x, place: check(asked, x.src, place), True)
    _check_dropped(experiment, tokenizers.src)
    _check_unordered(experiment, tokenizers.src)
    sampling = None
    if data.subword_dropout:
        sampling = Sampling(data.subword_dropout, data.segmentations, experiment.seed)
    objective, text = _opened(experiment, corpora, tokenizers, sampling)
    if isinstance(tokenizers.src, VectorCodec):
        src, tgt = (
            side._replace(read=codec.reader(data)) if isinstance(codec, VectorCodec) else side
            for side, codec in zip((text.src, text.tgt), tokenizers, strict=True)
        )
        text = TokenStore(src, tgt, text.special)
    store = objective.items(text, experiment.objective, tokenizers.src)
    noun = noun_of(objective, experiment)
    selection = objective.select(store, data)
    if not len(selection.pairs):
        raise UserError(
            f"config.data: no training {noun} is left of {len(store):,}: "
            f"dropped {_dropped(selection)}"
        )
    mixture = None
    if data.mixes:
        part = _part_of(experiment, corpora, text, store)
        mixture = mixing.mixture_of(data, part, selection.pairs)
    if isinstance(store, Prompts):
        size, window = experiment.objective.group_size, experiment.objective.window
        plan: Plan = GroupPlan(selection.pairs, size, window, data, experiment.seed)
    else:
        plan = pick(PLANS, data.batching, "config.data.batching")(
            store, selection.pairs, data, experiment.seed, mixture
        )
    _check_shapes(experiment, plan)
    frame = watched.frame(experiment.objective)
    text = open_store(held_out, tokenizers, cache_dir(), frame=frame)
    text = _cut(text, tokenizers.src, experiment.objective.cut_at(data))
    held_out_store = watched.items(text, experiment.objective.measured, tokenizers.src)
    notes = added + _tasks(store, corpora, selection.pairs)
    notes += mixing.describe(data, mixture, selection.pairs)
    notes += validation.notes(held_out_store, experiment)
    kept, warnings = round_trip.notes_and_warnings(experiment, tokenizers, train, held_out)
    notes, warnings = kept + notes, warnings + validation.warnings(held_out, experiment)
    identity = {"training_text": train.fingerprint, "tokenizer": tokenizers.digest}
    if data.teacher is not None:
        items = digest_of(identity, experiment.objective.name, store)
        temperature = experiment.training.distillation_temperature
        teacher = TeacherStore(user_path(data.teacher), items, temperature)
        objective, identity = Taught(objective, teacher), {**identity, "teacher": teacher.digest}
        notes.append(teacher.described)
    times = 1 if sampling is None else sampling.times
    again = train if experiment.objective.record.samples else None
    return Prepared(
        tokenizers, objective, noun, again, store, len(store) // times, selection, plan, held_out,
        held_out_store, notes, warnings, identity,
    )  # fmt: skip


def _check_dropped(experiment: Experiment, codec: Codec) -> None:
    """Check that token dropout zeroes the vector of the codec's <mask>."""
    dropped, mask = experiment.model.token_dropout, codec.special.get("mask")
    if dropped is not None and dropped != mask:
        raise UserError(
            f"config.model.token_dropout={dropped}: "
            + (f"the id of <mask> is {mask}; set it to {mask}" if mask is not None else
               "the tokenizer has no <mask>; set it to None")
        )  # fmt: skip


def _check_unordered(experiment: Experiment, codec: Codec) -> None:
    """Check that the pieces without an order are the codec's tags."""
    unordered, tags = experiment.model.unordered_pieces, getattr(codec, "tags", 0)
    if unordered not in (0, tags):
        raise UserError(
            f"config.model.unordered_pieces={unordered}: src.codec={experiment.src.codec!r} has "
            f"{tags} tags in this training text; set it to {tags}"
        )


def _check_latents(data: DataConfig, codec: Latents) -> None:
    """Check that latents of both splits are those of the autoencoder that the codec knows."""
    for split in ("train", "validation"):
        if array_files.made_by(data, split) != codec.autoencoder:
            raise UserError(
                f"config.data.{split}: has latents of another autoencoder than training had; "
                "encode all splits with one, by `transformer-jax pictures encode`"
            )


def _check_shapes(experiment: Experiment, plan: Plan) -> None:
    together = experiment.training.steps_per_execution
    if together > 1 and len(plan.shapes) > 1:
        raise UserError(
            f"config.training.steps_per_execution={together}: the batches have {len(plan.shapes)} "
            "shapes, and all batches of one call must have the same; set data.num_buckets=1 or "
            "data.batching='pack', or this to 1"
        )


def _check(
    data: DataConfig, train: Corpus, held_out: Corpus,
    check: Callable[[Corpus, Callable[[int], str]], None], source: bool = False,
) -> None:  # fmt: skip
    """Check the lines of both splits: `check` gets a function from line number to file and line,
    those of the target side or of the source side.
    """
    splits: tuple[tuple[sources.Split, Corpus], ...] = ("train", train), ("validation", held_out)
    for split, corpus in splits:
        check(corpus, functools.partial(text_files.place, data, split, source=source))


def _opened(
    experiment: Experiment,
    corpora: dict[str, Corpus],
    tokenizers: TokenizerPair,
    sampling: Sampling | None,
) -> tuple[Objective, TokenStore]:
    """Return the objective of the training texts, and their store."""
    members, texts = [], []
    for name, corpus in corpora.items():
        objective, config = objective_named(name), experiment.objective.alone(name)
        frame = objective.frame(config)
        store = open_store(corpus, tokenizers, cache_dir(), sampling, frame)
        members.append((objective, config))
        texts.append(_cut(store, tokenizers.src, config.cut_at(experiment.data)))
    if len(members) == 1:
        return members[0][0], texts[0]
    return Several(members), Blend.of(texts)


def _part_of(
    experiment: Experiment, corpora: dict[str, Corpus], text: TokenStore, items: TokenStore
) -> np.ndarray:
    """Return the index of the part of data.train that each item comes from."""
    train = experiment.data.train
    named = experiment.objective.of_parts(train).values()
    columns = [
        np.array([train.index(part) for part in parts])[mixing.part_of(corpus.sizes, *stores)]
        for parts, corpus, stores in zip(
            named, corpora.values(), zip(members_of(text), members_of(items), strict=True),
            strict=True,
        )
    ]  # fmt: skip
    return np.concatenate(columns)


def _tasks(items: TokenStore, corpora: dict[str, Corpus], chosen: np.ndarray) -> list[str]:
    """Return a log line for each objective, if there are several."""
    if len(corpora) == 1:
        return []
    counts, _ = np.histogram(chosen, np.cumsum([0, *map(len, members_of(items))]))
    return [
        f"{name}: {count:,} training {objective_named(name).noun}s"
        for name, count in zip(corpora, counts.tolist(), strict=True)
    ]


def _cut(store: TokenStore, source: Codec, most: int | None) -> TokenStore:
    """Return the store with sources cut to the length that training reads."""
    if most is None:
        return store
    return Uneven(store.src.cut(most, special_of(source).end), store.tgt, store.special)


def _counted(codec: Codec) -> str:
    return f"{codec.size:,} {'channels' if isinstance(codec, VectorCodec) else 'pieces'}"


def _dropped(selection: Selection) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in selection.dropped.items())


def describe(prepared: Prepared) -> list[str]:
    """Return log lines about the data and its batches."""
    store, selection, plan = prepared.train, prepared.selection, prepared.plan
    side, noun = longer_side(plan), prepared.noun
    read, (positions, tokens) = ("source", "target")[side], filled(store, plan)
    times = len(store) // prepared.items
    repeated = f", from {prepared.items:,} segmented {times} times at random" if times > 1 else ""
    shapes = "  ".join(f"{s.rows}x{s[1 + side]}" for s in plan.shapes)
    return [
        f"data: {len(selection.pairs):,} training {noun}s kept{repeated}; "
        f"dropped {_dropped(selection)}; {len(prepared.validation_store):,} for validation",
        f"vocabulary: {_counted(prepared.tokenizers.src)}"
        + ("" if prepared.tokenizers.src is prepared.tokenizers.tgt
           else f" source, {_counted(prepared.tokenizers.tgt)} target"),
        f"batches: {len(plan):,} per epoch; shapes {shapes}; {1 - tokens / positions:.1%} of "
        f"{read} positions are padding; {tokens / len(plan):,.0f} {read} tokens per step",
        *prepared.notes,
    ]  # fmt: skip

"""What is refused of texts: codecs, windows, and parts with an objective of their own."""

import dataclasses
from typing import TYPE_CHECKING

from transformer_jax.config.bounds import check, either
from transformer_jax.config.refusals.vectors import check_vectors
from transformer_jax.config.words import CLASSES, LABELS, NO_TEXT, SIZED, VECTORS

if TYPE_CHECKING:
    from transformer_jax.config.manual import Experiment, ObjectiveConfig


def check_codecs(run: "Experiment") -> None:
    """Refuse codecs that do not go together, and settings of subwords where there are none."""
    codecs = run.codecs
    name, no_text = run.objective.name, NO_TEXT
    wanted = LABELS.get(run.objective.kind)
    allowed = (wanted or "", *(CLASSES if wanted == "classes" else ()))
    check(
        codecs[1] in allowed if wanted else codecs[1] not in no_text,
        f"tgt.codec={codecs[1]!r}: objective.name={name!r} "
        + (f"predicts {wanted}; choose {either(allowed)}" if wanted else "has text there; choose "
           f"another codec, or an objective.name of {', '.join(LABELS)}"),
    )  # fmt: skip
    check(
        codecs[0] not in no_text,
        f"src.codec={codecs[0]!r}: the source side is read, and must be text; choose another codec",
    )
    check(
        len(set(codecs)) == 1 or not run.tokenizer.joint,
        f"src.codec={codecs[0]!r}, tgt.codec={codecs[1]!r}: two codecs cannot be one joint "
        "vocabulary; choose the same for both, or set tokenizer.joint=False",
    )
    check_vectors(run)
    read = {"joint", *(field for name in codecs for field in SIZED.get(name, ()))}
    for item in dataclasses.fields(run.tokenizer):
        value = getattr(run.tokenizer, item.name)
        check(
            item.name in read or value == item.default,
            f"tokenizer.{item.name}={value!r}: means nothing with tgt.codec={codecs[1]!r}; "
            f"leave it at {item.default!r}",
        )
    check(
        not run.data.subword_dropout or "subwords" in codecs,
        f"data.subword_dropout={run.data.subword_dropout}: means nothing with tgt.codec="
        f"{codecs[1]!r}; set it to 0",
    )
    check(
        "labelled_F1" not in run.evaluation.metrics or codecs[1] == "trees",
        f"evaluation.metrics={run.evaluation.metrics}: 'labelled_F1' is of trees, and "
        f"tgt.codec={codecs[1]!r} has none; leave it out",
    )
    check(
        run.decoding.draft != "ngram" or run.src.codec not in VECTORS,
        f"decoding.draft='ngram': looks for what was read, and src.codec={run.src.codec!r} reads "
        "no pieces; set it to None",
    )
    constraint = run.decoding.constraint
    check(
        constraint == "none" or (codecs[1] == "trees" and run.objective.translates),
        f"decoding.constraint={constraint!r}: is for trees that are written of a sentence, and "
        f"tgt.codec={codecs[1]!r} with objective.name={name!r} writes none; set it to 'none'",
    )
    check(
        run.decoding.shortlist == 0 or run.translates_text,
        f"decoding.shortlist={run.decoding.shortlist}: is of translations of text, and "
        f"objective.name={name!r} with src.codec={run.src.codec!r} makes none; set it to 0",
    )


def check_long_sources(run: "Experiment") -> None:
    """Refuse sources that are cut where they are not, or leave no room for a target."""
    data, objective = run.data, run.objective
    cut, shared = data.long_sources == "cut", objective.kind == "prefix_lm"
    name, window = f"objective.name={objective.name!r}", f"objective.window={objective.window}"
    check(
        not cut or shared or objective.kind == "translate",
        f"data.long_sources={data.long_sources!r}: means nothing with {name}; leave it at 'drop'",
    )
    check(
        not (cut and shared) or objective.window < data.max_length,
        f"{window}: sources of so many pieces leave no room for a target in data.max_length="
        f"{data.max_length}; lower the one or raise the other",
    )
    usual = type(objective).__dataclass_fields__["window"].default
    check(
        cut or objective.window == usual or objective.kinds != {"prefix_lm"},
        f"{window}: {name} reads sources whole; leave it at {usual}, or set data.long_sources="
        "'cut'",
    )


def check_tasks(run: "Experiment") -> None:
    """Refuse what does not fit parts of the training text with an objective of their own."""
    data, objective = run.data, run.objective
    named = objective.of_parts(data.train)
    parts = f"objective.parts={objective.parts}"
    check(
        sum(map(len, named.values())) - len(named[objective.name]) == len(objective.parts)
        and bool(named[objective.name]),
        f"{parts}: must name some of the parts of data.train={data.train}, but not all: those "
        f"that are left are for {objective.name}",
    )
    check(
        run.tokenizer.joint,
        f"{parts}: one text is read and written, with one vocabulary; set tokenizer.joint=True",
    )
    check(
        not data.subword_dropout,
        f"data.subword_dropout={data.subword_dropout}: is for pairs, and {parts} has other "
        "texts; set it to 0",
    )
    for name, own in named.items():
        one = objective.alone(name)
        tagged = [entry for entry in data.prefixes if entry.partition("=")[0] in own]
        check(
            not tagged or not one.one_sided,
            f"data.prefixes={tagged}: a part for {name} has no source side; leave it out",
        )
        if one.windowed:
            _check_read(run, one)


def check_windows(run: "Experiment") -> None:
    """Refuse what does not fit a model of texts that are cut into windows."""
    data, objective = run.data, run.objective
    name = f"objective.name={objective.name!r}"
    check(
        run.src == type(run.src)() or not objective.one_sided,
        f"src.codec={run.src.codec!r}: {name} has no source side; set tgt.codec alone",
    )
    check(
        not data.subword_dropout,
        f"data.subword_dropout={data.subword_dropout}: is for pairs, not for {name}; set it to 0",
    )
    check(
        run.evaluation.bleu_sentences == 0,
        f"evaluation.bleu_sentences={run.evaluation.bleu_sentences}: {name} has no "
        "references to compare with; set it to 0, and checkpoint.best_by='loss'",
    )
    _check_read(run, objective)


def _check_read(run: "Experiment", objective: "ObjectiveConfig") -> None:
    """Refuse windows and documents that cannot be read so."""
    data, codec = run.data, run.tgt.codec
    check(
        objective.window <= data.max_length,
        f"objective.window={objective.window} is above data.max_length={data.max_length}: "
        "lower the one or raise the other",
    )
    check(
        objective.document != "file" or data.source == "text",
        f"objective.document='file': data.source={data.source!r} has no files; choose 'line'",
    )
    check(
        objective.document != "file" or codec not in SIZED,
        f"objective.document='file': tgt.codec={codec!r} does not keep line ends; choose "
        "'characters' or 'bytes', or document='line'",
    )

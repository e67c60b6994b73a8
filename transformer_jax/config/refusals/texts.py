"""Validation of texts: codecs, windows, and parts with their own objective."""

import dataclasses
from typing import Any

from transformer_jax.config.bounds import check, either
from transformer_jax.config.choices.codecs import CODECS, SIZED, VECTORS
from transformer_jax.config.choices.objectives import LABELLING, OBJECTIVES, targets_of
from transformer_jax.config.choices.record import with_
from transformer_jax.config.choices.sources import SOURCES
from transformer_jax.config.refusals.vectors import check_vectors


def check_codecs(run: Any) -> None:
    """Reject codecs that do not go together, and subword settings without subwords."""
    codecs = run.codecs
    name, no_text = run.objective.name, with_(CODECS, text=False)
    wanted, allowed = run.objective.record.labels, targets_of(run.objective.kind)
    check(
        codecs[1] in allowed
        if wanted
        else codecs[1] not in no_text or codecs[1] in run.objective.record.besides,
        f"tgt.codec={codecs[1]!r}: objective.name={name!r} "
        + (f"predicts {wanted}; choose {either(allowed)}" if wanted else "has text there; choose "
           f"another codec, or one of the objectives {', '.join(LABELLING)}"),
    )  # fmt: skip
    check(
        codecs[0] not in no_text,
        f"src.codec={codecs[0]!r}: the source side must be text; choose another codec",
    )
    check(
        len(set(codecs)) == 1 or not run.tokenizer.joint,
        f"src.codec={codecs[0]!r}, tgt.codec={codecs[1]!r}: two codecs cannot share a joint "
        "vocabulary; choose the same for both, or set tokenizer.joint=False",
    )
    check_vectors(run)
    check(
        "labelled_F1" not in run.evaluation.metrics or codecs[1] in with_(CODECS, trees=True),
        f"evaluation.metrics={run.evaluation.metrics}: 'labelled_F1' is for trees, and "
        f"tgt.codec={codecs[1]!r} has none; remove it",
    )
    check(
        run.decoding.draft != "ngram" or run.src.codec not in VECTORS,
        f"decoding.draft='ngram': searches the input pieces, and src.codec={run.src.codec!r} reads "
        "none; set it to None",
    )
    constraint = run.decoding.constraint
    check(
        constraint == "none"
        or (codecs[1] in with_(CODECS, trees=True) and run.objective.translates),
        f"decoding.constraint={constraint!r}: is for parsing sentences into trees, and "
        f"tgt.codec={codecs[1]!r} with objective.name={name!r} writes none; set it to 'none'",
    )
    check(
        run.decoding.shortlist == 0 or run.translates_text,
        f"decoding.shortlist={run.decoding.shortlist}: is for translating text, which "
        f"objective.name={name!r} with src.codec={run.src.codec!r} does not do; set it to 0",
    )
    check(
        run.decoding.ctc_weight == 0 or run.objective.record.hybrid,
        f"decoding.ctc_weight={run.decoding.ctc_weight}: objective.name={name!r} trains no CTC "
        f"beside a decoder; set it to 0, or train with {either(with_(OBJECTIVES, hybrid=True))}",
    )


def check_codecs_read(run: Any) -> None:
    """Reject settings of pieces that no codec has."""
    codecs = run.codecs
    read = {"joint", *(x for name in codecs if name in CODECS for x in CODECS[name].tokenizer)}
    for item in dataclasses.fields(run.tokenizer):
        value = getattr(run.tokenizer, item.name)
        check(
            item.name in read or value == item.default,
            f"tokenizer.{item.name}={value!r}: has no effect with tgt.codec={codecs[1]!r}; "
            f"leave it at {item.default!r}",
        )
    check(
        not run.data.subword_dropout or "subwords" in codecs,
        f"data.subword_dropout={run.data.subword_dropout}: has no effect with tgt.codec="
        f"{codecs[1]!r}; set it to 0",
    )


def check_long_sources(run: Any) -> None:
    """Reject cutting sources so that no room is left for a target."""
    data, objective = run.data, run.objective
    check(
        data.long_sources != "cut"
        or not objective.record.one_row
        or objective.window < data.max_length,
        f"objective.window={objective.window}: sources of that length leave no room for a target "
        f"in data.max_length={data.max_length}; lower the former or raise the latter",
    )


def check_long_sources_read(run: Any) -> None:
    """Reject lengths at which nothing is cut."""
    data, objective = run.data, run.objective
    cut = data.long_sources == "cut"
    name, window = f"objective.name={objective.name!r}", f"objective.window={objective.window}"
    check(
        not cut or objective.record.searches,
        f"data.long_sources={data.long_sources!r}: has no effect with {name}; leave it at 'drop'",
    )
    usual = type(objective).__dataclass_fields__["window"].default
    whole = all(OBJECTIVES[kind].one_row for kind in objective.kinds)
    check(
        cut or objective.window == usual or not whole,
        f"{window}: {name} reads sources whole; leave it at {usual}, or set data.long_sources="
        "'cut'",
    )


def check_tasks(run: Any) -> None:
    """Reject what does not go with parts of the training text having their own objective."""
    data, objective = run.data, run.objective
    named = objective.of_parts(data.train)
    parts = f"objective.parts={objective.parts}"
    check(
        sum(map(len, named.values())) - len(named[objective.name]) == len(objective.parts)
        and bool(named[objective.name]),
        f"{parts}: must name some of the parts of data.train={data.train}, but not all: the "
        f"others are for {objective.name}",
    )
    check(
        run.tokenizer.joint,
        f"{parts}: one text is read and written, in one vocabulary; set tokenizer.joint=True",
    )
    check(
        not data.subword_dropout,
        f"data.subword_dropout={data.subword_dropout}: is for pairs, and {parts} has texts that "
        "are not; set it to 0",
    )
    for name, own in named.items():
        one = objective.alone(name)
        tagged = [entry for entry in data.prefixes if entry.partition("=")[0] in own]
        check(
            not tagged or not one.one_sided,
            f"data.prefixes={tagged}: a part for {name} has no source side; remove it",
        )
        if one.windowed:
            _check_read(run, one)


def check_windows(run: Any) -> None:
    """Reject what does not go with a model of texts cut into windows."""
    data, objective = run.data, run.objective
    name = f"objective.name={objective.name!r}"
    check(
        run.src == type(run.src)() or not objective.one_sided,
        f"src.codec={run.src.codec!r}: {name} has no source side; set only tgt.codec",
    )
    check(
        "source" not in data.named("columns")
        or not objective.one_sided
        or objective.record.lines == "conversations",
        f"data.columns={data.columns}: {name} has no source side; name only the target's column",
    )
    sides = [entry.partition("=")[0] for entry in data.columns]
    check(
        objective.record.lines is None or len(sides) == len({*sides}),
        f"data.columns={data.columns}: {name} reads rows with one column a side; name each once",
    )
    check(
        not data.subword_dropout,
        f"data.subword_dropout={data.subword_dropout}: is for pairs, not for {name}; set it to 0",
    )
    check(
        run.evaluation.bleu_sentences == 0 or objective.record.samples,
        f"evaluation.bleu_sentences={run.evaluation.bleu_sentences}: {name} has no "
        "references; set it to 0, and checkpoint.best_by='loss'",
    )
    _check_read(run, objective)


def _check_read(run: Any, objective: Any) -> None:
    """Reject windows and documents that cannot be read that way."""
    data, codec = run.data, run.tgt.codec
    check(
        objective.window <= data.max_length,
        f"objective.window={objective.window} is above data.max_length={data.max_length}: "
        "lower the former or raise the latter",
    )
    check(
        objective.document != "file" or SOURCES[data.source].documents,
        f"objective.document='file': data.source={data.source!r} has no files; choose 'line'",
    )
    check(
        objective.document != "file" or codec not in SIZED,
        f"objective.document='file': tgt.codec={codec!r} does not keep newlines; choose "
        "'characters' or 'bytes', or document='line'",
    )

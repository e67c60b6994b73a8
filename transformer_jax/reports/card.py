"""Model cards: the README.md of an exported directory, whose front matter the Hugging Face Hub
reads (https://huggingface.co/docs/hub/model-cards).

What the work directory knows is written; what only people know, such as a licence, is written as
they state it, or as not stated. Nothing is guessed.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from transformer_jax.api.trained import TrainedModel
from transformer_jax.base import counting
from transformer_jax.base.errors import UserError
from transformer_jax.config import Experiment
from transformer_jax.config.choices.codecs import CODECS
from transformer_jax.config.choices.searches import SEARCHES
from transformer_jax.config.choices.sources import SOURCES
from transformer_jax.config.metrics import PREDICTION, TRANSLATION
from transformer_jax.reports import runs

_METRICS = {**PREDICTION, **TRANSLATION}
_IDENTIFIER = r"[a-z0-9][a-z0-9.-]*"  # of a licence on the Hub
_LANGUAGE = r"[a-z]{2,3}"  # ISO 639
_DATASET = r"([\w-]+/)?[\w.-]+"  # of a data set on the Hub


class Stated(NamedTuple):
    """What people state about a model; empty: not stated.

    license, data_license: identifiers of the Hub, such as "apache-2.0" or "other".
    languages: ISO 639 codes; if empty, those that a translator's data are named after.
    datasets: names of data sets on the Hub.
    """

    license: str = ""
    data_license: str = ""
    languages: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()


class Engine(NamedTuple):
    """For whom a directory was written: the Hub's name of the library, further tags, and a program
    in Python that loads it.
    """

    library: str
    tags: tuple[str, ...]
    program: str


def check(stated: Stated) -> None:
    """Check that the Hub would accept what is stated.

    Raises:
      UserError: if not; names the option.
    """
    for option, values, form, example in (
        ("license", (stated.license,), _IDENTIFIER, "apache-2.0, or other"),
        ("data-license", (stated.data_license,), _IDENTIFIER, "cc-by-4.0, or other"),
        ("language", stated.languages, _LANGUAGE, "de,en"),
        ("datasets", stated.datasets, _DATASET, "wmt/wmt14"),
    ):
        for value in values:
            if value and not re.fullmatch(form, value):
                raise UserError(
                    f"--{option}={value}: the Hugging Face Hub has no such name; write it as the "
                    f"Hub does, such as {example}"
                )


def card(trained: TrainedModel, run: runs.Run, name: str, engine: Engine, stated: Stated) -> str:
    """Return the content of README.md for a directory called `name`, written from one checkpoint of
    a run.
    """
    facts = runs.facts(run)
    scored = [row for row in run.evaluations if _is_of(row, trained)]
    metadata = _metadata(trained.experiment, facts, scored, name, engine, stated)
    lines = [
        "---", *_yaml(metadata), "---", "", f"# {name}", "", *_summary(trained, facts),
        *_use(engine), *_data(facts, stated), *_training(trained, facts),
        *_scores(scored, facts), *_licence(stated), *_settings(run),
    ]  # fmt: skip
    return "\n".join(lines)


def _is_of(row: Mapping[str, Any], trained: TrainedModel) -> bool:
    """Return whether scores are those of this checkpoint, and not of an ensemble with it."""
    return row["steps"] == trained.steps and "+" not in row["checkpoint"].partition(",")[0]


def task(experiment: Experiment) -> str | None:
    """Return the Hub's name of what a model does; None if it has none."""
    codec = CODECS.get(experiment.codecs[0])
    known, of_text = codec, experiment.objective.record.task
    if known is None or not known.vectors or of_text is None:
        return of_text
    return known.tasks.get(of_text, of_text if experiment.objective.record.forecasts else None)


def languages(experiment: Experiment) -> tuple[str, ...]:
    """Return the languages of a translator of text whose data are named after them."""
    data, codecs = experiment.data, [CODECS.get(name) for name in experiment.codecs]
    sides = data.source_language, data.target_language
    named = SOURCES[data.source].languages and not data.columns
    named &= not experiment.objective.one_sided
    written = all(codec is not None and codec.text and not codec.vectors for codec in codecs)
    if not (named and written and all(re.fullmatch(_LANGUAGE, side) for side in sides)):
        return ()
    return tuple(dict.fromkeys(sides))


def _metadata(
    experiment: Experiment, facts: Mapping[str, Any], scored: Sequence[Mapping[str, Any]],
    name: str, engine: Engine, stated: Stated,
) -> dict[str, Any]:  # fmt: skip
    kind, data = task(experiment), experiment.data
    corpus = {"type": stated.datasets[0] if stated.datasets else "not-on-the-hub",
              "name": data.name or data.source}  # fmt: skip
    results: list[dict[str, Any]] = [
        {
            "task": {"type": kind or "other"},
            "dataset": {**corpus, "split": row["split"]},
            "metrics": [
                {"type": metric.lower(), "value": round(found["value"], 4),
                 "name": _METRICS[metric].title if metric in _METRICS else metric}
                for metric, found in row["scores"].items()
                if math.isfinite(found["value"])  # the Hub takes no other number
            ],
        }
        for row in scored
    ]  # fmt: skip
    found = {
        "language": list(stated.languages or languages(experiment)),
        "license": stated.license or "unknown",
        "library_name": engine.library,
        "pipeline_tag": kind,
        "tags": ["transformer-jax", *engine.tags],
        "datasets": list(stated.datasets),
        "metrics": list(dict.fromkeys(m["type"] for one in results for m in one["metrics"])),
        "model-index": [{"name": name, "results": results}] if results else [],
    }
    return {key: value for key, value in found.items() if value}


def _yaml(value: Any, indent: str = "") -> Iterator[str]:
    """Yield the lines of a mapping or a sequence in YAML; scalars are written as in JSON, which is
    a part of it.
    """
    listed = isinstance(value, list)
    for key, item in enumerate(value) if listed else value.items():
        head = f"{indent}-" if listed else f"{indent}{key}:"
        if not isinstance(item, dict | list):
            yield f"{head} {json.dumps(item, ensure_ascii=False)}"
        elif listed:  # its first line stands behind the dash
            first, *rest = _yaml(item, f"{indent}  ")
            yield from (f"{head} {first.strip()}", *rest)
        else:
            yield head
            yield from _yaml(item, f"{indent}  ")


def _summary(trained: TrainedModel, facts: Mapping[str, Any]) -> list[str]:
    count = counting.parameters(trained.params)
    return [
        f"{facts['kind']}: {facts['body']} ({facts['model']}) with {count:,} parameters, trained "
        "with `transformer-jax`.", "",
        f"Tokenizer: {facts['tokenizer']}.", "",
    ]  # fmt: skip


def _use(engine: Engine) -> list[str]:
    return ["## How to use", "", "```python", *engine.program.splitlines(), "```", ""]


def _data(facts: Mapping[str, Any], stated: Stated) -> list[str]:
    many = f"{facts['pairs']:,} " if facts["pairs"] else ""
    direction = ""
    if facts["translates"]:
        direction = f", from {facts['source_language']} to {facts['target_language']}"
    on_hub = f" On the Hub: {', '.join(stated.datasets)}." if stated.datasets else ""
    return [
        "## Data", "",
        f"Trained on {many}{facts['items']} of {facts['corpus']}{direction}.{on_hub}", "",
    ]  # fmt: skip


def _training(trained: TrainedModel, facts: Mapping[str, Any]) -> list[str]:
    steps = " and ".join(f"{step:,}" for step in trained.steps)
    lines = [f"- checkpoint: {'the mean of steps' if len(trained.steps) > 1 else 'step'} {steps}"]
    if facts["steps"] is not None:
        lines.append(f"- training: {facts['steps']:,} steps, {facts['minutes']:.1f} minutes")
    lines += [f"- {key}: {facts[key]}" for key in ("machine", "versions", "seed", "commit")
              if facts[key] is not None]  # fmt: skip
    command = ["- command:", "", "      " + facts["command"]]
    return ["## Training", "", *lines, *command, ""]


def _scores(scored: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> list[str]:
    if not scored:
        best = (f"{title} {value:.2f}" for title, value in facts["validation"].items())
        during = "; ".join(best)
        last = f" The best validation during training: {during}." if during else ""
        return ["## Scores", "", f"This checkpoint has not been scored on a whole split.{last}", ""]
    lines = ["| split | score | value | how it was measured |", "|---|---|---|---|"]
    for row in scored:
        where = f"{row['sentences']:,} {facts['scored']}, checkpoint {row['checkpoint']}"
        where += _search(row["decoding"]) if facts["translates"] else ""
        for metric, found in row["scores"].items():
            title = _METRICS[metric].title if metric in _METRICS else metric
            how = "; ".join(filter(None, [where, found["signature"]])).replace("|", "\\|")
            lines.append(f"| {row['split']} | {title} | {found['value']:.4g} | {how} |")
    return ["## Scores", "", *lines, ""]


def _search(decoding: Mapping[str, Any] | None) -> str:
    """Return how a text was found."""
    record = SEARCHES.get((decoding or {}).get("search", ""))
    if decoding is None or record is None:
        return ""
    return f", search {decoding['search']}, {record.width}={decoding.get(record.width)}"


def _licence(stated: Stated) -> list[str]:
    def said(value: str, option: str) -> str:
        return value or f"not stated (`transformer-jax export --{option}=...` states it)"

    return [
        "## Licence", "",
        f"- of the model: {said(stated.license, 'license')}",
        f"- of the data: {said(stated.data_license, 'data-license')}", "",
    ]  # fmt: skip


def _settings(run: runs.Run) -> list[str]:
    rows = [f"| {path} | {_cell(value)} | {_cell(default)} |"
            for path, value, default in runs.settings(run, "test")]  # fmt: skip
    head = ["| setting | value | default |", "|---|---|---|"]
    return ["## Settings other than the defaults", "", *head, *rows, ""] if rows else []


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")

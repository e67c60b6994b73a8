"""Work directories written by hand as training and scoring leave them."""

import dataclasses
import functools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_jax.config import (
    DataConfig,
    Experiment,
    ModelConfig,
    ObjectiveConfig,
    TokenizerConfig,
)
from transformer_jax.config.convert import to_json
from transformer_jax.data.codecs.pair import TokenizerPair, train_pair
from transformer_jax.evaluation.metrics import score
from transformer_jax.evaluation.run import digest
from transformer_jax.evaluation.sentences import picked, sentence_scores, words
from transformer_jax.runs.workdir import WorkDir, append_row

HOSTILE = [
    "<script>window.harmed = 1</script>",
    "</script><img src=x onerror='window.harmed = 2'>",
    "\"quotes\" 'and' `more` ${window.harmed = 3} {{harmed}}",
    "هذه جملة من اليمين إلى اليسار، للاختبار.",
    "x" * 2000,
    "wort " * 400,
    "<!-- --> &amp; &#x3c; \u2028 \u202e \x00 ]]>",
]
PLAIN = [f"Satz {number} vom Hund und der Katze" for number in range(13)]
EXPERIMENT = Experiment(
    model=ModelConfig(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=2),
    data=DataConfig(name="made/up", source_language="en", target_language="de"),
)
EXPERIMENT = dataclasses.replace(
    EXPERIMENT,
    training=dataclasses.replace(EXPERIMENT.training, steps=200, log_every=10),
    tokenizer=dataclasses.replace(EXPERIMENT.tokenizer, vocab_size=60),
)
START = {
    "command": "python train.py --config=configs/made_up.py", "commit": "0123456789abcdef",
    "versions": {"python": "3.11", "jax": "0.10"}, "parameters": 12345, "pairs": 678,
    "machine": {"devices": "1 cpu", "processes": 1, "processor": "a processor", "cores": 2,
                "memory": 2**33, "system": "Linux"},
    "steps_an_epoch": 10, "vocabulary": [60, 60],
}  # fmt: skip


@functools.cache
def _tokenizers(config: TokenizerConfig) -> TokenizerPair:
    return train_pair(config, PLAIN, [line.upper() for line in PLAIN])


def with_field(experiment: Experiment, path: str, value: Any) -> Experiment:
    """Return the experiment with one field changed: `path` as in "model.d_ff"."""
    group, _, name = path.rpartition(".")
    if not group:
        return dataclasses.replace(experiment, **{name: value})
    part = dataclasses.replace(getattr(experiment, group), **{name: value})
    return dataclasses.replace(experiment, **{group: part})


def trained(
    path: Path, experiment: Experiment = EXPERIMENT, steps: int = 200, factor: float = 1.0
) -> WorkDir:
    """Write what a training run leaves, with its losses multiplied by `factor`."""
    place = WorkDir(path)
    place.path.mkdir(parents=True)
    place.config.write_text(to_json(experiment))
    _tokenizers(experiment.tokenizer).save(place.path)
    append_row(place.history, {"step": 0, "event": "start", "time": 1.0, **START})
    seconds = {"step": 4.0, "input": 0.5, "evaluation": 0.0, "checkpoint": 0.25}
    for step in range(10, steps + 1, 10):
        loss = factor * (1 + 8 / math.sqrt(step))
        append_row(
            place.metrics,
            {"step": step, "loss": loss, "nll": loss / 1.1, "accuracy": 1 / loss,
             "grad_norm": 1 + 1 / step, "learning_rate": 1e-5 * step,
             "target_tokens": 111 * step, "skipped": 0},
        )  # fmt: skip
        append_row(
            place.timings,
            {"step": step, "time": 2.0 + step, "target_tokens_per_s": 500.0 + step,
             "steps_per_s": 5.0, "seconds": seconds},
        )  # fmt: skip
        if step % 50 == 0:
            row = {"validation_loss": 2 * loss, "validation_bleu": 20 / factor + step / 100}
            append_row(place.metrics, {"step": step, **row})
    if steps == experiment.training.steps:
        end = {"event": "end", "time": 300.0, "outcome": "finished"}
        append_row(place.history, {"step": steps, **end, "seconds": {**seconds, "evaluation": 9.0}})
    return place


def scored(
    place: WorkDir,
    sources: Sequence[str],
    references: Sequence[str],
    hypotheses: Sequence[str],
    split: str = "test",
    checkpoint: str = "best",
    beam_size: int = 4,
) -> None:
    """Write what eval.py leaves, with attention for the selected sentences."""
    config = place.experiment().evaluation
    rows: list[dict[str, Any]] = [
        {"line": i, "source": s, "reference": r, "hypothesis": h, **scores,
         "seen": [len(word) * 7 % 13 for word in words(r)]}
        for i, (s, r, h, scores) in enumerate(
            zip(sources, references, hypotheses,
                sentence_scores(hypotheses, references, config), strict=True), 1)
    ]  # fmt: skip
    for i in {i for kind in picked(rows).values() for i in kind}:
        pieces = [f"▁{sources[i][:20]}", "</s>"]
        first, second = [[900, 100], [0, 1000]], [[250, 750], [500, 500]]
        weights = [[first, second], [second, second]]  # 2 layers, 2 heads
        rows[i]["attention"] = {"source": pieces, "target": pieces, "weights": weights}
    found = score(hypotheses, references, config, 100)
    shown = {
        "split": split, "checkpoint": checkpoint, "steps": [200], "sentences": len(rows),
        "scores": {s.name: {"value": s.value, "signature": s.signature, "interval": s.interval}
                   for s in found},
        "details": [s.details for s in found], "exact_match": 12.5,
        "decoding": {"beam_size": beam_size},
        "evaluation": dataclasses.asdict(config), "references": digest(references),
    }  # fmt: skip
    place.eval.mkdir(exist_ok=True)
    stem = f"{split}.{checkpoint.replace(':', '-')}"
    (place.eval / f"{stem}.json").write_text(json.dumps(shown))
    (place.eval / f"{stem}.hyp").write_text("".join(f"{line}\n" for line in hypotheses))
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (place.eval / f"{stem}.jsonl").write_text(text)


def predicted(path: Path) -> WorkDir:
    """Write what a language model's training and evaluation leave."""
    objective = ObjectiveConfig(name="language_model", window=16)
    experiment = with_field(EXPERIMENT, "checkpoint.best_by", "loss")
    experiment = with_field(experiment, "evaluation.bleu_sentences", 0)
    model = dataclasses.replace(EXPERIMENT.model, architecture="decoder", num_encoder_layers=6)
    place = trained(path, dataclasses.replace(experiment, model=model, objective=objective))
    values = {"loss": 1.8346, "perplexity": 6.262, "bits_per_character": 2.6467}
    result = {
        "split": "test", "checkpoint": "best", "steps": [200], "sentences": 1, "tokens": 99,
        "scores": {name: {"value": value, "signature": ""} for name, value in values.items()},
        "details": [], "decoding": None, "evaluation": {}, "references": "",
    }  # fmt: skip
    place.eval.mkdir()
    (place.eval / "test.best.json").write_text(json.dumps(result))
    return place

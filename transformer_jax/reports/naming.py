"""Names in reports for models and for the items that they were trained on."""

from transformer_jax.config import Experiment
from transformer_jax.config.words import CLASSIFIES, MASKED, OF_TEXT

_BODIES = {
    "recurrent": "recurrent model", "elmo": "recurrent model", "perceiver": "Perceiver",
    "decomposable_attention": "decomposable attention model",
}  # fmt: skip
_READ = {"patches": "pictures", "log_mel": "sounds", "series": "time series"}
KINDS = {  # by objective
    "classify": "A classifier of {read}", "classify_pairs": "A classifier of pairs of texts",
    "regress": "A regression model of {read}", "tag": "A word tagger",
    "answer": "A question answering model", "forecast": "A forecaster of {read}",
    "reconstruct": "An autoencoder of {read}", "policy": "A chess player",
    **dict.fromkeys(OF_TEXT, "A language model"),
    **dict.fromkeys(MASKED, "A masked language model"),
    **dict.fromkeys(("translate", "prefix_lm", "ctc"), "A translator"),
}  # fmt: skip


def named(experiment: Experiment) -> dict[str, str]:
    """Return an experiment's "body", a noun; its "kind", with an article; its "items", a plural
    that is followed by "of" and the corpus; and "scored", a plural for what eval.py counts.
    """
    objective, codec = experiment.objective, experiment.codecs[0]
    read = _READ.get(codec, "texts")
    items = f"windows of {objective.window} pieces"
    if objective.translates:
        items = "sentence pairs" if codec not in _READ else f"{read} with their texts"
    elif objective.kind in (*CLASSIFIES, "regress") and codec not in _READ:
        items = f"texts, at most {objective.window} pieces of each,"
    elif codec == "series":
        items = f"windows of {objective.window} rows"
    elif codec in _READ:
        items = read
    scored = "sentences" if objective.translates else read
    if objective.kind == "forecast":
        scored = "windows"
    return {
        "body": _BODIES.get(experiment.model.architecture, "Transformer"),
        "kind": KINDS[objective.kind].format(read=read),
        "items": items,
        "scored": scored,
    }

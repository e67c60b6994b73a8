"""What a report calls a model, and the items that it was trained on."""

from transformer_jax.config import Experiment
from transformer_jax.config.words import MASKED, OF_TEXT

_BODIES = {
    "recurrent": "recurrent model", "elmo": "recurrent model", "perceiver": "Perceiver",
    "decomposable_attention": "model of decomposable attention",
}  # fmt: skip
_READ = {"patches": "pictures", "log_mel": "sounds", "series": "time series"}
KINDS = {  # of each objective
    "classify": "A classifier of {read}", "classify_pairs": "A classifier of pairs of texts",
    "regress": "A regression of {read}", "tag": "A tagger of words",
    "answer": "A reader that answers questions", "forecast": "A forecaster of {read}",
    "reconstruct": "An autoencoder of {read}",
    **dict.fromkeys(OF_TEXT, "A language model"),
    **dict.fromkeys(MASKED, "A masked language model"),
    **dict.fromkeys(("translate", "prefix_lm", "ctc"), "A translator"),
}  # fmt: skip


def named(experiment: Experiment) -> dict[str, str]:
    """Return its "body", a noun; its "kind", with an article; and its "items", a plural that its
    corpus follows.
    """
    objective, codec = experiment.objective, experiment.codecs[0]
    read = _READ.get(codec, "texts")
    items = f"windows of {objective.window} pieces"
    if objective.translates:
        items = "pairs of sentences" if codec not in _READ else f"{read} with their texts"
    elif objective.kind in ("classify", "classify_pairs", "regress") and codec not in _READ:
        items = f"texts, of each at most {objective.window} pieces,"
    elif codec == "series":
        items = f"windows of {objective.window} rows"
    elif codec in _READ:
        items = read
    return {
        "body": _BODIES.get(experiment.model.architecture, "Transformer"),
        "kind": KINDS[objective.kind].format(read=read),
        "items": items,
    }

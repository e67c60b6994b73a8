"""Names in reports for models and for the items that they were trained on."""

from transformer_jax.config import Experiment
from transformer_jax.config.choices.codecs import CODECS

_BODIES = {
    "recurrent": "recurrent model", "elmo": "recurrent model", "perceiver": "Perceiver",
    "decomposable_attention": "decomposable attention model", "dlinear": "linear model",
}  # fmt: skip


def named(experiment: Experiment) -> dict[str, str]:
    """Return an experiment's "body", a noun; its "kind", with an article; its "items", a plural
    that is followed by "of" and the corpus; and "scored", a plural for what eval.py counts.
    """
    objective, codec = experiment.objective, experiment.codecs[0]
    known = CODECS.get(codec)
    vectors, read = (known.vectors, known.read_as) if known else (False, "texts")
    items = f"windows of {objective.window} pieces"
    if objective.translates:
        items = "sentence pairs" if not vectors else f"{read} with their texts"
    elif objective.record.evaluated in ("classes", "values") and not vectors:
        items = f"texts, at most {objective.window} pieces of each,"
    elif codec == "series":
        items = f"windows of {objective.window} rows"
    elif vectors:
        items = read
    scored = "sentences" if objective.translates else read
    if objective.record.forecasts:
        scored = "windows"
    if objective.record.acts:
        scored = "episodes"
    return {
        "body": _BODIES.get(experiment.model.architecture, "Transformer"),
        "kind": objective.record.title.format(read=read),
        "items": items,
        "scored": scored,
    }

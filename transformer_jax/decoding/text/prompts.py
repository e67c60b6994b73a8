"""What a model reads of a prompt before it writes, and which models continue any."""

from collections.abc import Callable

from transformer_jax.config import DecodingConfig, ObjectiveConfig
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.errors import UserError


def _continued(codec: Codec, prompt: str, objective: ObjectiveConfig) -> list[int]:
    """Return what a language model reads: where documents are lines, the beginning of one.

    Where they are files, nearly every window of the training begins in the midst of one, and so
    does a prompt: with BOS, which training hardly ever sees there, it is predicted worse.
    """
    (ids,) = codec.encode([prompt], eos=False)
    return ids if ids and objective.document == "file" else [codec.special["bos"], *ids]


def _answered(codec: Codec, prompt: str, objective: ObjectiveConfig) -> list[int]:
    """Return what a prefix language model reads: the source whole, and where a target begins."""
    return [*codec.encode([prompt])[0], codec.special["bos"]]


# What a model reads before it writes, by its objective. The last token is not yet in the cache.
PROMPTS: dict[str, Callable[[Codec, str, ObjectiveConfig], list[int]]] = {
    "language_model": _continued,
    "prefix_lm": _answered,
}


def check_prompts(objective: ObjectiveConfig, config: DecodingConfig) -> None:
    """Check that a model of this objective continues prompts, with these settings.

    Raises:
      UserError: if it does not, or a setting is one of translation.
    """
    translates = objective.kind == "translate"
    if objective.kind not in PROMPTS:
        raise UserError(
            f"config.objective.name={objective.name!r}: such a model does not continue a "
            + ("prompt; to translate with it, use translate" if translates else "prompt")
        )
    for name, off in (("rerank", "none"), ("coverage_penalty", 0.0), ("constraint", "none"),
                      ("shortlist", 0)):  # fmt: skip
        value = getattr(config, name)
        if value != off:
            raise UserError(
                f"config.decoding.{name}={value!r}: is for translations; set it to {off!r} to "
                "generate text"
            )

"""Fields of requests and rows of responses that the native protocol shares."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from transformer_jax.decoding.text.translation import Translation
from transformer_jax.server.door import seconds_for
from transformer_jax.server.model import Served
from transformer_jax.server.refusals import Refusal
from transformer_jax.server.service import Service
from transformer_jax.server.texts import Patience

Seconds = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1, le=1000)]
Number = Annotated[int, Meta(ge=0, lt=2**31)]


class Common(Struct, forbid_unknown_fields=True, kw_only=True):
    """Fields of all requests of the native protocol."""

    priority: Literal["normal", "low"] = "normal"
    timeout: Seconds | None = None

    def patience(self, service: Service, low: bool = False) -> Patience:
        """Return how long this request waits."""
        return Patience(seconds_for(self.timeout, service.settings), low or self.priority == "low")


def translating(service: Service) -> Served:
    """Return the model, if it translates.

    Raises:
      Refusal: if it does not.
    """
    if not service.model.translates:
        raise Refusal(404, "this model does not translate; see /api/model")
    return service.model


def translation_row(model: Served, found: Translation) -> dict[str, Any]:
    """Return a translation as a row of a response."""
    pieces = model.trained.tokenizers.tgt.pieces(found.ids)
    row = {"text": found.text, "score": found.score, "log_prob": found.log_prob, "pieces": pieces}
    return row if found.alignments is None else row | {"alignments": found.alignments}


def error_row(error: Refusal) -> dict[str, Any]:
    """Return an error as a row of a response."""
    return {"type": error.type, "message": error.message}


def rendered(error: Refusal) -> dict[str, Any]:
    """Return an error in this protocol's form."""
    return {"error": error_row(error)}

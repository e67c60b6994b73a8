"""Making the Translator or Transcriber of a model."""

from collections.abc import Sequence

from transformer_jax.config import DataConfig, DecodingConfig, ObjectiveConfig
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.store.lexicon import Lexicon
from transformer_jax.decoding.text.searching import Draft
from transformer_jax.decoding.text.transcribe import Transcriber
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.models.model import Model


def make_writer(
    models: Sequence[Model],
    tokenizers: TokenizerPair,
    objective: ObjectiveConfig,
    data: DataConfig,
    decoding: DecodingConfig,
    n_best: int = 1,
    warn: bool = True,
    cut: bool = False,
    draft: Draft | None = None,
    lexicon: Lexicon | None = None,
) -> Translator | Transcriber:
    """Return a Translator, or for CTC models a Transcriber. Sources longer than `data.max_length`
    are translated in parts, with a warning if `warn`; sounds are refused. If `cut`, or if
    `data.long_sources` says so, sources are truncated. `draft` and `lexicon` are those of
    Translator.

    Raises:
      UserError: see Translator and Transcriber.
    """
    if objective.record.best_path:
        return Transcriber(models, tokenizers, objective, n_best, data.max_length, cut)
    most = objective.cut_at(data)
    return Translator(
        models, tokenizers, decoding, n_best, longest=most or data.max_length, warn=warn,
        cut=cut or most is not None, draft=draft, lexicon=lexicon,
    )  # fmt: skip

"""Making the Translator or Transcriber of a model."""

from transformer_jax.config import DecodingConfig
from transformer_jax.data.store.lexicon import Lexicon
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.searching import Draft
from transformer_jax.decoding.text.transcribe import Transcriber
from transformer_jax.decoding.text.translate import Translator


def make_writer(
    loaded: Loaded,
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
    Translator. Parameters are given with each call, and may be others than those loaded.

    Raises:
      UserError: see Translator and Transcriber.
    """
    models, codecs, most = loaded.models, loaded.codecs, loaded.cut_at
    longest = loaded.data.max_length
    if loaded.objective.record.best_path:
        return Transcriber(models, codecs, loaded.objective, n_best, longest, cut)
    return Translator(
        models, codecs, decoding, n_best, longest=most or longest, warn=warn,
        cut=cut or most is not None, draft=draft, lexicon=lexicon,
    )  # fmt: skip

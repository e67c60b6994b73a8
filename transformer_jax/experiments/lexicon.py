"""The lexicon of a work directory, estimated from its model's training texts."""

from collections.abc import Callable
from pathlib import Path

from transformer_jax.base.disk import cache_dir
from transformer_jax.base.errors import UserError
from transformer_jax.data import sources
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.store import lexicon
from transformer_jax.data.store.token_store import TokenStore, open_store
from transformer_jax.runs.workdir import WorkDir


def read(workdir: WorkDir) -> tuple[TokenStore, TokenizerPair]:
    """Return the text pairs that a work directory's model was trained on, and its tokenizers.

    Raises:
      UserError: if the model does not translate text, or the data is missing.
    """
    experiment = workdir.experiment()
    name = experiment.objective.name
    if not experiment.translates_text:
        raise UserError(
            f"{workdir.path}: a shortlist needs a model that translates text, and objective.name="
            f"{name!r} with src.codec={experiment.src.codec!r} does not"
        )
    tokenizers = TokenizerPair.load(workdir.path, experiment.tokenizer.joint, experiment.codecs)
    corpus = sources.tasks(experiment.data, experiment.objective)[name]
    return open_store(corpus, tokenizers, cache_dir()), tokenizers


def write(
    workdir: WorkDir, store: TokenStore, tokenizers: TokenizerPair, progress: Callable[[int], None]
) -> Path:
    """Estimate the lexicon of pairs and save it in the work directory; return the file's path.

    Raises:
      DiskError: if writing fails.
    """
    sizes = tokenizers.sizes
    made = lexicon.estimate(store, sizes, tokenizers.digest, progress=progress)
    return made.save(workdir.path)

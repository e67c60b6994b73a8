"""The lexicon of a work directory, from the texts that its model was trained on."""

from collections.abc import Callable
from pathlib import Path

from transformer_jax.data import lexicon, sources
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.token_store import TokenStore, open_store
from transformer_jax.disk import cache_dir
from transformer_jax.errors import UserError
from transformer_jax.workdir import WorkDir


def read(workdir: WorkDir) -> tuple[TokenStore, TokenizerPair]:
    """Return the pairs of texts that a work directory's model was trained on, and its tokenizers.

    Raises:
      UserError: if it does not read texts and write others, or the data is not there.
    """
    experiment = workdir.experiment()
    name = experiment.objective.name
    if not experiment.translates_text:
        raise UserError(
            f"{workdir.path}: a shortlist is of translations of text, and objective.name={name!r} "
            f"with src.codec={experiment.src.codec!r} makes none"
        )
    tokenizers = TokenizerPair.load(workdir.path, experiment.tokenizer.joint, experiment.codecs)
    corpus = sources.tasks(experiment.data, experiment.objective)[name]
    return open_store(corpus, tokenizers, cache_dir()), tokenizers


def write(
    workdir: WorkDir, store: TokenStore, tokenizers: TokenizerPair, progress: Callable[[int], None]
) -> Path:
    """Estimate the lexicon of pairs and save it in the work directory; return the file's path.

    Raises:
      DiskError: if the disk does not take it.
    """
    sizes = tokenizers.sizes
    made = lexicon.estimate(store, sizes, tokenizers.digest, progress=progress)
    return made.save(workdir.path)

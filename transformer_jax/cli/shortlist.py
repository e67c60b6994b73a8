"""transformer-jax shortlist --workdir=DIR"""

from collections.abc import Sequence

from transformer_jax.cli.arguments import WORKDIR, Parser
from transformer_jax.runs.workdir import WorkDir


def main(argv: Sequence[str]) -> int:
    """Write the lexicon that config.decoding.shortlist takes its pieces from."""
    parser = Parser(
        "Learn from a model's training texts which target pieces go with which source pieces, by\n"
        "IBM Model 1, and write shortlist.npz into its work directory. With decoding.shortlist=N\n"
        "a translation then uses only the N likeliest pieces, which is faster."
    )
    parser.add_argument("--workdir", required=True, help=WORKDIR)
    arguments = parser.parse_args(list(argv))

    from transformer_jax.base.progress import LineProgress
    from transformer_jax.data.store.lexicon import passes
    from transformer_jax.experiments import lexicon

    workdir = WorkDir(arguments.workdir)
    store, tokenizers = lexicon.read(workdir)
    with LineProgress(passes(store)) as progress:
        path = lexicon.write(workdir, store, tokenizers, progress.reached)
    print(f"written to {path}; decode with, for example, --config.decoding.shortlist=512")
    return 0

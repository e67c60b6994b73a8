"""transformer-jax import DIRECTORY --workdir=DIR"""

from collections.abc import Sequence
from pathlib import Path

from transformer_jax.cli.arguments import Parser


def main(argv: Sequence[str]) -> int:
    """Make a work directory from a Hugging Face model, and return the exit code."""
    parser = Parser(
        "Make a work directory from the published files of a model and its tokenizer:\n"
        "BERT, GPT-2, OPT, Llama, Mistral, Mixtral, Qwen 2, 3 and Next, OLMo 2, OLMoE, Phi,\n"
        "Gemma, Cohere, GPT-NeoX, Pythia, BLOOM, StableLM, Starcoder2, Mamba, Marian, Pegasus,\n"
        "BART, mBART, T5. Score it, generate with it, or fine-tune it with\n"
        "--config.init.source=WORKDIR, or =DIRECTORY."
    )
    parser.add_argument("directory", type=Path, help="with config.json, *.safetensors and "
                        "tokenizer.json, or the older files of a tokenizer")  # fmt: skip
    parser.add_argument("--workdir", required=True, help="the new work directory")
    arguments = parser.parse_args(list(argv))

    from transformer_jax.export.huggingface.workdir import import_into

    what = import_into(arguments.directory, arguments.workdir)
    place = Path(arguments.workdir).absolute()
    print(what)
    print(f"imported into {place}; to inspect it: transformer-jax inspect --workdir={place}")
    return 0

"""The console script transformer-jax: a sub-command and its arguments."""

import importlib
from collections.abc import Sequence
from functools import partial

import transformer_jax
from transformer_jax.cli.arguments import program, run_command

COMMANDS = {
    "answer": "answer questions from the texts given with them",
    "average": "save the mean of the last checkpoints",
    "chat": "talk to a chat model",
    "classify": "predict the classes of new texts, pictures, sounds or chess positions",
    "config": "explain the fields of a config",
    "compare": "test whether one run translates better than another",
    "demo": "train a small translator, score it, and translate with it",
    "draw": "draw pictures of what texts or classes say",
    "evaluate": "score a checkpoint, as eval.py does",
    "export": "write a trained model for another engine",
    "forecast": "continue a time series beyond the end of its file",
    "generate": "continue prompts with a language model",
    "import": "make a work directory from a Hugging Face model",
    "inspect": "show the contents of a work directory",
    "pictures": "encode pictures as words for a model, and decode such words",
    "plan": "estimate the cost of a run, without training",
    "plot": "draw pictures",
    "predict": "predict whatever a model was trained for, for new input",
    "report": "write a page that shows runs or a sweep",
    "score": "print log-probabilities of given translations or texts",
    "serve": "answer requests over HTTP",
    "shortlist": "learn which target pieces go with a source, for faster decoding",
    "sweep": "train every combination of some settings, and tabulate the scores",
    "tag": "label the words of new texts",
    "teach": "write what a model predicts, for another one to learn from",
    "train": "train a model, or resume its training, as train.py does",
    "transcribe": "write down the texts of new sounds",
    "translate": "translate text line by line",
    "widths": "check whether a learning rate suits models of other sizes",
}
_PREDICT = ("answer", "classify", "forecast", "tag", "transcribe")  # predict, with the verb fixed


def dispatch(argv: Sequence[str]) -> int:
    """Run a sub-command, and return its exit code."""
    if list(argv) == ["--version"]:
        print(f"transformer-jax {transformer_jax.__version__}")
        return 0
    commands = {name: (what, partial(_run, name)) for name, what in COMMANDS.items()}
    return run_command("transformer-jax", commands, argv)


def _run(name: str, argv: Sequence[str]) -> int:
    """Import the module of a command, and of no other, and run it."""
    if name in _PREDICT:
        return importlib.import_module("transformer_jax.cli.predict").main(argv, name)
    return importlib.import_module(f"transformer_jax.cli.{name}").main(argv)


main = program(dispatch)

if __name__ == "__main__":
    main()

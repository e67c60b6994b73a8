"""Score a checkpoint: python eval.py --workdir=DIR [--checkpoint=best] [--split=test]."""

from transformer_jax.cli.evaluate import entry

if __name__ == "__main__":
    entry()

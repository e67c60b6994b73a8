"""Train: python train.py --config=configs/NAME.py [--workdir=DIR] [--config.FIELD=VALUE ...]."""

from transformer_jax.cli.train import entry

if __name__ == "__main__":
    entry()

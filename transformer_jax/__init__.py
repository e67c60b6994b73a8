"""The Transformer of "Attention Is All You Need", in JAX.

import transformer_jax
model = transformer_jax.load("runs/multi30k")
model.translate("A dog runs on the beach.")
"""

from typing import Any

__version__ = "0.1.0"  # also the newest heading of CHANGELOG.md, and in CITATION.cff
_HOMES = {
    "DecodingConfig": "config",
    "Experiment": "config",
    "TrainedEnsemble": "api",
    "TrainedModel": "api",
    "admit": "config.parts",
    "load": "api",
    "load_ensemble": "api",
    "parse": "config.convert",
    "save_average": "api",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    # Lazy, so that reading a config or tokenising text does not import jax.
    if name not in _HOMES:
        raise AttributeError(f"module 'transformer_jax' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"transformer_jax.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]

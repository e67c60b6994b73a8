"""Growth that theory predicts: Perceiver cost by text length, error by number of features.

    python benchmarks/studies/growth.py perceiver --output=results/perceiver
    python benchmarks/studies/growth.py features --output=results/features

Each writes a .json and a .svg file. Neither depends on the speed of the machine.

perceiver  reading one text of 256 to 16,384 positions and predicting all of its pieces, with an
           encoder and with a Perceiver (Jaegle et al. 2021) of 32 latents, 4 layers of width 128:
           operations in matrix products, counted from the program, and the compiler's temporary
           memory.
features   attention weights over 64 keys for 64 queries, of 32 dimensions each, from 8 to 4,096
           random features: their root mean square error against a softmax, over 20 draws, in units
           of the mean weight (1/64). If the features are right, the error falls as one over the
           square root of their number.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base import counting
from transformer_jax.base.disk import write_text
from transformer_jax.config import ModelConfig
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.build import abstract_params, build
from transformer_jax.nn.mixers.random_features import Favor, RandomFeatures
from transformer_jax.plots.picture import save

LENGTHS = [2**n for n in range(8, 15)]
COUNTS = [2**n for n in range(3, 13)]
KINDS = {"random_features": RandomFeatures, "favor": Favor}
DRAWS, TOKENS, SIZE, PIECES = 20, 64, 32, 1000


def cost(architecture: str, length: int) -> dict[str, Any]:
    """Return the cost of reading a text of this length."""
    config = ModelConfig(
        architecture=architecture, d_model=128, d_ff=256, num_heads=4, num_encoder_layers=4,
        input_norm=True, residual="pre_norm", positions="sinusoidal", max_positions=length,
        **({"num_latents": 32} if architecture == "perceiver" else {}),
    )  # fmt: skip
    model = build(config, PIECES, PIECES, single=True)
    shape = jax.ShapeDtypeStruct((1, length), jnp.int32)
    batch, params = Batch(Side(shape, shape, shape), None, {}), nn.unbox(abstract_params(model))

    def logits(params: Any, batch: Batch) -> Any:
        return model.outputs(params, batch, None)["tokens"].logits()

    products = counting.operations(counting.program(logits, params, batch)).products
    compiled = jax.jit(logits).lower(params, batch).compile()
    memory = compiled.memory_analysis().temp_size_in_bytes
    return {"model": architecture, "length": length, "operations": products, "memory": memory}


def error(kind: str, count: int, seed: int) -> float:
    """Return the error of the attention weights for one draw of features."""
    chance = np.random.default_rng(seed)
    q, k = (chance.normal(0, 0.5, (1, TOKENS, 1, SIZE)) for _ in range(2))
    config = ModelConfig(
        d_model=SIZE, num_heads=1, num_features=count, feature_seed=seed, decoder_pattern=(kind,)
    )
    mixer = KINDS[kind](config, jnp.dtype("float32"))
    params = mixer.init(jax.random.key(0), jnp.zeros((1, 2, SIZE)), method="enter")
    given = jnp.asarray(q[:, :, :, None], jnp.float32), jnp.asarray(k, jnp.float32)
    of_queries, of_keys = mixer.apply(params, *given, method="features")
    found = np.einsum("TF,SF->TS", np.asarray(of_queries)[0, :, 0, 0], np.asarray(of_keys)[0, :, 0])
    q, k = q[0, :, 0], k[0, :, 0]
    scale = SIZE**-0.5
    if kind == "random_features":  # which normalises queries and keys
        (q, k), scale = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k)), 1.0
    true = np.exp(scale * q @ k.T)
    found, true = (x / x.sum(-1, keepdims=True) for x in (found, true))
    return float(TOKENS * np.sqrt(np.mean((found - true) ** 2)))


def slope(points: list[tuple[float, float]]) -> float:
    """Return the log-log slope over the second half of the points."""
    half = points[len(points) // 2 :]
    return round(float(np.polyfit(*np.log(half).T, 1)[0]), 3)


def perceiver(output: Path) -> None:
    """Count operations and memory, and plot them."""
    rows = [cost(kind, length) for kind in ("encoder", "perceiver") for length in LENGTHS]
    finish(rows, "model", "length", ("operations", "memory"), "places of the text", output)


def features(output: Path) -> None:
    """Sample features, and plot their errors."""
    rows = [
        {"kind": kind, "features": count,
         "error": math.sqrt(np.mean([error(kind, count, seed) ** 2 for seed in range(DRAWS)]))}
        for kind in KINDS for count in COUNTS
    ]  # fmt: skip
    finish(rows, "kind", "features", ("error",), "features of a head", output)


def finish(
    rows: list[dict[str, Any]], name: str, along: str, columns: tuple[str, ...], label: str,
    output: Path,
) -> None:  # fmt: skip
    """Write the rows, their exponents and the plot."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(0.6 + 4.2 * len(columns), 3.4), layout="constrained")
    panels = figure.subplots(1, len(columns), squeeze=False)[0]
    found: dict[str, dict[str, float]] = {}
    for column, panel in zip(columns, panels, strict=True):
        for kind in dict.fromkeys(row[name] for row in rows):
            points = [(row[along], row[column]) for row in rows if row[name] == kind]
            found.setdefault(kind, {})[column] = slope(points)
            text = f"{kind}, exponent {found[kind][column]:.2f}"
            panel.loglog(*zip(*points, strict=True), marker="o", markersize=3, label=text)
        panel.set_xlabel(label)
        panel.set_title(column, loc="left", fontsize="medium")
        panel.legend(frameon=False, fontsize="small")
        panel.spines[["top", "right"]].set_visible(False)
    save(figure, output.with_suffix(".svg"))
    text = json.dumps({"rows": rows, "exponents": found}, indent=1)
    write_text(output.with_suffix(".json"), text + "\n")
    print(json.dumps(found))


def main() -> None:
    """Run one of the two measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("perceiver", "features"))
    parser.add_argument("--output", type=Path, required=True, help="without suffix")
    arguments = parser.parse_args()
    {"perceiver": perceiver, "features": features}[arguments.what](arguments.output)


if __name__ == "__main__":
    main()

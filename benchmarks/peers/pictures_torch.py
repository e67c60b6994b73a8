"""ViT of `transformers` on the pictures of configs/pictures.py: the peer of our models.

    python benchmarks/peers/pictures_torch.py --data=DIR [--variant=cifar10] [--core-minutes=39]

`ViTForImageClassification` with the sizes of the variant, which classifies from its class token. It
is trained on our batches, so that pictures are cropped and flipped as ours are: AdamW, warm-up and
cosine decay, weight decay, label smoothing and dropout of the config, float32, torch.compile, one
thread by default. The schedule has --steps steps, by default the config's; training stops after
--core-minutes of processor time, counting training alone. Every 250 steps it prints a JSON line:
minutes of wall-clock time and of processor time, including compilation, the loss, and the accuracy
on the validation split. DIR holds train.npz and validation.npz. Needs the extra `bench`.
"""

import argparse
import json
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import transformers

from transformer_jax.cli.arguments import load_config
from transformer_jax.config import Experiment
from transformer_jax.config.convert import parse
from transformer_jax.data.batches.batch import Batch
from transformer_jax.data.batches.batching import BatchSource, fixed_batches
from transformer_jax.data.codecs.patches import Patches
from transformer_jax.experiments.prepare import prepare
from transformer_jax.runs.workdir import WorkDir

CONFIG = Path(__file__).parents[2] / "configs/pictures.py"
EVERY = 250  # steps between validations


def network(experiment: Experiment, codec: Patches, classes: int) -> torch.nn.Module:
    """Return the peer, with its own initialisation."""
    config, form = experiment.model, codec.form
    return transformers.ViTForImageClassification(transformers.ViTConfig(
        image_size=form.height, patch_size=form.patch, num_channels=form.channels,
        hidden_size=config.d_model, num_hidden_layers=config.num_encoder_layers,
        num_attention_heads=config.num_heads, intermediate_size=config.d_ff, num_labels=classes,
        hidden_act="gelu", hidden_dropout_prob=config.dropout_rate,
    ))  # fmt: skip


def tensors(batch: Batch, codec: Patches) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the pictures [n C H W] of a batch, standardised, and their classes [n]."""
    assert batch.src is not None
    labels, weight = batch.targets["class"]
    there = weight[:, 0] > 0
    patches = np.asarray(batch.src.inputs)[there, 1:]
    pictures = codec.form.joined(patches).transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(pictures)), torch.from_numpy(
        labels[there, 0].astype(np.int64)
    )


def learning_rate(step: int, warmup: int, steps: int) -> float:
    """Return the fraction of the peak: linear warm-up, then half-cosine decay."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * min((step - warmup) / (steps - warmup), 1)))


@torch.no_grad()
def accuracy(model: torch.nn.Module, batches: Sequence[Batch], codec: Patches) -> float:
    """Return the accuracy in per cent."""
    model.eval()
    right = total = 0
    for batch in batches:
        pictures, labels = tensors(batch, codec)
        right += int((model(pictures).logits.argmax(-1) == labels).sum())
        total += len(labels)
    model.train()
    return 100 * right / total


def main() -> None:
    """Train until the steps are done or the time is up."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--variant", default="cifar10", choices=("mnist", "cifar10"))
    parser.add_argument("--steps", type=int, help="of the schedule; default: the config's")
    parser.add_argument("--core-minutes", type=float, default=39)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(arguments.threads)
    given = [("data.directory", arguments.data), ("seed", arguments.seed)]
    experiment = parse(load_config(f"{CONFIG}:{arguments.variant}", given))
    with tempfile.TemporaryDirectory() as empty:
        prepared = prepare(experiment, WorkDir(Path(empty)))
    codec = prepared.tokenizers.src
    assert isinstance(codec, Patches)
    train = BatchSource(prepared.train, prepared.plan, prepared.objective)
    store, data = prepared.validation_store, experiment.data
    bound = [experiment.objective.window]
    held_out = [
        prepared.objective.examples(store, placement, *shape)
        for shape, placement in fixed_batches(store, bound, data.tokens_per_batch, 1)
    ]
    model = network(experiment, codec, prepared.tokenizers.tgt.size)
    c, steps = experiment.optimizer, arguments.steps or experiment.training.steps
    optimizer = torch.optim.AdamW(
        model.parameters(), c.learning_rate, (c.b1, c.b2), weight_decay=c.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate(step, c.warmup_steps, steps)
    )
    smoothing = experiment.training.label_smoothing
    compiled = torch.compile(model)
    seconds = core_seconds = 0.0
    losses = []
    for step in range(1, steps + 1):
        began, core_began = time.perf_counter(), time.process_time()
        pictures, labels = tensors(train[step - 1], codec)
        loss = torch.nn.functional.cross_entropy(
            compiled(pictures).logits, labels, label_smoothing=smoothing
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        seconds += time.perf_counter() - began
        core_seconds += time.process_time() - core_began
        over = step == steps or core_seconds > 60 * arguments.core_minutes
        if step % EVERY == 0 or over:
            row = {
                "step": step, "minutes": round(seconds / 60, 2),
                "core_minutes": round(core_seconds / 60, 2),
                "loss": round(float(np.mean(losses)), 4),
                "accuracy": round(accuracy(model, held_out, codec), 2),
            }  # fmt: skip
            print(json.dumps(row), flush=True)
            losses.clear()
        if over:
            return


if __name__ == "__main__":
    main()

"""Optimizers and schedules against torch's, in float64."""

import pytest
from twenty_steps import CONFIGS, DECAY, GRADIENTS, RATE, START, assert_same, ours

from transformer_jax.config import OptimizerConfig
from transformer_jax.training.schedule import make_schedule

pytestmark = pytest.mark.oracle

THEIRS = {
    "adam": ("AdamW", {"betas": (0.9, 0.98), "eps": 1e-9}),
    "adafactor": ("Adafactor", {"eps": (1e-15, 1e-3)}),
}


@pytest.mark.parametrize("word", THEIRS)
def test_twenty_steps_are_torch_s(word):
    import torch

    name, fields = THEIRS[word]
    params = {name: torch.tensor(x, requires_grad=True) for name, x in START.items()}
    groups = [
        {"params": [x], "weight_decay": DECAY if name == "kernel" else 0.0}
        for name, x in params.items()
    ]
    optimizer = getattr(torch.optim, name)(groups, lr=RATE, **fields)
    for gradient in GRADIENTS:
        for key, x in params.items():
            x.grad = torch.tensor(gradient[key])
        optimizer.step()
    assert_same(ours(CONFIGS[word]), {key: x.detach().numpy() for key, x in params.items()})


def test_one_cycle_is_torch_s():
    import torch

    peak, warmup, total = 0.03, 10, 100
    config = OptimizerConfig(schedule="one_cycle", learning_rate=peak, warmup_steps=warmup)
    mine = make_schedule(config, 512, total)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, peak, total, pct_start=warmup / total, cycle_momentum=False
    )
    for step in range(total):
        (expected,) = theirs.get_last_lr()
        assert float(mine(step)) == pytest.approx(expected, rel=1e-5, abs=1e-8)
        optimizer.step()
        if step < total - 1:
            theirs.step()

"""Checkpoints outlive the code: names and shapes of parameters must not change unnoticed."""

import json

import pytest
from golden.record import HERE, NAMES, parameter_names


@pytest.mark.parametrize("config", sorted(NAMES))
def test_parameters_keep_their_names(config):
    recorded, actual = json.loads((HERE / "parameter_names.json").read_text()), parameter_names()
    assert recorded.keys() == actual.keys()
    old, new = (set(names[config].items()) for names in (recorded, actual))
    assert old == new, (
        "parameters were renamed or reshaped, so old checkpoints no longer load.\n"
        f"gone: {sorted(old - new)}\nnew: {sorted(new - old)}\n"
        "If this is intended, provide a way to load old checkpoints and record the new names:\n"
        "    cd tests && python -m golden.record names"
    )

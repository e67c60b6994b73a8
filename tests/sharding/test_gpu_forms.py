"""What GPUs compute in another form than CPUs is the same, on every mesh."""

import functools
import types

import jax
import numpy as np
import pytest
from nn import test_norm_kernel as norms
from nn import test_short as views
from sharding.test_meshes import BATCHES, EVEN, mesh_of, parts
from tiny import random_state

from transformer_jax.nn import linear, lookup, norm, norm_kernel
from transformer_jax.nn.mixers import dense, fused, short
from transformer_jax.sharding.mesh import compiler_options, place_batch
from transformer_jax.training import loss
from transformer_jax.training.step import jit_train_step, make_train_step


def step_of(sizes: tuple[int, ...], batch=BATCHES[0], **changes):
    """Return the sums and the parameters after one step."""
    model, tx, config = parts(**changes)
    mesh = mesh_of(*sizes)
    state = random_state(model, tx, mesh)
    step = jit_train_step(make_train_step(model, tx, config, 7), state, mesh)
    with jax.set_mesh(mesh):
        batch = place_batch(batch, mesh)
        compiled = step.lower(state, batch).compile({"xla_backend_optimization_level": 0})
        state, metrics = compiled(state, batch)
    return metrics, state.params


@functools.cache
def as_on_a_cpu(norms: str, even: bool):
    """Return the same of one device, in a CPU's forms."""
    return step_of((1, 1, 1), (EVEN if even else BATCHES)[0], **changed(norms))


def changed(norms: str):
    return {"head_dim": 16, "norm": norms, "attention_dropout_rate": 0.0}


@pytest.fixture
def on_gpu(monkeypatch):
    """Make the model choose a GPU's forms, of kernels too, which are interpreted."""
    for module in (dense, linear, loss):
        monkeypatch.setattr(module, "on_cpu", lambda: False)
    monkeypatch.setattr(lookup, "on_gpu", lambda: True)
    monkeypatch.setattr(norm, "runs_triton", lambda: True)
    monkeypatch.setattr(fused, "why_not_here", lambda *_: None)
    for module, name in ((norm_kernel, "gradients"), (short, "attend_on_mesh")):
        monkeypatch.setattr(module, name, functools.partial(getattr(module, name), interpret=True))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sizes", "norms"),
    [
        ((2, 2, 2), "layer_norm"),
        ((1, 1, 1), "layer_norm"),
        ((1, 1, 1), "rms_norm"),
        ((2, 2, 2), "rms_norm"),
        ((1, 2, 1, 2, 2), "rms_norm"),
    ],
)
def test_a_step_is_the_same(sizes, norms, request):
    """Products with biases, loss, tables, norms and attention, with dropout."""
    even = len(sizes) > 3  # rows whose positions are divided
    expected = as_on_a_cpu(norms, even)
    request.getfixturevalue("on_gpu")
    batch = (EVEN if even else BATCHES)[0]
    found = step_of(sizes, batch, attention="fused", **changed(norms))
    np.testing.assert_allclose(found[0].sums, expected[0].sums, rtol=1e-5)
    np.testing.assert_allclose(found[0].grad_norm, expected[0].grad_norm, rtol=1e-5)
    for (path, one), two in zip(
        jax.tree.leaves_with_path(found[1]), jax.tree.leaves(expected[1]), strict=True
    ):
        if "key" not in jax.tree_util.keystr(path):  # a key's bias has a gradient of 0: only noise
            np.testing.assert_allclose(one, two, rtol=1e-3, atol=2e-5, err_msg=str(path))


def test_each_device_attends_for_its_own_rows_and_heads():
    """On a mesh, the kernels get a share of the rows and of the heads."""
    view, given = views.view_of(6, 6, "causal"), views.heads_of(6, 6, 4, 2)
    attend = functools.partial(
        short.attend_on_mesh, mask=view.mask()[:, 0], scale=0.3, interpret=True
    )
    mesh = mesh_of(2, 2, 2)
    with jax.set_mesh(mesh):
        assert short.fits(*given)
        assert not short.fits(*(x[:3] for x in given)), "3 rows on 4 devices"
        assert not short.fits(given[0], *(x[:, :, :1] for x in given[1:])), "a head on 2 devices"
        found = views.value_and_gradients(attend, *given)
    views.agree(found, views.value_and_gradients(views.by_dense(view, 0.3), *given))


def test_devices_add_up_the_sums_of_a_norm():
    """Each goes through its own rows."""
    given = norms.given((4, 5, 16))
    kernel = functools.partial(
        norm_kernel.gradients, epsilon=norms.EPSILON, centred=True, interpret=True
    )
    with jax.set_mesh(mesh_of(2, 2, 2)):
        assert norm_kernel.fits(given[0])
        assert not norm_kernel.fits(given[0][:3]), "3 rows on 4 devices"
        found = jax.jit(kernel)(*given)
    norms.agree(found, norms.expected(*given, True))


def test_only_gpus_get_options_of_the_compiler():
    """They name kernels that others do not have; an unknown name would be an error."""
    assert compiler_options(mesh_of(1, 1, 1)) is None
    gpu = types.SimpleNamespace(devices=np.array([types.SimpleNamespace(platform="gpu")]))
    options = compiler_options(gpu)
    assert options
    assert jax.jit(lambda x: x + 1, compiler_options=options)(1) == 2

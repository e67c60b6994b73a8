"""Building a model and its parameters from a config."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from transformer_jax.config import Experiment, ModelConfig, ObjectiveConfig
from transformer_jax.config.choices.dtypes import DTYPES
from transformer_jax.config.registry import pick
from transformer_jax.data.objectives import objective_named
from transformer_jax.models.autoencoder import Autoencoder, VariationalAutoencoder
from transformer_jax.models.core import Core
from transformer_jax.models.decision_transformer import DecisionTransformer
from transformer_jax.models.decoder import Decoder
from transformer_jax.models.decomposable import DecomposableAttention
from transformer_jax.models.diffusion_transformer import DiffusionTransformer
from transformer_jax.models.dlinear import DLinear
from transformer_jax.models.elmo import Elmo
from transformer_jax.models.encoder import Encoder
from transformer_jax.models.encoder_decoder import EncoderDecoder
from transformer_jax.models.evoformer import Evoformer
from transformer_jax.models.factorised_encoder import FactorisedEncoder
from transformer_jax.models.initial_values import restarted
from transformer_jax.models.lora import Lora
from transformer_jax.models.model import Model
from transformer_jax.models.parametrization import Widths, resized, widths_in
from transformer_jax.models.perceiver import Perceiver
from transformer_jax.models.prefix_decoder import PrefixDecoder
from transformer_jax.models.recurrent import RecurrentTranslator
from transformer_jax.models.two_stream import TwoStream
from transformer_jax.nn.roles import Roles, roles_in
from transformer_jax.nn.view import Order

MODELS: dict[str, type[Core]] = {
    "encoder_decoder": EncoderDecoder,
    "decoder": Decoder,
    "two_stream": TwoStream,
    "encoder": Encoder,
    "perceiver": Perceiver,
    "factorised_encoder": FactorisedEncoder,
    "recurrent": RecurrentTranslator,
    "elmo": Elmo,
    "decomposable_attention": DecomposableAttention,
    "prefix_decoder": PrefixDecoder,
    "autoencoder": Autoencoder,
    "variational_autoencoder": VariationalAutoencoder,
    "diffusion_transformer": DiffusionTransformer,
    "decision_transformer": DecisionTransformer,
    "evoformer": Evoformer,
    "dlinear": DLinear,
}


def build(
    config: ModelConfig,
    src_vocab_size: int,
    tgt_vocab_size: int,
    dtype: Any = None,
    order: Order = "causal",
    single: bool = False,
    predicts: Sequence[str] = ("tokens",),
    lengths: tuple[int, int] | None = None,
) -> Core | Lora:
    """Return the model.

    Args:
      config: its choices and sizes.
      src_vocab_size: pieces of the source side; ignored if there is none.
      tgt_vocab_size: pieces of the target side.
      dtype: overrides the config's, for float64 comparisons.
      order: what the objective guarantees about the target side's ranks.
      single: whether every row of every batch holds one segment, from its start.
      predicts: names of the objective's predictions, for models that have a head for each.
      lengths: the lengths of both sides of every example, if the objective fixes them.
    """
    network = pick(MODELS, config.architecture, "config.model.architecture")
    dtype = jnp.dtype(dtype or DTYPES[config.compute_dtype].activations)
    model = network(
        config, src_vocab_size, tgt_vocab_size, dtype, order, single, tuple(predicts), lengths
    )
    return model if config.lora_rank is None else Lora(model)


def build_for(experiment: Experiment, src_vocab_size: int, tgt_vocab_size: int) -> Core | Lora:
    """Return the model of an experiment."""
    single = experiment.data.batching != "pack"
    sizes = src_vocab_size, tgt_vocab_size
    return build(experiment.model, *sizes, single=single, **promised(experiment.objective))


def promised(config: ObjectiveConfig) -> dict[str, Any]:
    """Return the arguments of `build` that depend on the objective."""
    objective = objective_named(config.name)
    return {"order": objective.order, "predicts": objective.predicts, "lengths": config.lengths}


def init_params(model: Model, key: jax.Array) -> Any:
    """Return fresh float32 parameters, in boxes (`flax.linen.unbox`) with axes and roles."""
    example = jax.tree.map(jnp.asarray, model.example())
    params = model.init(key, example, train=False)["params"]
    return resized(model.config, restarted(model.config, params, key))


@functools.lru_cache(maxsize=16)
def abstract_params(model: Model) -> Any:
    """Return shapes, logical axes and roles of the parameters without computing any."""
    return jax.eval_shape(lambda key: init_params(model, key), jax.random.key(0))


def roles_of(model: Model) -> Roles:
    """Return the roles of a model's parameters by name, for those that have no boxes: gradients,
    checkpoints, and what optimizers see, from which frozen parameters may be missing.
    """
    return roles_in(abstract_params(model))


def widths_of(model: Model) -> Widths | None:
    """Return what an optimizer is to know of a model's size, by its parametrization."""
    return widths_in(model.config, abstract_params(model))

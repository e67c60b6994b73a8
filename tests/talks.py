"""Conversations of letters, a template of letters, and a tiny model of them in float64."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from tiny import VARIANTS, VOCAB, random_params

from transformer_jax.config import ObjectiveConfig, TokenizerConfig
from transformer_jax.data.batches.batch import Ragged, one_per_row
from transformer_jax.data.codecs import characters
from transformer_jax.data.codecs.chat import ChatTemplate
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.conversations import Conversation
from transformer_jax.data.objectives import objective_named
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.models.build import build

CODEC = characters.train(TokenizerConfig(), ["abcdefghijklmnopqrstuvwxyz"])  # 30 pieces, as tiny's
TEMPLATE = ChatTemplate(
    "{% for m in messages %}{{ m.role[0] + m.content + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}a{% endif %}"
)
MODEL = dataclasses.replace(
    VARIANTS["decoder"], positions="learned", max_positions=64, dropout_rate=0.0
)


@functools.cache
def parts(predicts=("tokens",)):
    """Return the model and its parameters, in float64."""
    config = dataclasses.replace(MODEL, pooling="last")
    model = build(config, VOCAB, VOCAB, predicts=predicts, dtype="float64")
    params = random_params(model)
    return model, jax.tree.map(lambda x: np.asarray(x, np.float64), params)


def loaded(objective="prefer", predicts=("tokens",), **fields) -> Loaded:
    """Return it with the template, for an objective."""
    config = ObjectiveConfig(name=objective, window=20, **fields)
    return Loaded(*parts(predicts), TokenizerPair(CODEC, CODEC, TEMPLATE), config)


def talk(prompt: str, answer: str) -> Conversation:
    """Return a message and its answer."""
    roles = zip(("user", "assistant"), (prompt, answer), strict=True)
    return Conversation([{"role": role, "content": text} for role, text in roles])


def each_log_prob(conversation: Conversation, params=None) -> jax.Array:
    """Return the log-probability of each piece of the answer, from the logits of the conversation
    alone.
    """
    _, ours = parts()
    (ids,) = TEMPLATE.encoded(CODEC, [conversation])
    plain = np.array([~i if i < 0 else i for i in ids])
    said = np.array([i < 0 for i in ids])
    side = objective_named("language_model").examples(
        TokenStore(Ragged.from_lists([[]]), Ragged(plain, np.array([0]), np.array([len(ids) - 1]))),
        one_per_row(np.array([0])), 1, 0, len(ids) - 1,
    )  # fmt: skip
    side = jax.tree.map(jnp.asarray, side)
    each = _log_probs(ours if params is None else params, side, jnp.asarray(plain[1:]))
    return each[np.flatnonzero(said[1:])]


@jax.jit
def _log_probs(params, side, pieces) -> jax.Array:
    output = parts()[0].outputs(params, side, None)["tokens"]
    each = jax.nn.log_softmax(output.logits()[0].astype(jnp.float64))
    return jnp.take_along_axis(each, pieces[:, None], 1)[:, 0]

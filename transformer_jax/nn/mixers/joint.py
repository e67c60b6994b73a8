"""Attention over a text and a picture in one sequence, each with its own maps (MM-DiT: Esser et al.
2024, arXiv:2403.03206, section 4).
"""

import math
from dataclasses import replace

import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float
from transformer_jax.config import ModelConfig
from transformer_jax.nn.linear import project_together
from transformer_jax.nn.mixers.attention import Attention, keys_values
from transformer_jax.nn.mixers.heads import Heads, heads_first, normal
from transformer_jax.nn.view import View


def apart(
    config: ModelConfig, x: Float[Array, "B L *D"]
) -> tuple[Float[Array, "B T *D"], Float[Array, "B S *D"]]:
    """Return the text and the picture of a sequence, which ends with the patches of the picture."""
    first = x.shape[1] - math.prod(config.grid)
    return x[:, :first], x[:, first:]


class JointAttention(Attention):
    """One softmax over the positions of both; each has its own maps to queries, keys and values,
    norms of these, and map of what it gathers.
    """

    gates = False

    def setup(self) -> None:
        super().setup()
        self.text = Heads(self.config, self.dtype)

    def mix(
        self, x: Float[Array, "B L D"], view: View, train: bool
    ) -> tuple[Float[Array, "B L D"], Float[Array, "B N L L"] | None]:
        """See Mixer."""
        text, picture = apart(self.config, x)
        both = zip(
            self.text.queries_keys_values(text), self.queries_keys_values(picture), strict=True
        )
        q, k, v = (jnp.concatenate(pair, axis=1) for pair in both)
        mixed, weights = self._mixed(heads_first(q), keys_values(k, v), view, train)
        of_text, of_picture = apart(self.config, mixed.swapaxes(1, 2))
        each = self.text.output(of_text), self.output(of_picture)
        return jnp.concatenate(each, axis=1), weights


class LastJointAttention(JointAttention):
    """The same for the last layer, where the text is read by the picture, and not changed: it has
    keys and values alone.
    """

    def mix(
        self, x: Float[Array, "B L D"], view: View, train: bool
    ) -> tuple[Float[Array, "B L D"], Float[Array, "B N S L"] | None]:
        """See Mixer: what the text gathers is zero."""
        text, picture = apart(self.config, x)
        k, v = project_together(text, [self.text.key, self.text.value])
        q, *own = self.queries_keys_values(picture)
        both = zip((normal(self.text.key_norm, k), v), own, strict=True)
        k, v = (jnp.concatenate(pair, axis=1) for pair in both)
        first = text.shape[1]
        view = replace(view, q_pos=view.q_pos[:, first:], q_seg=view.q_seg[:, first:])
        mixed, weights = self._mixed(heads_first(q), keys_values(k, v), view, train)
        gathered = self.output(mixed.swapaxes(1, 2))
        return jnp.concatenate([jnp.zeros_like(text), gathered], axis=1), weights


WORDS = {"joint": JointAttention, "joint_last": LastJointAttention}

"""The table of mixers by their name in `encoder_pattern` or `decoder_pattern`."""

import flax.linen as nn

from transformer_jax.nn.mixers.attention import Attention
from transformer_jax.nn.mixers.attention_free import AftConv, AftFull, AftLocal, AftSimple
from transformer_jax.nn.mixers.block_sparse import BlockSparse
from transformer_jax.nn.mixers.latent import LatentAttention
from transformer_jax.nn.mixers.linear_attention import DeltaRule, LinearAttention
from transformer_jax.nn.mixers.local import DilatedAttention, LocalAttention
from transformer_jax.nn.mixers.longformer import Longformer
from transformer_jax.nn.mixers.lsh import Lsh
from transformer_jax.nn.mixers.random_features import Favor, GatedRandomFeatures, RandomFeatures
from transformer_jax.nn.mixers.recurrent import BiElman, BiGru, BiLstm, Gru, Lstm, Recurrent
from transformer_jax.nn.mixers.ssru import Ssru

MIXERS: dict[str, type[nn.Module]] = {
    "full": Attention,
    "latent": LatentAttention,
    "local": LocalAttention,
    "dilated": DilatedAttention,
    "longformer": Longformer,
    "bigbird": BlockSparse,
    "lsh": Lsh,
    "linear": LinearAttention,
    "delta_rule": DeltaRule,
    "random_features": RandomFeatures,
    "gated_random_features": GatedRandomFeatures,
    "favor": Favor,
    "aft_full": AftFull,
    "aft_local": AftLocal,
    "aft_conv": AftConv,
    "aft_simple": AftSimple,
    "ssru": Ssru,
    "elman": Recurrent,
    "lstm": Lstm,
    "gru": Gru,
    "bielman": BiElman,
    "bilstm": BiLstm,
    "bigru": BiGru,
    "conformer": Attention,  # one of its parts: see `models.layers`
}

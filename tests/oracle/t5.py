"""T5 of `transformers`, in float64 throughout. It calls none of our code."""

import torch
import transformers
from oracle.decoders import Peer
from oracle.weights import T5 as WORDS
from oracle.weights import T5_GATED

from transformer_jax.config import ModelConfig


class T5(Peer):
    """T5 1.0, unmodified."""

    words = WORDS

    def build(self, c: ModelConfig, vocab_size: int) -> torch.nn.Module:
        """See Peer."""
        gated = c.activation == "geglu_tanh"
        return transformers.T5ForConditionalGeneration(transformers.T5Config(
            vocab_size=vocab_size, d_model=c.d_model, d_kv=c.key_size, d_ff=c.d_ff,
            num_layers=c.num_encoder_layers, num_decoder_layers=c.num_decoder_layers,
            num_heads=c.num_heads, relative_attention_num_buckets=c.relative_buckets,
            relative_attention_max_distance=c.relative_max_distance, dropout_rate=0.0,
            layer_norm_epsilon=c.norm_epsilon,
            feed_forward_proj="gated-gelu" if gated else c.activation,
            tie_word_embeddings=True,
        ))  # fmt: skip

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.model(
            input_ids=batch["src_ids"], attention_mask=batch["src_seg"] > 0,
            decoder_input_ids=batch["tgt_in"], use_cache=False,
        ).logits  # fmt: skip


class Gated(T5):
    """T5 with the feed-forward layers of T5 1.1."""

    words = T5_GATED


PEERS = {"t5": T5, "t5, gated": Gated}

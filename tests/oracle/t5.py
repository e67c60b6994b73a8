"""T5 of `transformers`, in float64 throughout. Nothing here calls ours."""

import math

import torch
import transformers
from oracle.decoders import Peer
from oracle.weights import T5 as WORDS

from transformer_jax.config import ModelConfig


class T5(Peer):
    """T5 with all our biases and our scale of scores, which its own weights are to make up for."""

    words = WORDS

    def build(self, c: ModelConfig, vocab_size: int) -> torch.nn.Module:
        """See Peer."""
        model = transformers.T5ForConditionalGeneration(transformers.T5Config(
            vocab_size=vocab_size, d_model=c.d_model, d_kv=c.key_size, d_ff=c.d_ff,
            num_layers=c.num_encoder_layers, num_decoder_layers=c.num_decoder_layers,
            num_heads=c.num_heads, relative_attention_num_buckets=c.relative_buckets,
            relative_attention_max_distance=c.relative_max_distance, dropout_rate=0.0,
            layer_norm_epsilon=c.norm_epsilon, feed_forward_proj=c.activation,
            tie_word_embeddings=False,  # they are tied; but the logits keep their scale
        ))  # fmt: skip
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.Linear) and name != "lm_head":
                module.bias = torch.nn.Parameter(torch.zeros(module.out_features))
            if name.endswith("Attention.q"):
                module.register_forward_hook(lambda _, args, q: q * c.key_size**-0.5)
        return model

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        embed, scale = self.model.get_input_embeddings(), math.sqrt(self.config.d_model)
        return self.model(
            inputs_embeds=embed(batch["src_ids"]) * scale, attention_mask=batch["src_seg"] > 0,
            decoder_inputs_embeds=embed(batch["tgt_in"]) * scale, use_cache=False,
        ).logits  # fmt: skip


PEERS = {"t5": T5}

"""The mapping from torch's tensors to our leaves. NumPy only: recorded tensors need no torch."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict

# Our path, such as encoder/layer_0/self_attention_residual/norm/scale, is translated word by word
# and joined with dots. "side/word" takes precedence over "word"; unlisted words stay as they are.
ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
LEAVES = {"kernel": "weight", "scale": "weight", "table": "weight"}
COMMON = ATTENTION | LEAVES | {"self_attention": "self_attn", "feed_forward": "", "norm": ""}

TRANSFORMERS = COMMON | {  # MarianMTModel, PegasusForConditionalGeneration
    "embedding": "model.shared",
    "encoder": "model.encoder",
    "decoder": "model.decoder",
    "cross_attention": "encoder_attn",
    "self_attention_residual": "self_attn_layer_norm",
    "cross_attention_residual": "encoder_attn_layer_norm",
    "feed_forward_residual": "final_layer_norm",
    "up": "fc1",
    "down": "fc2",
    "final_norm": "layer_norm",
}
TORCH_NN = COMMON | {  # torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer
    "cross_attention": "multihead_attn",
    "self_attention_residual": "norm1",
    "cross_attention_residual": "norm2",
    "encoder/feed_forward_residual": "norm2",
    "decoder/feed_forward_residual": "norm3",
    "up": "linear1",
    "down": "linear2",
    "final_norm": "norm",
}

LLAMA = COMMON | {
    "embedding": "model.embed_tokens",
    "output/output": "lm_head",  # the table; in layers, the output map of attention
    "decoder": "model",
    "output": "o_proj",
    "self_attention_residual": "input_layernorm",
    "feed_forward_residual": "post_attention_layernorm",
    "feed_forward": "mlp",
    "gate": "gate_proj",
    "up": "up_proj",
    "down": "down_proj",
    "final_norm": "norm",
}
QWEN3 = LLAMA | {"query_norm": "q_norm", "key_norm": "k_norm"}
DEEPSEEK = LLAMA | {
    "query_latent": "q_a_proj",
    "query_latent_norm": "q_a_layernorm",
    "latent_norm": "kv_a_layernorm",
}
EXPERTS = {"router": "gate", "load_bias": "e_score_correction_bias", "shared": "shared_experts"}
OLMO2 = LLAMA | {
    "self_attention_residual": "post_attention_layernorm",
    "feed_forward_residual": "post_feedforward_layernorm",
}
GEMMA2 = LLAMA | {"feed_forward_residual": "pre_feedforward_layernorm"}
GPT_NEOX = LLAMA | {
    "embedding": "gpt_neox.embed_in",
    "decoder": "gpt_neox",
    "self_attention": "attention",
    "output": "dense",
    "up": "dense_h_to_4h",
    "down": "dense_4h_to_h",
    "final_norm": "final_layer_norm",
}
BLOOM = GPT_NEOX | {
    "embedding": "transformer.word_embeddings",
    "input_norm": "transformer.word_embeddings_layernorm",
    "decoder": "transformer",
    "layers": "h",
    "self_attention": "self_attention",
    "final_norm": "ln_f",
}
GPT2 = BLOOM | {
    "embedding": "transformer.wte",
    "positions": "transformer.wpe",
    "self_attention": "attn",
    "output": "c_proj",
    "self_attention_residual": "ln_1",
    "feed_forward_residual": "ln_2",
    "up": "c_fc",
    "down": "c_proj",
}
T5 = LEAVES | {
    "embedding": "shared",
    "layers": "block",
    "query": "q",
    "key": "k",
    "value": "v",
    "output": "o",
    "self_attention": "layer.0.SelfAttention",
    "cross_attention": "layer.1.EncDecAttention",
    "encoder/feed_forward": "layer.1.DenseReluDense",
    "decoder/feed_forward": "layer.2.DenseReluDense",
    "self_attention_residual": "layer.0",
    "cross_attention_residual": "layer.1",
    "encoder/feed_forward_residual": "layer.1",
    "decoder/feed_forward_residual": "layer.2",
    "norm": "layer_norm",
    "final_norm": "final_layer_norm",
    "up": "wi",
    "down": "wo",
    "relative_positions": "block.0.layer.0.SelfAttention.relative_attention_bias",
}
T5_GATED = T5 | {"gate": "wi_0", "up": "wi_1"}

XLNET = LLAMA | {
    "embedding": "model.transformer.word_embedding",
    "decoder": "model.transformer",
    "layers": "layer",
    "self_attention": "rel_attn",
    "self_attention_residual": "rel_attn.layer_norm",
    "feed_forward_residual": "ff.layer_norm",
    "feed_forward": "ff",
    "up": "layer_1",
    "down": "layer_2",
}


BERT = COMMON | {
    "embedding": "bert.embeddings.word_embeddings",
    "positions": "bert.embeddings.position_embeddings",
    "kinds": "bert.embeddings.token_type_embeddings",
    "input_norm": "bert.embeddings.LayerNorm",
    "encoder": "bert.encoder",
    "layers": "layer",
    "self_attention": "attention",
    "query": "self.query",
    "key": "self.key",
    "value": "self.value",
    "output": "output.dense",
    "self_attention_residual": "attention.output",
    "feed_forward_residual": "output",
    "norm": "LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "piece_head": "cls.predictions",
    "piece_head/dense": "transform.dense",
    "piece_head/norm": "transform.LayerNorm",
    "pooler": "bert.pooler.dense",
    "class_head": "classifier",
    "tags_head": "classifier",
    "value_head": "classifier",
    "span_head": "qa_outputs",
    "next_sentence_head": "cls.seq_relationship",
}

LONGFORMER = BERT | {
    "embedding": "longformer.embeddings.word_embeddings",
    "positions": "longformer.embeddings.position_embeddings",
    "kinds": "longformer.embeddings.token_type_embeddings",
    "input_norm": "longformer.embeddings.LayerNorm",
    "encoder": "longformer.encoder",
    "global_query": "self.query_global",
    "global_key": "self.key_global",
    "global_value": "self.value_global",
    "piece_head": "lm_head",
    "piece_head/dense": "dense",
    "piece_head/norm": "layer_norm",
}


def torch_name(path: str, words: Mapping[str, str]) -> str:
    """Translate the path of one of our leaves."""
    side, *_ = parts = path.replace("layer_", "layers/").split("/")
    translated = (words.get(f"{side}/{part}", words.get(part, part)) for part in parts)
    return ".".join(filter(None, translated))


def from_torch(
    tensors: Mapping[str, np.ndarray], shapes: Any, words: Mapping[str, str]
) -> dict[str, np.ndarray]:
    """Return {our path: array}, for weights or their gradients.

    `shapes` is the tree of `abstract_params`. Each of its leaves must have a tensor, and no tensor
    may be left over, so that no comparison is partial.
    """
    left, ours = _split_joint(tensors), {}
    for path, leaf in flatten_dict(shapes, sep="/").items():
        tensor = left.pop(torch_name(path, words))
        # torch keeps matrices [out in]; our kernels are [in... out...] with heads unfolded.
        ours[path] = (tensor.T if path.endswith("kernel") else tensor).reshape(leaf.shape)
    assert not left, f"tensors that are none of our leaves: {sorted(left)}"
    return ours


def _split_joint(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Split torch.nn's joint in_proj of q, k and v into the three that other models have."""
    apart = {}
    for name, tensor in tensors.items():
        if "in_proj_" in name:
            for letter, part in zip("qkv", np.split(tensor, 3), strict=True):
                apart[name.replace("in_proj_", f"{letter}_proj.")] = part
        else:
            apart[name] = tensor
    return apart

"""Decoder-only models of `transformers`, in float64 throughout. They call none of our code."""

import math
import types

import numpy as np
import torch
import transformers
from oracle.weights import BLOOM, DEEPSEEK, EXPERTS, GEMMA2, GPT2, GPT_NEOX, LLAMA, OLMO2, QWEN3
from transformers import modeling_rope_utils
from transformers.models.bloom import modeling_bloom
from transformers.models.cohere import modeling_cohere
from transformers.models.deepseek_v3 import modeling_deepseek_v3
from transformers.models.esm import modeling_esm
from transformers.models.gemma import modeling_gemma
from transformers.models.gemma2 import modeling_gemma2
from transformers.models.gemma3 import modeling_gemma3
from transformers.models.gpt2 import modeling_gpt2
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.llama import modeling_llama
from transformers.models.longformer import modeling_longformer
from transformers.models.mamba import modeling_mamba
from transformers.models.mamba2 import modeling_mamba2
from transformers.models.mistral import modeling_mistral
from transformers.models.mixtral import modeling_mixtral
from transformers.models.nemotron import modeling_nemotron
from transformers.models.olmo2 import modeling_olmo2
from transformers.models.olmoe import modeling_olmoe
from transformers.models.phi import modeling_phi
from transformers.models.phi3 import modeling_phi3
from transformers.models.qwen2 import modeling_qwen2
from transformers.models.qwen3 import modeling_qwen3
from transformers.models.qwen3_moe import modeling_qwen3_moe
from transformers.models.qwen3_next import modeling_qwen3_next
from transformers.models.stablelm import modeling_stablelm
from transformers.models.starcoder2 import modeling_starcoder2
from transformers.models.t5 import modeling_t5

from transformer_jax.config import ModelConfig

# Names of activations in `transformers`.
ACTIVATIONS = {
    "gelu": "gelu", "gelu_tanh": "gelu_new", "relu_squared": "relu2", "silu": "silu",
    "mish": "mish", "swiglu": "silu", "reglu": "relu", "geglu": "gelu",
    "geglu_tanh": "gelu_pytorch_tanh",
}  # fmt: skip
MODULES = (
    modeling_bloom, modeling_cohere, modeling_deepseek_v3, modeling_esm, modeling_gemma,
    modeling_gemma2, modeling_gemma3, modeling_gpt2, modeling_gpt_neox, modeling_llama,
    modeling_longformer, modeling_mamba, modeling_mamba2, modeling_mistral, modeling_mixtral,
    modeling_nemotron, modeling_olmo2, modeling_olmoe, modeling_phi, modeling_phi3,
    modeling_qwen2, modeling_qwen3, modeling_qwen3_moe,
    modeling_qwen3_next, modeling_rope_utils, modeling_stablelm,
    modeling_starcoder2, modeling_t5,
)  # fmt: skip


class Wide(types.ModuleType):
    """A torch whose float32 is float64: models request float32 for norms, softmax and tables."""

    def __getattr__(self, name):
        return torch.float64 if name in ("float32", "float") else getattr(torch, name)


def widen(monkeypatch) -> None:
    """Make models compute in float64; call it before building them, when they compute tables."""
    for module in MODULES:
        monkeypatch.setattr(module, "torch", Wide("torch"))
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)  # as Mixtral's router has it


class Peer(torch.nn.Module):
    """A causal language model; `words` translates our paths to its names."""

    words: dict[str, str]

    def __init__(self, c: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = c
        self.model = self.build(c, vocab_size).eval()

    def build(self, c: ModelConfig, vocab_size: int) -> torch.nn.Module:
        """Return the model of `transformers`."""
        raise NotImplementedError

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        # Their models do not scale embeddings; ours do, except in the output projection.
        x = self.model.get_input_embeddings()(batch["tgt_in"]) * math.sqrt(self.config.d_model)
        return self.model(inputs_embeds=x, use_cache=False, **self.order(batch)).logits

    def order(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return positions and the mask, True where a query may attend.

        A key is visible from its own position on, or from everywhere if it belongs to a prefix,
        whose ranks are 0. Padding attends everywhere, since a softmax over nothing is NaN.
        """
        seg = batch["tgt_seg"]
        seen = torch.ones(seg.shape[1], seg.shape[1], dtype=torch.bool).tril()[None]
        if "tgt_rank" in batch:
            seen = seen | (batch["tgt_rank"] == 0)[:, None, :]
        seen = seen & (seg[:, :, None] == seg[:, None, :]) | (seg == 0)[:, :, None]
        return {"attention_mask": seen[:, None], "position_ids": batch["tgt_pos"]}

    def tensors(self) -> dict[str, torch.nn.Parameter]:
        """Return the trainable parameters by name; tied tables once."""
        return dict(self.model.named_parameters())

    def apart(self, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the tensors with q, k and v separate and matrices as [out in]."""
        return tensors


def _sizes(c: ModelConfig) -> dict:
    return {
        "hidden_size": c.d_model, "num_hidden_layers": c.num_decoder_layers,
        "num_attention_heads": c.num_heads, "intermediate_size": c.d_ff,
        "max_position_embeddings": c.max_positions, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2, "tie_word_embeddings": c.tied_embeddings != "none",
        "attn_implementation": "sdpa",
    }  # fmt: skip


class Llama(Peer):
    """Llama, with all biases or none. Interleaved rotary channels are its halves, permuted."""

    words = LLAMA
    kind: tuple = (transformers.LlamaForCausalLM, transformers.LlamaConfig)

    def build(self, c: ModelConfig, vocab_size: int) -> torch.nn.Module:
        """See Peer."""
        model, settings = self.kind
        rope = {
            "rope_type": "default", "rope_theta": c.rope_theta,
            "partial_rotary_factor": c.rope_fraction,
        }  # fmt: skip
        if c.rope_scaling != "none":
            rope |= {"rope_type": c.rope_scaling, "factor": c.rope_factor}
        if c.rope_scaling in ("llama3", "yarn"):
            rope["original_max_position_embeddings"] = c.rope_length
        if c.rope_scaling == "llama3":
            rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
        return model(settings(
            vocab_size=vocab_size, num_key_value_heads=c.num_kv_heads, head_dim=c.key_size,
            rms_norm_eps=c.norm_epsilon, rope_parameters=rope,
            hidden_act=ACTIVATIONS[c.activation], attention_bias="output" in c.biases,
            mlp_bias="feed_forward" in c.biases, **_sizes(c),
        ))  # fmt: skip

    def apart(self, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See Peer."""
        if self.config.relative_positions == "rope":
            return tensors
        size = self.config.d_model // self.config.num_heads
        order = np.arange(size).reshape(2, -1).T.reshape(-1)  # 0, size/2, 1, size/2 + 1, ...
        turned = {
            name: tensor.reshape(-1, size, *tensor.shape[1:])[:, order].reshape(tensor.shape)
            for name, tensor in tensors.items()
            if "q_proj" in name or "k_proj" in name
        }
        return tensors | turned


class LlamaOfClasses(Llama):
    """Llama for classification, one text per row. Their head has no bias; ours does."""

    words = LLAMA | {"class_head": "score"}
    kind = (transformers.LlamaForSequenceClassification, transformers.LlamaConfig)

    def build(self, c: ModelConfig, vocab_size: int) -> torch.nn.Module:
        """See Peer."""
        model = super().build(c, vocab_size)
        model.num_labels = vocab_size
        model.score = torch.nn.Linear(c.d_model, vocab_size)
        return model

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.model(
            input_ids=batch["src_ids"], attention_mask=batch["src_seg"] > 0, use_cache=False
        ).logits[:, None]


def _of_experts(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the tensors with those of experts apart, as [experts in out]."""
    found = {}
    for name, tensor in tensors.items():
        parts = {".experts.gate_up_proj": ("gate_proj", "up_proj"),
                 ".experts.down_proj": ("down_proj",)}  # fmt: skip
        for ending, maps in parts.items():
            if name.endswith(ending):
                each = np.split(tensor.swapaxes(1, 2), len(maps), axis=2)
                named = zip(maps, each, strict=True)
                found |= {f"{name.removesuffix(ending)}.{map_}.kernels": x for map_, x in named}
                break
        else:
            found[name] = tensor
    return found


class Mixtral(Llama):
    """Mixtral. Its router has no bias by which experts are balanced; ours is 0."""

    words = LLAMA | EXPERTS

    def build(self, c: ModelConfig, vocab_size: int) -> torch.nn.Module:
        """See Peer."""
        return transformers.MixtralForCausalLM(transformers.MixtralConfig(
            vocab_size=vocab_size, num_key_value_heads=c.num_kv_heads, rms_norm_eps=c.norm_epsilon,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta}, hidden_act="silu",
            num_local_experts=c.num_experts, num_experts_per_tok=c.experts_per_token,
            experts_implementation="eager", **_sizes(c),
        ))  # fmt: skip

    def apart(self, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See Peer."""
        found = _of_experts(tensors)
        for number in range(self.config.num_decoder_layers):
            name = f"model.layers.{number}.mlp.gate.e_score_correction_bias"
            found[name] = np.zeros(self.config.num_experts)
        return found


class DeepseekV3(Peer):
    """DeepSeek-V3, with experts after its first layers. It rotates the last channels of a head,
    ours the first.
    """

    words = DEEPSEEK | EXPERTS

    def build(self, c: ModelConfig, vocab_size: int) -> torch.nn.Module:
        """See Peer."""
        kinds = c.feed_forward_pattern * c.num_decoder_layers
        dense = kinds[: c.num_decoder_layers].count("dense")  # they come first
        model = transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(
            vocab_size=vocab_size, rms_norm_eps=c.norm_epsilon, hidden_act="silu",
            first_k_dense_replace=dense, moe_intermediate_size=c.d_ff,
            n_routed_experts=c.num_experts, num_experts_per_tok=c.experts_per_token,
            n_shared_experts=c.shared_experts, norm_topk_prob=c.normalize_expert_weights,
            n_group=1, topk_group=1, routed_scaling_factor=1.0, experts_implementation="eager",
            kv_lora_rank=c.latent_size,
            q_lora_rank=c.query_latent_size, qk_rope_head_dim=c.rotated_channels,
            qk_nope_head_dim=c.key_size - c.rotated_channels, v_head_dim=c.value_size,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta},
            rope_interleave=c.relative_positions == "rope_interleaved", **_sizes(c),
        ))  # fmt: skip
        for layer in model.model.layers[dense:]:  # a parameter, so that it is randomised
            bias = torch.nn.Parameter(layer.mlp.gate.e_score_correction_bias.clone())
            layer.mlp.gate.e_score_correction_bias = None
            layer.mlp.gate.e_score_correction_bias = bias
        return model

    def apart(self, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See Peer."""
        c, found = self.config, {}
        for name, tensor in _of_experts(tensors).items():
            if "kv_a_proj_with_mqa" in name:
                parts = np.split(tensor, [c.latent_size])
                named = zip(("latent", "turned_key"), parts, strict=True)
                found |= {name.replace("kv_a_proj_with_mqa", part): x for part, x in named}
            elif "kv_b_proj" in name:
                heads = tensor.reshape(c.num_heads, -1, c.latent_size)
                parts = np.split(heads, [c.key_size - c.rotated_channels], axis=1)
                named = zip(("k_proj", "v_proj"), parts, strict=True)
                found |= {
                    name.replace("kv_b_proj", part): x.reshape(-1, c.latent_size)
                    for part, x in named
                }
            elif "q_proj" in name or "q_b_proj" in name:
                heads = tensor.reshape(c.num_heads, c.key_size, -1)
                turned = np.roll(heads, c.rotated_channels, axis=1).reshape(tensor.shape)
                found[name.replace("q_b_proj", "q_proj")] = turned
            else:
                found[name] = tensor
        return found


class Qwen2(Llama):
    """Qwen2, with biases for queries, keys and values."""

    kind = (transformers.Qwen2ForCausalLM, transformers.Qwen2Config)


class Qwen3(Llama):
    """Qwen3, with queries and keys normalised per head, and heads of any size."""

    words = QWEN3
    kind = (transformers.Qwen3ForCausalLM, transformers.Qwen3Config)


class Nemotron(Llama):
    """Nemotron, with squared ReLU. Its norms add 1 to their scales; torch's do not."""

    kind = (transformers.NemotronForCausalLM, transformers.NemotronConfig)

    def build(self, c: ModelConfig, vocab_size: int) -> torch.nn.Module:
        """See Peer."""
        model = super().build(c, vocab_size)
        model.model.norm = torch.nn.LayerNorm(c.d_model, c.norm_epsilon)
        for layer in model.model.layers:
            layer.input_layernorm = torch.nn.LayerNorm(c.d_model, c.norm_epsilon)
            layer.post_attention_layernorm = torch.nn.LayerNorm(c.d_model, c.norm_epsilon)
        return model


class Olmo2T5(Llama):
    """Llama with OLMo 2's attention, normalised over all heads, and T5 1.1's feed-forward layers.

    OLMo 2 itself normalises the outputs of sub-layers.
    """

    words = QWEN3 | {"gate": "wi_0", "up": "wi_1", "down": "wo"}

    def build(self, c: ModelConfig, vocab_size: int) -> torch.nn.Module:
        """See Peer."""
        model = super().build(c, vocab_size)
        t5 = transformers.T5Config(
            d_model=c.d_model, d_ff=c.d_ff, feed_forward_proj="gated-gelu", dropout_rate=0.0
        )
        for number, layer in enumerate(model.model.layers):
            layer.self_attn = modeling_olmo2.Olmo2Attention(model.config, number)
            layer.mlp = modeling_t5.T5DenseGatedActDense(t5)
        return model


class Olmo2(Peer):
    """OLMo 2, which normalises the outputs of sub-layers, without its query and key norms."""

    words = OLMO2

    def build(self, c: ModelConfig, vocab_size: int) -> torch.nn.Module:
        """See Peer."""
        model = transformers.Olmo2ForCausalLM(transformers.Olmo2Config(
            vocab_size=vocab_size, num_key_value_heads=c.num_kv_heads, rms_norm_eps=c.norm_epsilon,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta}, hidden_act="silu",
            attention_bias=True, **_sizes(c),
        ))  # fmt: skip
        for layer in model.model.layers:
            layer.self_attn.q_norm = layer.self_attn.k_norm = torch.nn.Identity()
        return _with_biases(model)


class Gemma2(Peer):
    """Gemma 2, with a norm before and after each sub-layer, without its caps on scores.

    Its norms add 1 to their weights, so torch's replace them.
    """

    words = GEMMA2

    def build(self, c: ModelConfig, vocab_size: int) -> torch.nn.Module:
        """See Peer."""
        head_dim = c.d_model // c.num_heads
        model = transformers.Gemma2ForCausalLM(transformers.Gemma2Config(
            vocab_size=vocab_size, num_key_value_heads=c.num_kv_heads, rms_norm_eps=c.norm_epsilon,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta},
            hidden_activation="silu", attention_bias=True, head_dim=head_dim,
            query_pre_attn_scalar=head_dim, attn_logit_softcapping=None,
            final_logit_softcapping=None, layer_types=["full_attention"] * c.num_decoder_layers,
            **_sizes(c) | {"attn_implementation": "eager"},
        ))  # fmt: skip
        model.model.embed_tokens.embed_scale.fill_(1)
        for module in [model.model, *model.model.layers]:
            for name, part in list(module.named_children()):
                if isinstance(part, modeling_gemma2.Gemma2RMSNorm):
                    setattr(module, name, torch.nn.RMSNorm(c.d_model, c.norm_epsilon))
        return _with_biases(model)

    def order(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """See Peer; the mask is added to scores."""
        found = super().order(batch)
        seen = found["attention_mask"]
        mask = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, -torch.inf)
        return found | {"attention_mask": mask}

    def apart(self, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See Peer."""
        pairs = {"post_attention": "input", "post_feedforward": "pre_feedforward"}
        for second, first in pairs.items():
            old, new = f"{second}_layernorm", f"{first}_layernorm.output_norm"
            tensors = {name.replace(old, new): tensor for name, tensor in tensors.items()}
        return tensors


def _with_biases(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model with biases in its feed-forward layers, as ours has."""
    for layer in model.model.layers:
        for name in ("gate_proj", "up_proj", "down_proj"):
            old = getattr(layer.mlp, name)
            setattr(layer.mlp, name, torch.nn.Linear(old.in_features, old.out_features))
    return model


class GPTNeoX(Peer):
    """GPT-NeoX, with sequential sub-layers too."""

    words = GPT_NEOX

    def build(self, c: ModelConfig, vocab_size: int) -> torch.nn.Module:
        """See Peer."""
        rope = {
            "rope_type": "default", "rope_theta": c.rope_theta,
            "partial_rotary_factor": c.rope_fraction,
        }  # fmt: skip
        return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(
            vocab_size=vocab_size, use_parallel_residual=c.residual == "parallel_norms",
            hidden_act=c.activation,
            layer_norm_eps=c.norm_epsilon, rope_parameters=rope, **_sizes(c),
        ))  # fmt: skip

    def apart(self, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See Peer; theirs stores q, k and v head by head."""
        found = {}
        for name, tensor in tensors.items():
            if "query_key_value" in name:
                heads = tensor.reshape(self.config.num_heads, 3, -1, *tensor.shape[1:])
                for i, letter in enumerate("qkv"):
                    part = heads[:, i].reshape(-1, *tensor.shape[1:])
                    found[name.replace("query_key_value", f"{letter}_proj")] = part
            else:
                found[name] = tensor
        return found


class Bloom(GPTNeoX):
    """BLOOM with ALiBi. It approximates GELU; torch does not."""

    words = BLOOM

    def build(self, c: ModelConfig, vocab_size: int) -> torch.nn.Module:
        """See Peer."""
        assert c.d_ff == 4 * c.d_model
        model = transformers.BloomForCausalLM(transformers.BloomConfig(
            vocab_size=vocab_size, layer_norm_epsilon=c.norm_epsilon, n_layer=c.num_decoder_layers,
            n_head=c.num_heads, hidden_size=c.d_model, attn_implementation="eager",
        ))  # fmt: skip
        if not c.input_norm:
            model.transformer.word_embeddings_layernorm = torch.nn.Identity()
        for layer in model.transformer.h:
            layer.mlp.gelu_impl = torch.nn.GELU()
        return model

    def order(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """See Peer; the model computes distances itself."""
        return {"attention_mask": (batch["tgt_seg"] > 0).long()}


class GPT2Peer(Peer):
    """GPT-2, whose matrices are [in out]."""

    words = GPT2

    def build(self, c: ModelConfig, vocab_size: int) -> torch.nn.Module:
        """See Peer."""
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=vocab_size, n_embd=c.d_model, n_layer=c.num_decoder_layers,
            n_head=c.num_heads, n_inner=c.d_ff, n_positions=c.max_positions,
            activation_function=ACTIVATIONS[c.activation], layer_norm_epsilon=c.norm_epsilon,
            bos_token_id=1, eos_token_id=2, attn_implementation="sdpa",
        ))  # fmt: skip

    def apart(self, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See Peer."""
        found = {}
        for name, tensor in tensors.items():
            rows = tensor.T if ".c_" in name else tensor
            if "c_attn" in name:
                for letter, part in zip("qkv", np.split(rows, 3), strict=True):
                    found[name.replace("c_attn", f"{letter}_proj")] = part
            else:
                found[name] = rows
        return found


PEERS = {
    "mixtral": Mixtral,
    "llama": Llama, "llama, classes": LlamaOfClasses, "qwen2": Qwen2, "qwen3": Qwen3,
    "nemotron": Nemotron, "olmo2, t5": Olmo2T5, "olmo2": Olmo2, "gemma2": Gemma2,
    "gpt_neox": GPTNeoX, "bloom": Bloom, "gpt2": GPT2Peer, "deepseek": DeepseekV3,
}  # fmt: skip

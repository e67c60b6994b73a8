"""Random models of `transformers`, at least one per family that is imported or exported."""

import copy

import jax
import numpy as np
import torch
import transformers as T
from oracle.peers import paper_positions
from tokenizers import Tokenizer, models
from torch.nn import functional as F

from transformer_jax.config import ModelConfig, TrainingConfig
from transformer_jax.data.batches.batch import Batch, Side, Target
from transformer_jax.models.build import build
from transformer_jax.training.step import batch_sums

# Compilation takes longer than the computation.
FAST = {"xla_backend_optimization_level": 0}
VOCAB, IDS = 41, {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES = {
    "vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 40, "num_key_value_heads": 2, "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5, **IDS,
}  # fmt: skip
SEQ2SEQ = {
    "vocab_size": VOCAB, "d_model": 24, "encoder_layers": 2, "decoder_layers": 1,
    "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "max_position_embeddings": 32, "activation_function": "relu",
    "decoder_start_token_id": 1, "forced_eos_token_id": None, **IDS,
}  # fmt: skip
T5 = {
    "vocab_size": VOCAB, "d_model": 24, "d_kv": 8, "d_ff": 40, "num_layers": 2,
    "num_decoder_layers": 1, "num_heads": 4, "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12, "decoder_start_token_id": 0, "pad_token_id": 0,
    "eos_token_id": 1,
}  # fmt: skip
LAYER_NORM = {
    "vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 40, "max_position_embeddings": 32, **IDS,
}  # fmt: skip
ESM = LAYER_NORM | {
    "position_embedding_type": "rotary", "emb_layer_norm_before": False, "token_dropout": True,
    "mask_token_id": 30, "layer_norm_eps": 1e-5, "architectures": ["EsmForMaskedLM"],
}  # fmt: skip
LABELLED = {"id2label": {0: "pos", 1: "neg", 2: "none"},
            "label2id": {"pos": 0, "neg": 1, "none": 2}}  # fmt: skip
STATES = {"vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 2, "state_size": 6,
          "conv_kernel": 3, **IDS}  # fmt: skip
LONGER = {"rope_theta": 50.0, "factor": 4.0, "original_max_position_embeddings": 300}
PARTLY = {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.67}
CHOICES = {"tokens": VOCAB, "class": 3, "tags": 3, "next_sentence": 2, "span": 9, "value": 3}
PEERS = {
    "gpt2": (T.GPT2Config, {"vocab_size": VOCAB, "n_embd": 24, "n_layer": 2, "n_head": 4,
                            "n_positions": 32, "bos_token_id": 1, "eos_token_id": 1}),
    "gpt2, untied": (T.GPT2Config, {"vocab_size": VOCAB, "n_embd": 24, "n_layer": 1, "n_head": 4,
                                    "n_positions": 32, "n_inner": 40, "bos_token_id": 1,
                                    "eos_token_id": 2, "tie_word_embeddings": False,
                                    "activation_function": "relu"}),
    "llama": (T.LlamaConfig, SIZES),
    "llama, tied, biases": (T.LlamaConfig, SIZES | {
        "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 50.0}, "head_dim": 8}),
    "llama 3.1": (T.LlamaConfig, SIZES | {"rope_parameters": LONGER | {
        "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}}),
    "mistral": (T.MistralConfig, SIZES | {
        "head_dim": 10, "sliding_window": None, "num_attention_heads": 5,
        "num_key_value_heads": 1}),
    "mixtral": (T.MixtralConfig, SIZES | {
        "head_dim": 10, "num_local_experts": 3}),
    "qwen2": (T.Qwen2Config, SIZES | {"rope_parameters": LONGER | {"rope_type": "yarn"}}),
    "qwen3": (T.Qwen3Config, SIZES | {"head_dim": 8, "tie_word_embeddings": True}),
    "qwen3_moe": (T.Qwen3MoeConfig, {k: v for k, v in SIZES.items() if k != "intermediate_size"} | {
        "head_dim": 8, "moe_intermediate_size": 40, "num_experts": 4, "num_experts_per_tok": 2,
        "norm_topk_prob": True}),
    "qwen3_next": (T.Qwen3NextConfig, {
        k: v for k, v in SIZES.items() if k != "intermediate_size"} | {
        "head_dim": 8, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 20,
        "num_experts": 4, "num_experts_per_tok": 2, "linear_num_value_heads": 4,
        "linear_num_key_heads": 2, "linear_key_head_dim": 6, "linear_value_head_dim": 5,
        "linear_conv_kernel_dim": 3, "layer_types": ["linear_attention", "full_attention"]}),
    "olmoe": (T.OlmoeConfig, SIZES | {"num_experts": 4, "num_experts_per_tok": 2}),
    "mistral, window": (T.MistralConfig, SIZES | {"sliding_window": 3}),
    "phi": (T.PhiConfig, LAYER_NORM | {"num_key_value_heads": 2, "rope_parameters": PARTLY}),
    "phi3": (T.Phi3Config, SIZES | {"sliding_window": None}),
    "phi3, window": (T.Phi3Config, SIZES | {"sliding_window": 3, "rope_parameters": PARTLY}),
    "cohere": (T.CohereConfig, LAYER_NORM | {
        "num_key_value_heads": 2, "layer_norm_eps": 1e-5, "logit_scale": 0.25}),
    "gemma": (T.GemmaConfig, SIZES | {"head_dim": 10}),
    "gemma2": (T.Gemma2Config, SIZES | {
        "head_dim": 10, "query_pre_attn_scalar": 7, "attn_logit_softcapping": 1.5,
        "final_logit_softcapping": 2.5, "sliding_window": 3}),
    "gemma3": (T.Gemma3TextConfig, SIZES | {
        "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 3, "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 50.0, "factor": 4.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 20.0}}}),
    "marian": (T.MarianConfig, SEQ2SEQ | {"scale_embedding": True}),
    "marian, biased": (T.MarianConfig, SEQ2SEQ),
    "pegasus": (T.PegasusConfig, SEQ2SEQ),
    "bart": (T.BartConfig, SEQ2SEQ),
    "bart, biased": (T.BartConfig, SEQ2SEQ),
    "mbart": (T.MBartConfig, SEQ2SEQ | {"scale_embedding": True, "activation_function": "gelu"}),
    "olmo2": (T.Olmo2Config, SIZES),
    "opt": (T.OPTConfig, {
        k: v for k, v in LAYER_NORM.items() if k != "intermediate_size"} | {"ffn_dim": 40}),
    "gpt_neox, parallel": (T.GPTNeoXConfig, LAYER_NORM | {"rope_parameters": PARTLY}),
    "gpt_neox": (T.GPTNeoXConfig, LAYER_NORM | {
        "use_parallel_residual": False, "rope_parameters": PARTLY}),
    "bloom": (T.BloomConfig, {"vocab_size": VOCAB, "hidden_size": 24, "n_layer": 2, "n_head": 4,
                              **IDS}),
    "stablelm, parallel": (T.StableLmConfig, LAYER_NORM | {
        "num_key_value_heads": 2, "layer_norm_eps": 1e-5, "use_parallel_residual": True,
        "rope_parameters": PARTLY}),
    "stablelm": (T.StableLmConfig, LAYER_NORM | {"num_key_value_heads": 2,
        "use_qkv_bias": True, "layer_norm_eps": 1e-5, "rope_parameters": PARTLY}),
    "starcoder2": (T.Starcoder2Config, LAYER_NORM | {
        "num_key_value_heads": 2, "norm_epsilon": 1e-5, "sliding_window": None}),
    "mamba": (T.MambaConfig, STATES),
    "mamba2": (T.Mamba2Config, STATES | {
        "num_heads": 6, "head_dim": 8, "n_groups": 2, "tie_word_embeddings": True}),
    "bert": (T.BertConfig, LAYER_NORM | {"architectures": ["BertForMaskedLM"]}),
    "bert, pairs": (T.BertConfig, LAYER_NORM | {"architectures": ["BertForPreTraining"]}),
    "bert, classes": (T.BertConfig, LAYER_NORM | LABELLED | {
        "architectures": ["BertForSequenceClassification"], "hidden_act": "relu"}),
    "bert, values": (T.BertConfig, LAYER_NORM | {
        "architectures": ["BertForSequenceClassification"], "num_labels": 1,
        "problem_type": "regression"}),
    "bert, tags": (T.BertConfig, LAYER_NORM | LABELLED | {
        "architectures": ["BertForTokenClassification"]}),
    "bert, spans": (T.BertConfig, LAYER_NORM | {"architectures": ["BertForQuestionAnswering"]}),
    "esm": (T.EsmConfig, ESM),
    "esm, normed": (T.EsmConfig, ESM | {
        "emb_layer_norm_before": True, "token_dropout": False, "mask_token_id": None,
        "rope_theta": 50.0}),
    "t5": (T.T5Config, T5),
    "t5, gated": (T.T5Config, T5 | {
        "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
}  # fmt: skip


def peer(name: str, more: dict | None = None) -> T.PreTrainedModel:
    """Return a model with random weights, including biases and scales."""
    kind, settings = PEERS[name]
    config = kind(**settings | (more or {}))
    torch.manual_seed(0)
    model = auto(config).from_config(config).eval()
    if name == "t5, gated":
        model.lm_head.weight = torch.nn.Parameter(torch.randn(VOCAB, 24))
    if name.endswith(", biased"):  # as in the models of OPUS-MT; it is not a parameter there
        model.final_logits_bias.normal_()
    for key, parameter in model.named_parameters():
        if "embed_positions" not in key or config.model_type in OFFSET:
            scale = "weight" in key and ("norm" in key.lower() or "ln_" in key)
            torch.nn.init.normal_(parameter, 1.0 if scale else 0.0, 0.3)
        if "embed_positions" in key and config.model_type in OFFSET:
            parameter.data[:2] = 0  # which are never read
        if "contact_head" in key:
            parameter.data.zero_()  # which we have not, and export as zeros
    return model


EXPERTS = ("mixtral", "qwen3_moe", "qwen3_next", "olmoe")
OFFSET = ("bart", "mbart", "opt")


def auto(config):
    """Return the auto class of `transformers` for a model's config."""
    if config.model_type in ("bert", "esm"):
        return getattr(T, f"AutoModelFor{config.architectures[0].partition('For')[2]}")
    return T.AutoModelForSeq2SeqLM if config.is_encoder_decoder else T.AutoModelForCausalLM


def written(model, directory, **options):
    """Save a model with a tokenizer of its vocabulary size."""
    model.save_pretrained(directory, **options)
    pieces = {piece: i for i, piece in enumerate(["<pad>", "<s>", "</s>", "<unk>"])}
    pieces |= {f"w{i}": i for i in range(4, VOCAB)}
    Tokenizer(models.WordLevel(pieces, unk_token="<unk>")).save(str(directory / "tokenizer.json"))
    return directory


def example(config: ModelConfig, predicts: tuple[str, ...]) -> Batch:
    """Return random pieces, and labels for every prediction."""
    rng = np.random.default_rng(0)

    def side(length: int) -> Side:
        ids = rng.integers(4, VOCAB, (2, length)).astype(np.int32)
        places = np.broadcast_to(np.arange(length, dtype=np.int32), ids.shape)
        return Side(ids, places, np.ones_like(ids), places)

    encodes, asks = config.architecture != "decoder", config.architecture == "encoder"
    src, tgt = side(9) if encodes else None, side(2 if "span" in predicts else 1 if asks else 7)
    targets = {}
    for name in predicts:
        where = src if src is not None and asks and name in ("tokens", "tags") else tgt
        labels = rng.integers(0, CHOICES[name], where.inputs.shape)
        labels = labels + 0.5 if name == "value" else labels
        # BERT's pre-training loss is the sum of both means.
        targets[name] = Target(labels, np.full(labels.shape, 9.0 if "next" in name else 1.0))
    return Batch(src, tgt, targets)


def in_float64(model):
    """Return a copy of their model that computes in float64, if built after `widen`."""
    wide = copy.deepcopy(model).double()
    if model.config.model_type in EXPERTS:
        wide.set_experts_implementation("eager")  # the others have no float64
    if model.config.model_type.startswith("gemma"):  # of which a buffer has the root in float32
        wide.model.embed_tokens.embed_scale.fill_(model.config.hidden_size**0.5)
    if model.config.model_type == "esm":  # whose frequencies are rounded to float32 in a file
        rotary = wide.esm.rotary_embeddings
        rotary.inv_freq = rotary.compute_default_rope_parameters(model.config)[0]
    for name, module in wide.named_modules():
        if (
            name.endswith("embed_positions") and model.config.model_type not in OFFSET
        ):  # whose sinusoids are rounded to float32
            table = paper_positions(*module.weight.shape)
            module.weight.data = torch.cat([table[:, 0::2], table[:, 1::2]], 1)
    return wide


def ours(config: ModelConfig, params, batch: Batch):
    """Return logits by name, the loss and its gradients, in float64."""
    predicts = tuple(batch.targets)
    with jax.enable_x64(True):
        classes = 3 if {"class", "tags"} & {*predicts} else VOCAB
        model = build(config, VOCAB, classes, dtype="float64", predicts=predicts)

        def loss(params, batch):
            outputs = model.outputs(params, batch, None)
            sums = batch_sums(model, TrainingConfig(label_smoothing=0.0), params, batch, None)
            return sums.loss / sums.weight, {name: outputs[name].logits() for name in predicts}

        run = jax.jit(jax.value_and_grad(loss, has_aux=True), compiler_options=FAST)
        (mean, logits), gradients = jax.device_get(run(jax.tree.map(np.float64, params), batch))
    return logits, mean, gradients


def theirs(model, batch: Batch):
    """Return the same for their model; gradients under its names."""
    wide = in_float64(model)
    src, tgt = (None if x is None else torch.from_numpy(x.inputs).long() for x in batch[:2])
    if model.config.is_encoder_decoder:
        found = wide(src, decoder_input_ids=tgt)
    else:
        found = wide(tgt if src is None else src)
    logits, means = {}, []
    for name, (labels, _) in batch.targets.items():
        logits[name] = logits_of(name, found).reshape(*labels.shape, -1)
        flat = logits[name].flatten(0, 1), torch.from_numpy(labels).flatten()
        means.append(F.mse_loss(flat[0][:, 0], flat[1]) if name == "value"
                     else F.cross_entropy(*flat))  # fmt: skip
    sum(means).backward()
    gradients = {n: p.grad.numpy() for n, p in wide.named_parameters() if p.grad is not None}
    gradients = as_in_files(gradients, model.config.model_type)
    return {n: x.detach().numpy() for n, x in logits.items()}, sum(means).item(), gradients


def as_in_files(tensors: dict[str, np.ndarray], kind: str) -> dict[str, np.ndarray]:
    """Return the tensors with those of experts under the names of their family's files."""
    found = {}
    mixtral = kind == "mixtral"
    part = "block_sparse_moe" if mixtral else "mlp"
    gate, up, down = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    for name, tensor in tensors.items():
        layer, mlp, own = name.partition(".mlp.")
        if own == "experts.down_proj":
            maps = {down: tensor}
        elif own == "experts.gate_up_proj":
            maps = dict(zip((gate, up), np.split(tensor, 2, axis=1), strict=True))
        else:
            moe = mlp and own == "gate.weight"
            found[f"{layer}.{part}.{own}" if moe else name] = tensor
            continue
        found |= {
            f"{layer}.{part}.experts.{number}.{w}.weight": matrix
            for w, matrices in maps.items()
            for number, matrix in enumerate(matrices)
        }
    return found


def logits_of(name: str, found) -> torch.Tensor:
    """Return the logits, whose name in their output depends on the class."""
    if name == "span":
        return torch.stack([found.start_logits, found.end_logits], 1)
    if name == "next_sentence":
        return found.seq_relationship_logits
    return found.prediction_logits if "prediction_logits" in found else found.logits

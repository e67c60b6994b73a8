"""BERT (Devlin et al. 2019, arXiv:1810.04805) with each of its heads, and ESM-2 (Lin et al. 2023,
doi:10.1126/science.ade2574).
"""

import numpy as np

from transformer_jax.config import ModelConfig
from transformer_jax.export.huggingface.decoders import ACTIVATIONS, ATTENTION
from transformer_jax.export.huggingface.family import Family, Fixed, Word

_LAYER = "bert.encoder.layer.{}"
_MODULES = {
    "embedding": "bert.embeddings.word_embeddings",
    "positions": "bert.embeddings.position_embeddings",
    "kinds": "bert.embeddings.token_type_embeddings",
    "input_norm": "bert.embeddings.LayerNorm",
    **{
        f"encoder/layer_{{}}/self_attention/{name}": f"{_LAYER}.attention.self.{name}"
        for name in ("query", "key", "value")
    },
    "encoder/layer_{}/self_attention/output": f"{_LAYER}.attention.output.dense",
    "encoder/layer_{}/self_attention_residual/norm": f"{_LAYER}.attention.output.LayerNorm",
    "encoder/layer_{}/feed_forward/up": f"{_LAYER}.intermediate.dense",
    "encoder/layer_{}/feed_forward/down": f"{_LAYER}.output.dense",
    "encoder/layer_{}/feed_forward_residual/norm": f"{_LAYER}.output.LayerNorm",
    "piece_head": "cls.predictions",
    "piece_head/dense": "cls.predictions.transform.dense",
    "piece_head/norm": "cls.predictions.transform.LayerNorm",
    "pooler": "bert.pooler.dense",
    "next_sentence_head": "cls.seq_relationship",
    "class_head": "classifier",
    "span_head": "qa_outputs",
}

BERT = Family(
    model_type="bert",
    architecture="BertForMaskedLM",
    prefix="bert.",
    modules=_MODULES,
    words=(
        ("hidden_size", Word("d_model")),
        ("intermediate_size", Word("d_ff")),
        ("num_attention_heads", Word("num_heads")),
        ("num_hidden_layers", Word("num_encoder_layers")),
        ("max_position_embeddings", Word("max_positions")),
        ("type_vocab_size", Word("token_types")),
        ("layer_norm_eps", Word("norm_epsilon")),
        ("hidden_act", Word("activation", ACTIVATIONS)),
        ("hidden_dropout_prob", Word("dropout_rate")),
        ("attention_probs_dropout_prob", Word("attention_dropout_rate")),
        ("tie_word_embeddings", Word("tied_embeddings", ((True, "all"), (True, "decoder")))),
        ("is_decoder", Fixed(False)),
        ("add_cross_attention", Fixed(False)),
        ("position_embedding_type", Fixed("absolute", written=False)),  # in older versions
    ),
    defaults={
        "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
        "num_hidden_layers": 12, "max_position_embeddings": 512, "type_vocab_size": 2,
        "layer_norm_eps": 1e-12, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1, "tie_word_embeddings": True, "is_decoder": False,
        "add_cross_attention": False,
    },
    fixed={
        "architecture": "encoder", "residual": "post_norm", "norm": "layer_norm",
        "positions": "learned", "relative_positions": "none", "input_norm": True,
        "biases": (*ATTENTION, "feed_forward"), "embedding_scale": False, "logits_scale": False,
    },
    tables=("cls.predictions.decoder.weight",),
    # The bias of pieces under another name, in files of older versions.
    drops=("cls.predictions.decoder.bias",),
    others=("pooler.", "cls.seq_relationship."),
)  # fmt: skip
BERT_PAIRS = BERT._replace(
    architecture="BertForPreTraining", predicts=("tokens", "next_sentence"), others=()
)
BERT_CLASSES = BERT._replace(
    architecture="BertForSequenceClassification",
    predicts=("class",),
    tables=(),
    others=("cls.",),
)
BERT_VALUES = BERT_CLASSES._replace(
    predicts=("value",),
    words=(*BERT.words, ("problem_type", Fixed("regression"))),
    defaults={**BERT.defaults, "problem_type": None},
    modules={ours: theirs for ours, theirs in _MODULES.items() if ours != "class_head"}
    | {"value_head": "classifier"},
)
BERT_TAGS = BERT_CLASSES._replace(
    architecture="BertForTokenClassification",
    predicts=("tags",),
    modules={ours: theirs for ours, theirs in _MODULES.items() if ours != "class_head"}
    | {"tags_head": "classifier"},
    others=("cls.", "pooler."),
)
BERT_SPANS = BERT_TAGS._replace(
    architecture="BertForQuestionAnswering", predicts=("span",), modules=_MODULES
)

_ESM_LAYER = "esm.encoder.layer.{}"


def _besides(config: ModelConfig) -> dict[str, np.ndarray]:
    """Return ESM's map from attention to contacts, which we have not: zeros, half a contact for
    every pair; and the frequencies of positions.
    """
    maps, half = config.num_encoder_layers * config.num_heads, config.key_size // 2
    return {
        "esm.contact_head.regression.weight": np.zeros((1, maps), np.float32),
        "esm.contact_head.regression.bias": np.zeros(1, np.float32),
        "esm.rotary_embeddings.inv_freq": np.power(
            config.rope_theta, -np.arange(half) / half
        ).astype(np.float32),
    }


# A pre-norm encoder with rotary positions; ESM-1b, with learned ones, is not. The map from
# attention to contacts is not imported.
ESM = Family(
    model_type="esm",
    architecture="EsmForMaskedLM",
    prefix="esm.",
    modules={
        "embedding": "esm.embeddings.word_embeddings",
        "input_norm": "esm.embeddings.layer_norm",
        "encoder/layer_{}/self_attention_residual/norm": f"{_ESM_LAYER}.attention.LayerNorm",
        **{
            f"encoder/layer_{{}}/self_attention/{name}": f"{_ESM_LAYER}.attention.self.{name}"
            for name in ("query", "key", "value")
        },
        "encoder/layer_{}/self_attention/output": f"{_ESM_LAYER}.attention.output.dense",
        "encoder/layer_{}/feed_forward_residual/norm": f"{_ESM_LAYER}.LayerNorm",
        "encoder/layer_{}/feed_forward/up": f"{_ESM_LAYER}.intermediate.dense",
        "encoder/layer_{}/feed_forward/down": f"{_ESM_LAYER}.output.dense",
        "encoder/final_norm": "esm.encoder.emb_layer_norm_after",
        "piece_head": "lm_head",
        "piece_head/dense": "lm_head.dense",
        "piece_head/norm": "lm_head.layer_norm",
    },
    words=(
        *(
            (key, word)
            for key, word in BERT.words
            if key not in ("type_vocab_size", "hidden_act", "position_embedding_type")
        ),
        ("position_embedding_type", Fixed("rotary")),
        ("rope_theta", Word("rope_theta")),
        ("emb_layer_norm_before", Word("input_norm")),
        ("token_dropout", Fixed(True)),
        ("mask_token_id", Word("token_dropout")),
        ("is_folding_model", Fixed(False)),
    ),
    defaults={
        **BERT.defaults, "max_position_embeddings": 1026, "rope_theta": 10_000.0,
        "position_embedding_type": "absolute", "emb_layer_norm_before": False,
        "token_dropout": False, "mask_token_id": None, "is_folding_model": False,
    },
    fixed={
        "architecture": "encoder", "residual": "pre_norm", "norm": "layer_norm",
        "positions": "none", "relative_positions": "rope", "rope_fraction": 1.0,
        "rope_scaling": "none", "activation": "gelu", "token_types": 0,
        "biases": (*ATTENTION, "feed_forward"), "embedding_scale": False, "logits_scale": False,
    },
    tables=("lm_head.decoder.weight",),
    drops=("lm_head.decoder.bias", "embeddings.position_embeddings.weight",
           "rotary_embeddings.inv_freq"),
    others=("contact_head.", "pooler."),
    besides=_besides,
)  # fmt: skip
_WITHOUT = ("token_dropout", "mask_token_id")
ESM_PLAIN = ESM._replace(
    words=(
        *((key, word) for key, word in ESM.words if key not in _WITHOUT),
        ("token_dropout", Fixed(False)),
    ),
    fixed={**ESM.fixed, "token_dropout": None},
)

"""BERT (Devlin et al. 2019, arXiv:1810.04805), with each of its heads."""

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

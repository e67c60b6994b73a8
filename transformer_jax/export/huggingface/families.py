"""All families. Add one here once tests/oracle/test_huggingface_peers.py passes with it."""

from transformer_jax.export.huggingface.decoders import (
    GPT2,
    LLAMA,
    MISTRAL,
    OLMO2,
    PHI3,
    QWEN2,
    QWEN3,
)
from transformer_jax.export.huggingface.encoders import (
    BERT,
    BERT_CLASSES,
    BERT_PAIRS,
    BERT_SPANS,
    BERT_TAGS,
    BERT_VALUES,
    ESM,
    ESM_PLAIN,
)
from transformer_jax.export.huggingface.gemma import GEMMA, GEMMA2, GEMMA3
from transformer_jax.export.huggingface.layer_norm_decoders import (
    BLOOM,
    GPT_NEOX,
    OPT,
    STABLELM,
    STARCODER2,
)
from transformer_jax.export.huggingface.mixtral import MIXTRAL, OLMOE, QWEN3_MOE
from transformer_jax.export.huggingface.parallel_decoders import COHERE, PHI
from transformer_jax.export.huggingface.qwen3_next import QWEN3_NEXT
from transformer_jax.export.huggingface.seq2seq import BART, MARIAN, MBART, PEGASUS, T5, T5_GATED
from transformer_jax.export.huggingface.state_spaces import MAMBA, MAMBA2

FAMILIES = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "mixtral": MIXTRAL,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3_MOE,
    "qwen3_next": QWEN3_NEXT,
    "olmo2": OLMO2,
    "olmoe": OLMOE,
    "phi3": PHI3,
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3": GEMMA3,
    "phi": PHI,
    "cohere": COHERE,
    "mamba": MAMBA,
    "mamba2": MAMBA2,
    "opt": OPT,
    "gpt_neox": GPT_NEOX,
    "bloom": BLOOM,
    "stablelm": STABLELM,
    "starcoder2": STARCODER2,
    "marian": MARIAN,
    "pegasus": PEGASUS,
    "bart": BART,
    "mbart": MBART,
    "t5": T5,
    "t5, gated": T5_GATED,
    "bert": BERT,
    "bert, pairs": BERT_PAIRS,
    "bert, values": BERT_VALUES,  # before "bert, classes", which has the same architecture
    "bert, classes": BERT_CLASSES,
    "bert, tags": BERT_TAGS,
    "bert, spans": BERT_SPANS,
    "esm, plain": ESM_PLAIN,  # before "esm", which would allow the field to be None
    "esm": ESM,
}

"""The families. One belongs here once tests/oracle/test_huggingface.py passes with it."""

from transformer_jax.export.huggingface.decoders import GPT2, LLAMA, MISTRAL, QWEN2, QWEN3
from transformer_jax.export.huggingface.seq2seq import MARIAN, PEGASUS, T5, T5_GATED

FAMILIES = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "marian": MARIAN,
    "pegasus": PEGASUS,
    "t5": T5,
    "t5, gated": T5_GATED,
}

"""The table of recurrent decoders: what a word of `recurrence` stands for."""

from transformer_jax.nn.recurrent_decoders import Bahdanau, Gnmt, Luong, RecurrentDecoder
from transformer_jax.nn.rnmt_plus import RnmtPlus

RECURRENCES: dict[str, type[RecurrentDecoder]] = {
    "luong": Luong,
    "bahdanau": Bahdanau,
    "gnmt": Gnmt,
    "rnmt_plus": RnmtPlus,
}

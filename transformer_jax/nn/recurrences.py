"""The table of recurrent decoders by their name in `recurrence`."""

from transformer_jax.nn.recurrent_decoders import Bahdanau, Gnmt, Luong, RecurrentDecoder
from transformer_jax.nn.rnmt_plus import RnmtPlus

RECURRENCES: dict[str, type[RecurrentDecoder]] = {
    "luong": Luong,
    "bahdanau": Bahdanau,
    "gnmt": Gnmt,
    "rnmt_plus": RnmtPlus,
}

"""Objectives of texts: their named pieces, and what does not go with them."""

from typing import Any

from transformer_jax.config.bounds import check, either
from transformer_jax.config.choices.codecs import CODECS, PARTS

SENTINEL = "<extra_id_{}>"  # T5's name for the pieces that replace removed spans
FIM_PIECES = "<fim_prefix>", "<fim_middle>", "<fim_suffix>"  # StarCoder's, before parts of a text
_FIM_WINDOW = 8  # pieces, so that at least as many are text as are not


def check_text(run: Any, field: str) -> None:
    """Reject a window without room for a piece."""
    window, codec = run.objective.window, CODECS.get(run.src.codec)
    check(
        (codec is not None and codec.vectors) or window > 2,
        f"objective.window={window}: objective.name={run.objective.name!r} reads BOS, pieces and "
        "EOS, and there is no room for a piece; raise it to 3 or more",
    )


def check_infilling(run: Any, field: str) -> None:
    """Reject codecs that cannot be cut anywhere, and short windows, if middles come last."""
    objective = run.objective
    if not objective.fim_rate:
        return
    check(
        run.tgt.codec in PARTS,
        f"tgt.codec={run.tgt.codec!r}: objective.fim_rate={objective.fim_rate} cuts texts "
        f"anywhere, also within words; choose {either(PARTS)}",
    )
    check(
        objective.window >= _FIM_WINDOW,
        f"objective.window={objective.window}: a rearranged window has three sentinels and EOS; "
        f"raise it to {_FIM_WINDOW} or more, or set objective.fim_rate=0",
    )

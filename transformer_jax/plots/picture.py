"""Saving of figures, shared by all plots."""

import base64
import io
from pathlib import Path
from typing import Any

from transformer_jax.base.disk import writing
from transformer_jax.base.errors import UserError

SUFFIXES = (".svg", ".pdf", ".png")


def check_suffix(path: Path, option: str) -> None:
    """Check that a figure can be written under the name given by an option.

    Raises:
      UserError: if its suffix is not a known format.
    """
    if path.suffix not in SUFFIXES:
        raise UserError(f"{option}={path}: must end in {', '.join(SUFFIXES)}")


def save(figure: Any, path: Path) -> None:
    """Write a figure in the format of the suffix; the same figure gives the same bytes."""
    import matplotlib as mpl

    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix, {})
    with (
        mpl.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}),
        writing(str(path), path.absolute().parent),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata=undated, dpi=160)


def as_uri(figure: Any) -> str:
    """Return a figure as the data URI of a PNG."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110, metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()

"""The notebooks of docs/notebooks, run: their text and code with what they print and draw.

A notebook is Markdown, as Jupytext opens it in Jupyter and anybody reads it in a repository; what
it prints is nowhere in it, so it cannot be out of date. Outputs are kept by a hash of the notebook
and of the package, and made again when either changes.
"""

import base64
import hashlib
import re
import tempfile
from itertools import groupby
from pathlib import Path
from typing import Any

ORDER = ("translator", "gpt", "mixer")
SECONDS = 600  # for a cell, on a busy machine
_ENDINGS = {"image/svg+xml": "svg", "image/png": "png"}


def sources(root: Path) -> list[Path]:
    """Return the notebooks, in their order."""
    return [root / f"docs/notebooks/{name}.md" for name in ORDER]


def pages(root: Path, kept: Path) -> dict[str, bytes]:
    """Return {path on the site: content}: a page, its pictures and a .ipynb for each notebook.

    Raises:
      nbclient.exceptions.CellExecutionError: if a cell fails.
    """
    found: dict[str, bytes] = {}
    for path in sources(root):
        found |= _page(path, _run(path, kept, _digest(root, path)))
    return {f"docs/notebooks/{name}": content for name, content in found.items()}


def _digest(root: Path, path: Path) -> str:
    digest = hashlib.sha256(path.read_bytes())
    for module in sorted(root.glob("transformer_jax/**/*.py")):
        digest.update(module.read_bytes())
    return digest.hexdigest()[:16]


def _run(path: Path, kept: Path, digest: str) -> Any:
    """Return a notebook with its outputs."""
    import jupytext
    import nbformat
    from nbclient import NotebookClient

    place = kept / f"{path.stem}-{digest}.ipynb"
    if not place.exists():
        print(f"running {path.name}", flush=True)
        notebook = jupytext.read(path)
        with tempfile.TemporaryDirectory() as folder:
            resources = {"metadata": {"path": folder}}
            NotebookClient(notebook, timeout=SECONDS, resources=resources).execute()
        kept.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, place)
    return nbformat.read(place, as_version=4)


def _page(path: Path, notebook: Any) -> dict[str, bytes]:
    import nbformat

    files: dict[str, bytes] = {}
    parts: list[str] = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        # What a cell prints comes in parts, one for each write.
        for stream, outputs in groupby(cell.outputs, lambda x: x.output_type == "stream"):
            if stream:
                parts.append(_text("".join(output.text for output in outputs)))
            else:
                parts += [_shown(x, f"{path.stem}-{len(files)}", files) for x in outputs]
    title, _, rest = "\n\n".join(part for part in parts if part).partition("\n")
    download = f"[Download {path.stem}.ipynb]({path.stem}.ipynb){{ download }}"
    files[f"{path.stem}.ipynb"] = nbformat.writes(notebook).encode()
    return {f"{path.stem}.md": f"{title}\n\n{download}\n{rest}\n".encode(), **files}


def _shown(output: Any, name: str, files: dict[str, bytes]) -> str:
    """Return an output in Markdown; its picture goes to `files`."""
    data = output.get("data", {})
    for kind, ending in _ENDINGS.items():
        if kind in data:
            content = data[kind]
            files[f"{name}.{ending}"] = (
                content.encode() if ending == "svg" else base64.b64decode(content)
            )
            return f"![what the cell above draws]({name}.{ending})"
    return _text(data.get("text/plain", ""))


def _text(text: str) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip()
    return f"```{{ .text .output }}\n{text}\n```" if text else ""

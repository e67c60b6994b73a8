"""Write the pages of the site, and its config, for MkDocs: `make site` runs this.

    python docs/site/pages.py build   # build/pages and build/mkdocs.yml
    mkdocs build --config-file=build/mkdocs.yml   # build/site

Documents keep their places in the repository, so that links between them hold. Beside them are the
start page (index.md), the experiments (gallery.py), the reference (reference.py), and the notebooks
with what they print and draw (notebooks.py).
"""

import json
import shutil
import sys
from pathlib import Path

import gallery
import notebooks
import reference

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
COPIED = (
    "docs/*.md", "docs/serve/*", "docs/launch/*", "results/*.md", "results/notes/*.md",
    "results/*.svg", "results/*.png", "CONTRIBUTING.md", "CHANGELOG.md",
)  # fmt: skip
GUIDE = (
    "data", "text", "modalities", "models", "optimizers", "own_parts", "decoding", "serving",
    "comparing", "runs", "devices",
)  # fmt: skip


def main(build: Path) -> None:
    """Write `build`/pages and `build`/mkdocs.yml."""
    pages = build / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    for pattern in COPIED:
        for path in ROOT.glob(pattern):
            write(pages / path.relative_to(ROOT), path.read_bytes())
    for name in ("index.md", "style.css", "iframe-worker.js"):
        write(pages / name, (HERE / name).read_bytes())
    for name, text in (gallery.pages(ROOT) | reference.pages(ROOT)).items():
        write(pages / name, text.encode())
    for name, content in notebooks.pages(ROOT, build / "notebooks").items():
        write(pages / name, content)
    config = {
        "INHERIT": str(HERE / "mkdocs.yml"), "docs_dir": "pages", "site_dir": "site",
        "nav": navigation(),
    }  # fmt: skip
    write(build / "mkdocs.yml", json.dumps(config, indent=1).encode())  # JSON is YAML


def navigation() -> list:
    """Return what the site shows, in order: sections, each of pages with or without a title."""
    notes = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("results/notes/*.md"))
    return [
        {"Start": ["index.md", "docs/recipes.md"]},
        {"Guide": [f"docs/{name}.md" for name in GUIDE]},
        {"Notebooks": [f"docs/notebooks/{path.name}" for path in notebooks.sources(ROOT)]},
        {"Experiments": gallery.navigation(ROOT)},
        {"Results": ["results/README.md", *notes]},
        {"Reference": reference.navigation(ROOT)},
        {"Development": ["docs/tour.md", "CONTRIBUTING.md", "CHANGELOG.md"]},
    ]


def write(path: Path, content: bytes) -> None:
    """Write a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

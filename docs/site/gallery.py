"""A page for each experiment: the abstract of its file in configs/, its scores, and the figures of
results/ that its commands made. Nothing is said here that is not said there.
"""

import ast
import functools
import re
from pathlib import Path
from typing import NamedTuple

_ENTRY = re.compile(r"(\S+) {2,}(\S.*)")  # "variant  what it is", in an abstract
_COLUMNS = "what", "protocol", "score", "time", "command"
_SAME = re.compile(r"the same\b")
_CODE = re.compile(r"^(python|transformer-jax|for|P=|ls)\b", re.M)
_FILE = re.compile(
    r"(?<!`)\b(?:configs|results|docs|benchmarks|transformer_jax)/[\w/]+\.\w+(?::[\w.-]+)?"
)
INDEX = """\
# Experiments

Each is a short file in `configs/`, which states only what differs from the defaults. Scores are
those of [results](../results/README.md), with protocol, time and machine; where a card has no
picture, there is none yet.

<div class="grid cards" markdown>

{cards}

</div>
"""


class Score(NamedTuple):
    """A row of the table of all scores, in Markdown; what and protocol stand alone."""

    what: str
    protocol: str
    score: str
    time: str
    command: str


class Section(NamedTuple):
    """A section of results/README.md."""

    title: str
    text: str

    @property
    def link(self) -> str:
        """Its link from a page of experiments."""
        anchor = re.sub(r"[^\w -]", "", self.title).lower().replace(" ", "-")
        return f"[{self.title}](../results/README.md#{anchor})"

    def made_by(self, name: str) -> bool:
        """Return whether a command of the section runs an experiment."""
        return bool(re.search(rf"^ {{4}}.*configs/{name}\.py", self.text, re.M))

    def pictures(self) -> list[tuple[str, str]]:
        """Return the description and the file of each figure."""
        return re.findall(r"^!\[(.*?)\]\((.*?)\)", self.text, re.M)


def navigation(root: Path) -> list:
    """Return the entries of the pages, in the order of README.md."""
    return ["experiments/index.md", *({name: f"experiments/{name}.md"} for name in names(root))]


def pages(root: Path) -> dict[str, str]:
    """Return {path on the site: Markdown}."""
    found = {f"experiments/{name}.md": _page(root, name) for name in names(root)}
    return {"experiments/index.md": _index(root), **found}


def names(root: Path) -> list[str]:
    """Return the names of the experiments as README.md lists them."""
    rows = re.findall(r"^\| (`configs/.*?) \|", (root / "README.md").read_text("utf-8"), re.M)
    return re.findall(r"`configs/(\w+)\.py`", "".join(rows))


def _index(root: Path) -> str:
    cards = []
    for name in names(root):
        title, _ = _abstract(root, name)
        pictures = [found for section in _sections(root) if section.made_by(name)
                    for found in section.pictures()]  # fmt: skip
        card = [f"-   **[{name}]({name}.md)**", _escaped(title)]
        if pictures:
            card.insert(1, f"[![{pictures[0][0]}](../results/{pictures[0][1]})]({name}.md)")
        cards.append("\n\n    ".join(card))
    return INDEX.format(cards="\n\n".join(cards))


def _page(root: Path, name: str) -> str:
    title, about = _abstract(root, name)
    sections = [section for section in _sections(root) if f"configs/{name}.py" in section.text]
    made = [section for section in sections if section.made_by(name)]
    parts = [f"# {name}", f"**{_escaped(title)}**"]
    pictures = [found for section in made for found in section.pictures()]
    parts += [f"![{alt}](../results/{file})" for alt, file in pictures]
    parts += [about, "## Scores"]
    scores = [score for score in _scores(root) if f"configs/{name}.py" in score.command]
    if scores:
        parts += ['<div class="wide" markdown>', _table(scores), "</div>"]
    elif not sections:
        parts += ["None beyond those of the abstract above, if any."]
    if sections:
        parts += ["In the results: " + "; ".join(section.link for section in sections) + "."]
    if not pictures:
        parts += ["No picture yet."]
    source = (root / f"configs/{name}.py").read_text("utf-8")
    code = source[source.index('"""', 3) + 3 :].strip()
    parts += [
        "## The file",
        f'```python title="configs/{name}.py, below its abstract"\n{code}\n```',
    ]
    return "\n\n".join(parts) + "\n"


def _abstract(root: Path, name: str) -> tuple[str, str]:
    """Return the first paragraph of a file's docstring, and the others in Markdown."""
    text = ast.get_docstring(ast.parse((root / f"configs/{name}.py").read_text("utf-8"))) or ""
    title, _, rest = text.partition("\n\n")
    return " ".join(title.split()), "\n\n".join(_blocks(rest))


def _blocks(text: str):
    """Yield the paragraphs of an abstract in Markdown: code, lists of variants, or text."""
    for block in re.split(r"\n\n(?=\S)|(?<=\S)\n\n(?= )", text.strip("\n")):
        lines = block.splitlines()
        if all(line.startswith("    ") or not line for line in lines):
            code = "\n".join(line[4:] for line in lines)
            kind = "bash" if _CODE.search(code) else "text"
            yield f"```{kind}\n{code}\n```"
            continue
        # An introduction may stand right above the first variant.
        first = next((i for i, line in enumerate(lines) if _ENTRY.fullmatch(line)), len(lines))
        variants = lines[first:]
        if not variants or not all(_ENTRY.fullmatch(x) or x.startswith("  ") for x in variants):
            first, variants = len(lines), []
        if lines[:first]:
            yield " ".join(_escaped(line) for line in lines[:first])
        if variants:
            yield "\n\n".join(_entries(variants))


def _entries(lines: list[str]):
    entry: list[str] = []
    for line in [*lines, "end  ."]:
        if match := _ENTRY.fullmatch(line):
            if entry:
                yield f"`{entry[0]}`\n:   " + " ".join(entry[1:])
            entry = [match[1], _escaped(match[2])]
        else:
            entry.append(_escaped(line.strip()))


def _escaped(line: str) -> str:
    """Return prose with what looks like code as code, and links to papers."""
    line = _FILE.sub(r"`\g<0>`", line)
    line = re.sub(r"(?<![\w`])--config[\w.=-]*\w", r"`\g<0>`", line)
    return papers(re.sub(r"\bhttps://[\w./-]*\w", r"<\g<0>>", line))


def papers(text: str) -> str:
    """Return text with a link at each paper."""
    return re.sub(r"\barXiv:(\d{4}\.\d{4,5})", r"[arXiv:\1](https://arxiv.org/abs/\1)", text)


@functools.cache
def _sections(root: Path) -> list[Section]:
    text = (root / "results/README.md").read_text("utf-8")
    parts = re.split(r"^## (.*)\n", text, flags=re.M)[1:]
    found = [Section(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
    return [section for section in found if section.title != "All scores"]


@functools.cache
def _scores(root: Path) -> list[Score]:
    """Return the rows of the table of all scores; "the same" says the same as what."""
    text = (root / "results/README.md").read_text("utf-8").partition("## All scores")[2]
    found: list[Score] = []
    for line in text.partition("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == len(_COLUMNS) and not set(line) <= set("|- ") and cells[0] != "what":
            row = Score(*cells)
            if found and _SAME.match(row.what):
                before = re.sub(r"^.* \*as in:\* ", "", found[-1].what)
                row = row._replace(what=f"{row.what} *as in:* {before}")
            if found and _SAME.match(row.protocol):
                rest = _SAME.sub("", row.protocol, count=1)
                row = row._replace(protocol=found[-1].protocol + rest)
            found.append(row)
    return found


def _table(scores: list[Score]) -> str:
    rows = [_COLUMNS, ["---"] * len(_COLUMNS), *scores]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    text = re.sub(r"\]\(#", "](../results/README.md#", "\n".join(lines))
    return re.sub(r"\]\((?!\.\./|[a-z]+:)", "](../results/", text)

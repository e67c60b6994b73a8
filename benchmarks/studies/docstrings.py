"""Write a small set of documents with summaries: functions, and what their authors say of them.

    python benchmarks/studies/docstrings.py --output=data/docstrings

The documents are the functions of Python's standard library whose docstring begins with a sentence
on its own (PEP 257), without comments and that sentence; "<n>" stands for a line break, and lines
are not indented. The sentence is the summary. Nothing is downloaded, and each function is in the
split of its file (data.source="standard_library"); of equal documents the first is kept. Writes
train.jsonl, validation.jsonl and test.jsonl with the keys "document" and "summary", and prints the
ROUGE of three baselines on each: the first one or three sentences, of which code has one a line,
and the words in the function's name.
"""

import argparse
import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from transformer_jax.base.disk import write_text
from transformer_jax.config import DataConfig, EvaluationConfig
from transformer_jax.data.sources import standard_library
from transformer_jax.evaluation.metrics import score
from transformer_jax.evaluation.summaries import controls

SPLITS = ("train", "validation", "test")
WORDS, MOST = 3, 200  # the fewest words of a summary, and its most characters
SCORES = EvaluationConfig(metrics=("ROUGE-1", "ROUGE-2", "ROUGE-L"))


def functions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the document and the summary of each function in a file that has both."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # of another version of Python
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first, _, rest = (ast.get_docstring(node) or "").partition("\n\n")
            summary = " ".join(first.split())
            usable = summary.endswith(".") and len(summary) <= MOST
            node.body = [*([ast.Expr(ast.Constant(rest))] if rest else []), *node.body[1:]]
            if usable and len(summary.split()) >= WORDS and node.body:
                lines = (" ".join(line.split()) for line in ast.unparse(node).split("\n"))
                yield " <n> ".join(line for line in lines if line), summary


def named(document: str) -> str:
    """Return the words in the name of a document's function."""
    (name,) = re.findall(r"def (\w+)", document)[:1]
    return " ".join(re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True)
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    seen: set[str] = set()
    for split in SPLITS:
        pairs = []
        for text in standard_library.load(DataConfig(), split)[1]:
            for document, summary in functions(text):
                if document not in seen:
                    seen.add(document)
                    pairs.append((document, summary))
        rows = (json.dumps({"document": x, "summary": y}) + "\n" for x, y in pairs)
        write_text(output / f"{split}.jsonl", "".join(rows))
        print(f"{split}: {len(pairs)} functions")
        documents, summaries = ([*side] for side in zip(*pairs, strict=True))
        for line in controls(documents, summaries, SCORES):
            print(f"  {line}")
        found = score([named(x) for x in documents], summaries, SCORES)
        print("  the function's name:", ", ".join(f"{x.name} = {x.value:.1f}" for x in found))


if __name__ == "__main__":
    main()

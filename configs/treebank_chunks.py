"""Base phrases of the Penn Treebank sample: a label for each word, by a small BERT.

    python configs/treebank_chunks.py DIR
    python train.py --config=configs/treebank_chunks.py --config.data.directory=DIR
    python train.py --config=configs/treebank_chunks.py:scratch --config.data.directory=DIR
    python eval.py --workdir=runs/treebank_chunks --split=validation

The directory holds train.text and train.tree, validation.text and validation.tree: one sentence per
line, its words separated by spaces, and its tree, "(NP XX XX )NP" (as in section 6.3 of the paper;
NLTK's 5 % sample, 3,509 and 209 sentences). The first command writes train.chunk and
validation.chunk: a phrase that contains only words is a base phrase, B-NP I-NP and so on,
everything else is O (Ramshaw and Marcus 1995, arXiv:cmp-lg/9505040, whose base noun phrases are
most of these).

tuned    starts from runs/bert_brown (`--config.init.source`), with its tokenizer; labels are new.
scratch  the same model without pre-training, and 4,000 pieces of the training text.
"""

import re
import runpy
import sys
from pathlib import Path

from transformer_jax.config import Experiment


def get_config(start: str = "tuned"):
    """Return the experiment for "tuned" or "scratch"."""
    if start not in ("tuned", "scratch"):
        raise ValueError(f"no variant {start!r}; there are 'tuned' and 'scratch'")
    c = runpy.run_path(str(Path(__file__).with_name("bert_brown.py")))["get_config"]()
    if start == "tuned":
        c.init.source = "runs/bert_brown"
    else:
        c.tokenizer.vocab_size = 4000

    c.objective.name = "tag"
    c.objective.document = "line"
    c.objective.whole_words = False
    c.tgt.codec = "labels"
    c.tokenizer.joint = False
    c.data.directory = "data/treebank"
    c.data.source_language = "text"
    c.data.target_language = "chunk"
    c.data.how_to_get = "python configs/treebank_chunks.py DIR, where DIR has PART.text, PART.tree"
    c.data.tokens_per_batch = 16 * 128
    c.data.num_buckets = 4

    c.optimizer.algorithm = "adam"
    c.optimizer.update_rms = Experiment().optimizer.update_rms  # Muon only
    c.optimizer.learning_rate = 2e-4
    c.optimizer.warmup_steps = 100
    c.training.steps = 1500
    c.checkpoint.every_steps = 100
    c.checkpoint.best_by = "accuracy"
    c.evaluation.every_steps = 100
    return c


def chunks(tree: str) -> str:
    """Return the label of each word of a linearised tree."""

    def labels(phrase: re.Match) -> str:
        begin, kind = " ".join(["B-{0}", *["I-{0}"] * (phrase[2].count("XX") - 1)]), phrase[1]
        return begin.format(kind)

    marked = re.sub(r"\((\S+)((?: XX)+) \)\1", labels, tree)
    words = [word for word in marked.split() if word[0] not in "()"]
    return " ".join("O" if word == "XX" else word for word in words)


if __name__ == "__main__":
    for path in Path(sys.argv[1]).glob("*.tree"):
        lines = path.read_text(encoding="utf-8").splitlines()
        found = "".join(f"{chunks(line)}\n" for line in lines)
        path.with_suffix(".chunk").write_text(found, encoding="utf-8")

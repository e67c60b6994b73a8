"""Constituency parsing, section 6.3 of the paper: a sentence in, its tree out, on 3,509 trees.

    python configs/treebank.py DIR data/treebank
    python train.py --config=configs/treebank.py
    python train.py --config=configs/treebank.py:recurrent
    python eval.py --workdir=runs/treebank

DIR holds train.text and train.tree, validation.text and validation.tree: one sentence per line, its
words separated by spaces, and its tree as labelled brackets, "(S (NP XX )NP ... )S" (Vinyals et al.
2015, arXiv:1412.7449; NLTK's 5 % sample of the Penn Treebank, 3,509 and 209 sentences). The first
command sets every 18th training sentence aside as `chosen`, on which settings are chosen; `test` is
what was named validation.

Sources are words, the 4,000 most frequent ones, and trees have their words numbered
(transformer_jax/data/codecs/trees.py): so the decoder knows which word comes next, and finds it by
its position. The search writes only well-formed trees with a leaf for each word
(decoding.constraint).

transformer  pre-norm Transformer, 4 + 4 layers of width 128, as in configs/multi30k.py. Labelled F1
             on `test`, with and without punctuation: 72.9 (95 % within 2.4) and 73.4; flat trees
             have 9.8. Seed 0, beam 5, last checkpoint; 25 minutes of a core. Before words were
             numbered, with pieces in place of words, its best on the chosen sentences was 39.6.
recurrent    LSTM layers with attention, as in Vinyals et al. After 1,000 steps, 28 minutes of a
             core shared with other programs, 49.0 and 52.8.
"""

import sys
from pathlib import Path

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

VARIANTS: dict = {"transformer": {}, "recurrent": {}}
HELD_OUT = 18  # one training sentence in this many


def get_config(model: str = "transformer"):
    """Return the experiment of one of VARIANTS."""
    if model not in VARIANTS:
        raise ValueError(f"no variant {model!r}; there are {', '.join(VARIANTS)}")
    c = door(Experiment())
    c.src.codec, c.tgt.codec = "words", "trees"
    c.tokenizer.joint = False
    c.tokenizer.vocab_size = 4000
    c.data.directory = "data/treebank"
    c.data.source_language, c.data.target_language = "text", "tree"
    c.data.train, c.data.validation, c.data.test = ("train",), ("chosen",), ("test",)
    c.data.how_to_get = "python configs/treebank.py DIR data/treebank"
    c.data.max_length = 200
    c.data.tokens_per_batch = 2048
    c.data.num_buckets = 4

    c.model.tied_embeddings = "decoder"
    c.model.dropout_rate = 0.35 if model == "transformer" else 0.3
    c.model.compute_dtype = "bfloat16"
    if model == "recurrent":
        c.model.architecture, c.model.positions = "recurrent", "none"
        c.model.d_model, c.model.residual = 256, "post_norm"
        c.model.encoder_pattern, c.model.decoder_pattern = ("bilstm",), ("lstm",)
        c.model.num_encoder_layers, c.model.num_decoder_layers = 2, 2
        c.model.source_attention = "additive"
    else:
        c.model.d_model, c.model.d_ff, c.model.num_heads = 128, 256, 4
        c.model.num_encoder_layers, c.model.num_decoder_layers = 4, 4
        c.model.residual = "pre_norm"

    c.optimizer.algorithm = "muon"
    c.optimizer.update_rms = 0.4
    c.optimizer.weight_decay = 0.1
    c.optimizer.schedule = "linear"
    c.optimizer.learning_rate = 2.5e-3
    c.optimizer.warmup_steps = 300
    c.training.ema_decay = 0.999
    c.training.steps = 5000
    c.checkpoint.every_steps = 250
    c.checkpoint.best_by = "loss"
    c.checkpoint.keep_last = 1
    c.evaluation.every_steps = 1000
    c.evaluation.bleu_sentences = 0
    c.evaluation.checkpoint = "last"
    c.evaluation.metrics = ("labelled_F1",)
    c.decoding.constraint = "tree"
    c.decoding.beam_size = 5
    c.decoding.max_length_ratio = 2.5
    c.decoding.max_extra_length = 50
    return c


def split(directory: Path, output: Path) -> None:
    """Write the parts train, chosen and test of trees and sentences."""
    output.mkdir(parents=True, exist_ok=True)
    for ending in ("text", "tree"):
        parts = {
            name: (directory / f"{name}.{ending}").read_text(encoding="utf-8").splitlines(True)
            for name in ("train", "validation")
        }
        chosen = parts["train"][HELD_OUT - 1 :: HELD_OUT]
        del parts["train"][HELD_OUT - 1 :: HELD_OUT]
        for name, lines in (
            ("train", parts["train"]),
            ("chosen", chosen),
            ("test", parts["validation"]),
        ):
            (output / f"{name}.{ending}").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    split(Path(sys.argv[1]), Path(sys.argv[2]))

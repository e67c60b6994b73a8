"""Summaries: the sentence that begins a function's docstring, from the rest of the function.

    python benchmarks/studies/docstrings.py --output=data/docstrings
    python train.py --config=configs/summaries.py
    python train.py --config=configs/summaries.py:decoder
    python eval.py --workdir=runs/summaries

The documents are functions of the standard library of the Python that runs, about 4,000 with that
of 3.11, so nothing is downloaded. The set shows how summaries are trained and scored, by ROUGE
beside the first sentences of the documents; it is far too small for a good model. See
docs/recipes.md for CNN/DailyMail and XSum.

encoder_decoder  reads the first 127 pieces of a document, and attends to them as it writes.
decoder          one sequence of at most 160 pieces, which begins with the first 100 of a document.

After 1,000 updates of `encoder_decoder`, best checkpoint by validation loss, seed 0, ROUGE-1, -2
and -L of the 350 test functions of Python 3.11.7 are 21.9, 5.4 and 20.3 (1.6, 1.1 and 1.6 each way,
95 %). The first line of a function (lead-1) has 18.8, 2.7 and 17.2, three lines (lead-3) 21.0, 4.1
and 17.0, and the words in its name 12.8, 1.5 and 12.5. 5 minutes of a core. `decoder` has not been
run.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

VARIANTS = ("encoder_decoder", "decoder")


def get_config(variant: str = "encoder_decoder"):
    """Return the experiment of one of VARIANTS."""
    if variant not in VARIANTS:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(VARIANTS)}")
    c = door(Experiment())
    c.model.d_model = 128
    c.model.d_ff = 512
    c.model.num_heads = 4
    c.model.num_decoder_layers = 3
    c.model.residual = "pre_norm"
    c.model.dropout_rate = 0.2

    c.data.directory = "data/docstrings"
    c.data.train = ("train.jsonl",)
    c.data.validation = ("validation.jsonl",)
    c.data.test = ("test.jsonl",)
    c.data.columns = ("source=document", "target=summary")
    c.data.how_to_get = "python benchmarks/studies/docstrings.py --output=data/docstrings"
    c.data.long_sources = "cut"
    c.data.max_length = 128
    c.data.max_length_ratio = 1000.0
    c.data.tokens_per_batch = 4096
    c.data.num_buckets = 4
    c.tokenizer.vocab_size = 4000
    c.tokenizer.symbols = ("<n>",)

    if variant == "decoder":
        c.model.architecture = "decoder"
        c.objective.name = "prefix_lm"
        c.objective.window = 100
        c.data.max_length = 160
    else:
        c.model.num_encoder_layers = 3

    c.optimizer.schedule = "linear"
    c.optimizer.learning_rate = 1e-3
    c.optimizer.warmup_steps = 100
    c.training.steps = 1000
    c.checkpoint.every_steps = 200
    c.checkpoint.best_by = "loss"
    c.evaluation.every_steps = 200
    c.evaluation.bleu_sentences = 0
    c.evaluation.metrics = ("ROUGE-1", "ROUGE-2", "ROUGE-L")
    return c

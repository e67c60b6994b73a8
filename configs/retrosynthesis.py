"""Retrosynthesis: the molecules that react to a given one, both sides in SMILES.

    python train.py --config=configs/retrosynthesis.py --config.data.directory=DIR
    python train.py --config=configs/retrosynthesis.py:augmented --config.data.directory=DIR
    python benchmarks/studies/top_n.py runs/retrosynthesis --split=test --n=5

The directory holds train.tsv and validation.tsv: the class of a reaction, which is not read, the
product and the reactants, of 40,029 and 5,004 reactions of US patents (USPTO-50k, CC0, as
github.com/pandegroup/reaction_prediction_seq2seq divides them). Every 40th row of train.tsv selects
the checkpoint; validation.tsv is scored as the test split. Published for a Transformer of 3 layers
and 8 heads without the class, on the official test: of the five most probable answers, 42.7 % have
the right one first, 63.9 % among three, 69.8 % among all (Karpov et al. 2019, "A Transformer Model
for Retrosynthesis", doi:10.1007/978-3-030-30493-5_78).

`:augmented` trains on four other spellings of each product as well, random SMILES that the extra
`smiles` (RDKit) writes, as Tetko et al. 2020 (doi:10.1038/s41467-020-19266-y) do on both sides.

Not trained here yet: see results/notes/retrosynthesis.md.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

VARIANTS: dict = {"plain": {}, "augmented": {"augment": ("random_smiles",)}}


def get_config(variant: str = "plain"):
    """Return the experiment of one of VARIANTS."""
    if variant not in VARIANTS:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(VARIANTS)}")
    c = door(Experiment())
    c.model.d_model, c.model.d_ff, c.model.num_heads = 256, 1024, 8
    c.model.num_encoder_layers = c.model.num_decoder_layers = 3
    c.model.residual = "pre_norm"
    c.model.positions, c.model.relative_positions = "none", "rope"
    c.model.compute_dtype = "bfloat16"

    c.src.codec = c.tgt.codec = "smiles"
    c.data.directory = "data/retrosynthesis"
    c.data.how_to_get = (
        "github.com/pandegroup/reaction_prediction_seq2seq, as rows of class, product, reactants"
    )
    c.data.source_language, c.data.target_language = "product", "reactants"
    c.data.columns = ("source=2", "target=3")
    c.data.train = ("train.tsv[!::40]",)
    c.data.validation = ("train.tsv[::40]",)
    c.data.test = ("validation.tsv",)
    for name, value in VARIANTS[variant].items():
        setattr(c.data, name, value)
    c.data.max_length = 200
    c.data.tokens_per_batch = 8192
    c.data.num_buckets = 6

    c.optimizer.algorithm = "muon"
    c.optimizer.update_rms = 0.4
    c.optimizer.weight_decay = 0.1
    c.optimizer.schedule = "linear"
    c.optimizer.learning_rate = 2e-3
    c.optimizer.warmup_steps = 400
    c.training.ema_decay = 0.999
    c.training.steps = 16_000
    c.checkpoint.every_steps = c.evaluation.every_steps = 1000
    c.checkpoint.best_by = "loss"
    c.checkpoint.keep_last = 1
    c.evaluation.bleu_sentences = 0
    c.decoding.beam_size = 10
    c.decoding.alpha = 0.0
    return c

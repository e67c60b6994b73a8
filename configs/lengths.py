"""Do position schemes extrapolate beyond training lengths? English to German, up to 32 pieces.

    python benchmarks/studies/lengths.py text --tatoeba=DIR --multi30k=DIR --output=PLACE
    transformer-jax sweep --config=configs/lengths.py --variants=all --workdir=runs/lengths \
      --evaluate=test --config.data.directory=PLACE
    for scheme in sinusoidal learned none rope alibi t5; do
      python eval.py --workdir=runs/lengths/$scheme --split=test --config.data.max_length=128; done
    python benchmarks/studies/lengths.py picture runs/lengths --output=results/lengths
    python train.py --config=configs/lengths.py:rope --config.data.directory=PLACE

Everyday sentences (Tatoeba) and captions (Multi30k), single or several concatenated, of at most 32
pieces with EOS; tested on concatenated sentences of up to 128 pieces. One small pre-norm model for
each position scheme, with everything else the same. None extrapolates: of 30 BLEU at 17 to 32
pieces 8 to 14 are left at 49 to 64, and 1 to 6 at 113 to 128; read in parts, texts of all lengths
keep 28 to 36, except for the model without positions (results/).
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

SCHEMES: dict = {
    "sinusoidal": {},
    "learned": {"positions": "learned", "max_positions": 128},  # 32 of its rows are trained
    "none": {"positions": "none"},
    "rope": {"positions": "none", "relative_positions": "rope"},
    "alibi": {"positions": "none", "relative_positions": "alibi"},
    "t5": {"positions": "none", "relative_positions": "t5"},
}
VARIANTS: dict = {name: {} for name in SCHEMES}  # no published figures to compare with


def get_config(scheme: str = "sinusoidal"):
    """Return the experiment of one of SCHEMES."""
    if scheme not in SCHEMES:
        raise ValueError(f"no variant {scheme!r}; there are {', '.join(SCHEMES)}")
    c = door(Experiment())
    c.model.d_model = 128
    c.model.d_ff = 512
    c.model.num_heads = 4
    c.model.num_encoder_layers = 3
    c.model.num_decoder_layers = 3
    c.model.residual = "pre_norm"
    c.model.compute_dtype = "bfloat16"

    c.data.directory = "data/lengths"
    c.data.how_to_get = "python benchmarks/studies/lengths.py text"
    c.data.max_length = 32
    c.data.tokens_per_batch = 4096
    c.data.num_buckets = 4
    c.tokenizer.vocab_size = 8000

    c.optimizer.algorithm = "muon"
    c.optimizer.update_rms = 0.4
    c.optimizer.schedule = "linear"
    c.optimizer.learning_rate = 2e-3
    c.optimizer.warmup_steps = 200
    c.training.ema_decay = 0.998
    c.training.steps = 1600
    c.checkpoint.every_steps = 400
    c.checkpoint.keep_last = 1
    c.checkpoint.best_by = "loss"
    c.evaluation.every_steps = 400
    c.evaluation.bleu_sentences = 0  # the sweep scores the long sentences at the end
    c.evaluation.checkpoint = "last"
    for name, value in SCHEMES[scheme].items():
        setattr(c.model, name, value)
    return c

"""The effect of single changes to a translation model: Multi30k, lc-tok, English to German.

    transformer-jax sweep --config=configs/variants.py --variants=all --workdir=runs/variants_all \
      --evaluate=validation --config.data.directory=DIR
    python train.py --config=configs/variants.py:ff-swiglu --config.data.directory=DIR

The base is a pre-norm Transformer of 4 + 4 layers, d_model 128, d_ff 256, 4 heads and 10,000 pieces
(2.6 M parameters), trained for 2,000 updates of 2,048 positions with Muon, at a constant learning
rate and scored as a running mean, so that its curve may be read anywhere: at equal updates and at
equal processor time. Every variant changes one thing and nothing else; where a gated feed-forward
layer has a third matrix, d_ff is two thirds, for equal parameters.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

GATED = {"d_ff": 168}  # two thirds of 256, rounded down to a multiple of 8
RELATIVE = {"positions": "none"}  # a relative scheme in place of the sinusoids

# Variant: the fields of the model that it changes.
CHANGES: dict = {
    "base": {},
    "positions-learned": {"positions": "learned"},
    "positions-none": {"positions": "none"},
    "positions-rope": {"relative_positions": "rope", **RELATIVE},
    "positions-rope-beside-sinusoids": {"relative_positions": "rope"},
    "positions-alibi": {"relative_positions": "alibi", **RELATIVE},
    "positions-t5": {"relative_positions": "t5", **RELATIVE},
    "positions-toeplitz": {"relative_positions": "toeplitz", **RELATIVE},
    "positions-shaw": {"relative_positions": "shaw_values", **RELATIVE},
    "positions-xlnet": {"relative_positions": "xlnet", **RELATIVE},
    "norm-rms": {"norm": "rms_norm"},
    "norm-scale": {"norm": "scale_norm"},
    "norm-no-bias": {"norm": "layer_norm_no_bias"},
    "norm-embeddings": {"embedding_norm": "fix_norm"},
    "norm-queries-keys": {"query_key_norm": "per_head"},
    "residual-post-norm": {"residual": "post_norm"},
    "residual-sandwich": {"residual": "sandwich"},
    "residual-reordered": {"residual": "reordered_norm"},
    "residual-deep-norm": {"residual": "deep_norm"},
    "ff-gelu": {"activation": "gelu"},
    "ff-silu": {"activation": "silu"},
    "ff-relu-squared": {"activation": "relu_squared"},
    "ff-reglu": {"activation": "reglu", **GATED},
    "ff-geglu": {"activation": "geglu", **GATED},
    "ff-swiglu": {"activation": "swiglu", **GATED},
    # Each position passes through two of eight, which is the work of base's.
    "ff-experts": {"feed_forward_pattern": ("experts",), "d_ff": 128},
    "heads-2": {"num_heads": 2},
    "heads-8": {"num_heads": 8},
    "heads-grouped-2": {"num_kv_heads": 2},
    "heads-multi-query": {"num_kv_heads": 1},
    "heads-latent": {  # a latent as long as the key and the value of multi-query attention
        "encoder_pattern": ("latent",),
        "decoder_pattern": ("latent",),
        "latent_size": 64,
    },
    "biases-none": {"biases": ()},
    "tied-none": {"tied_embeddings": "none"},
    "initial-gpt2": {"initializer": "gpt2"},
    "layers-shared": {"layer_sharing": "all"},
    "layers-dropped": {"layer_drop_rate": 0.1},
    "layers-6-2": {"num_encoder_layers": 6, "num_decoder_layers": 2},
}
VARIANTS: dict = {name: {} for name in CHANGES}  # no published figures to compare with


def get_config(variant: str = "base"):
    """Return the experiment of one of CHANGES."""
    if variant not in CHANGES:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(CHANGES)}")
    c = door(Experiment())
    c.model.d_model = 128
    c.model.d_ff = 256
    c.model.num_heads = 4
    c.model.num_encoder_layers = 4
    c.model.num_decoder_layers = 4
    c.model.residual = "pre_norm"
    c.model.dropout_rate = 0.2
    c.model.compute_dtype = "bfloat16"

    c.data.directory = "data/multi30k"
    c.data.train = ("train.lc.norm.tok",)
    c.data.validation = ("val.lc.norm.tok",)
    c.data.test = ("test_2016_flickr.lc.norm.tok",)
    c.data.how_to_get = (
        "git clone https://github.com/multi30k/dataset; its data/task1/tok has these files"
    )
    c.data.max_length = 128
    c.data.tokens_per_batch = 2048
    c.data.num_buckets = 8  # few programs to compile: every variant has its own
    c.tokenizer.vocab_size = 10_000

    c.optimizer.algorithm = "muon"
    c.optimizer.update_rms = 0.4
    c.optimizer.weight_decay = 0.1
    c.optimizer.schedule = "constant"
    c.optimizer.learning_rate = 1.5e-3
    c.optimizer.warmup_steps = 200
    c.training.ema_decay = 0.998
    c.training.steps = 2000
    c.checkpoint.every_steps = 200
    c.checkpoint.keep_last = 1
    c.checkpoint.best_by = "loss"
    c.evaluation.every_steps = 200
    c.evaluation.bleu_sentences = 0  # the sweep scores all of them at the end, with beam search
    c.evaluation.checkpoint = "last"
    c.evaluation.bleu_tokenize = "none"
    c.decoding.beam_size = 5
    c.decoding.length_penalty = "power"
    c.decoding.alpha = 1.0
    for name, value in CHANGES[variant].items():
        setattr(c.model, name, value)
    return c

"""ListOps: the value of nested lists, by encoders with different mixers.

    python train.py --config=configs/listops.py:bigbird
    python eval.py --workdir=runs/listops-bigbird
    transformer-jax sweep --config=configs/listops.py --variants=all --workdir=runs/listops_all \
      --evaluate=test
    python train.py --config=configs/listops.py:masked-rotary
    python train.py --config=configs/listops.py:pretrained-rotary

Long Range Arena's task (arXiv:2011.04006), at lengths that two cores can train: 50 to 200 symbols,
lists of at most 6 levels and 6 arguments, 40,000 texts. A model that has learned something beats
all of three ways of guessing: the commonest class, right for 12 %, the best class for the first
operator, 28 %, and that operator applied to the digits of its own list, 39 %. "arena" in a
variant's name, as in `:arena-full`, uses the lengths and sizes of the Arena itself.

4 layers, d_model 128, 4 heads, a mean over positions; 4,000 updates of 4,096 positions with Muon.
On 2,000 test texts full attention then had 38.1 % (Adam: 36.0 %), `bilstm` 50.2, `bimega` 52.3 %.
Without dropout, as in `:no_dropout-bilstm`, the last two have 52.5 and 53.4 %.
"reformer" is lsh with reversible layers, and feed-forward layers in four chunks of positions.

masked-NAME      self-pre-training (Amos et al. 2023, arXiv:2310.02980): the same model predicts
                 symbols of the 40,000 training texts, of which a tenth is masked, in as many
                 updates; it reads neither their values nor other texts
pretrained-NAME  the task, from runs/listops-masked-NAME (`--config.init.source`); only the map to
                 classes is new. With "rotary", seed 0, 50.5 % of the test
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

MIXERS: dict = {
    "full": {},
    "rotary": {
        "encoder_pattern": ("full",),
        "positions": "none",
        "relative_positions": "rope",
    },
    "local": {"window": 16},
    "longformer": {"window": 16},
    "bigbird": {"block_size": 8, "random_blocks": 2},
    "lsh": {"block_size": 16, "hash_buckets": 16},
    "reformer": {  # the whole model: two reversible streams, chunks of d_ff
        "encoder_pattern": ("lsh",),
        "block_size": 16,
        "hash_buckets": 16,
        "residual": "reversible",
        "feed_forward_chunks": 4,
    },
    "linear": {},
    "random_features": {"num_features": 32},
    "favor": {"num_features": 64},
    "aft_simple": {},
    "aft_conv": {"window": 16},
    "bilstm": {},
    "bigru": {},
    "bis4d": {},
    "bimamba": {"state_size": 16},
    "bimamba2": {"state_size": 32},
    "bigated_delta": {"state_size": 32},
    "biretention": {"state_size": 32},
    "birwkv7": {},
    "bimega": {"state_size": 16},
}
VARIANTS: dict = {name: {} for name in MIXERS}  # published figures are for other lengths


def get_config(variant: str = "full"):
    """Return the experiment of one of MIXERS, after "masked-" or "pretrained-", "no_dropout-" and
    "arena-", each of which may be left out.
    """
    start, _, rest = variant.partition("-")
    start, whole = (start, rest) if start in ("masked", "pretrained") else ("", variant)
    dropout = not whole.startswith("no_dropout-")
    arena = whole.removeprefix("no_dropout-").startswith("arena-")
    mixer = whole.removeprefix("no_dropout-").removeprefix("arena-")
    if mixer not in MIXERS:
        others = "arena-NAME, masked-NAME, pretrained-NAME and no_dropout-NAME"
        raise ValueError(f"no variant {variant!r}; there are {', '.join(MIXERS)}, {others}")
    c = door(Experiment())
    c.model.architecture = "encoder"
    c.model.num_encoder_layers = 4
    c.model.encoder_pattern = MIXERS[mixer].get("encoder_pattern", (mixer,))
    c.model.d_model = 512 if arena else 128
    c.model.d_ff = 1024 if arena else 256
    c.model.num_heads = 8 if arena else 4
    c.model.residual = "pre_norm"
    c.model.pooling = "mean"
    c.model.compute_dtype = "bfloat16"
    if not dropout:
        c.model.dropout_rate = 0.0
    for name, value in MIXERS[mixer].items():
        setattr(c.model, name, value)

    c.objective.name = "classify"
    c.objective.window = 2048 if arena else 208
    c.src.codec = "words"
    c.tgt.codec = "classes"
    c.tokenizer.joint = False
    c.tokenizer.vocab_size = 19  # four named pieces and 15 symbols
    c.data.source = "listops"
    c.data.source_language = "text"
    c.data.target_language = "value"
    c.data.num_examples = (96_000, 2000, 2000) if arena else (40_000, 2000, 2000)
    if not arena:
        c.data.example_lengths = (50, 200)
        c.data.list_depth = 6
        c.data.list_arguments = 6
    c.data.max_length = c.objective.window
    c.data.tokens_per_batch = 32 * 2048 if arena else 4096
    c.data.num_buckets = 4

    c.optimizer.algorithm = "muon"
    c.optimizer.update_rms = 0.4
    c.optimizer.schedule = "linear"
    c.optimizer.learning_rate = 2e-3
    c.optimizer.warmup_steps = 500
    c.optimizer.weight_decay = 0.1
    c.optimizer.clip_norm = 1.0
    c.training.label_smoothing = 0.0
    c.training.steps = 5000 if arena else 4000
    c.checkpoint.every_steps = 500
    c.checkpoint.best_by = "accuracy"
    c.checkpoint.keep_last = 1
    c.evaluation.every_steps = 500
    c.evaluation.bleu_sentences = 0
    if start:
        c.tokenizer.vocab_size = 20  # <mask> besides
    if start == "masked":
        c.objective.name, c.objective.mask_rate = "masked_lm", 0.1
        c.data.target_language = "text"
        c.src.codec, c.tgt.codec = Experiment().src.codec, "words"
        c.tokenizer.joint = True
        c.checkpoint.best_by = "loss"
    elif start == "pretrained":
        c.init.source = f"runs/listops-masked-{whole}"
    return c

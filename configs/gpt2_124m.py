"""GPT-2's smallest model, 124 million parameters, on running text; for one GPU.

    python train.py --config=configs/gpt2_124m.py --config.data.directory=DIR
    python train.py --config=configs/gpt2_124m.py:modern --config.data.directory=DIR
    python eval.py --workdir=runs/gpt2_124m --split=validation

DIR holds train.txt and validation.txt: a paragraph a line, an empty line after each document. The
number of steps is meant for 60 million characters, such as the novels of ELTeC-eng (1840 to 1920):
about five epochs. Compare bits a byte, which do not depend on the pieces.

gpt2    12 layers, 12 heads, width 768, a context of 1,024, 50,304 pieces (a multiple of 128, as in
        https://github.com/karpathy/nanoGPT), and nanoGPT's optimizer: Adam, b2 0.95, weight decay
        0.1, clipping at 1, a cosine from 6e-4. Batches have 64 windows, an eighth of its tokens.
modern  the same sizes with rotary positions, normalised queries and keys, squared ReLU, RMSNorm and
        no biases, residual parts that start at zero, and Muon: the parts of
        https://github.com/KellerJordan/modded-nanogpt that are words here. Its rates are not tuned.

Neither has been trained yet; results/README.md lists what was.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

WINDOW = 1024


def get_config(recipe: str = "gpt2"):
    """Return the experiment for "gpt2" or "modern"."""
    if recipe not in ("gpt2", "modern"):
        raise ValueError(f"no variant {recipe!r}; there are 'gpt2' and 'modern'")
    c = door(Experiment())
    c.model.architecture = "decoder"
    c.model.num_decoder_layers = 12
    c.model.num_heads = 12
    c.model.d_model = 768
    c.model.d_ff = 3072
    c.model.residual = "pre_norm"
    c.model.activation = "gelu_tanh"
    c.model.norm_epsilon = 1e-5
    c.model.positions = "learned"
    c.model.max_positions = WINDOW
    c.model.embedding_scale = False
    c.model.dropout_rate = 0.0
    c.model.initializer = "gpt2"
    c.model.compute_dtype = "bfloat16"
    c.model.attention = "fused"

    c.objective.name = "language_model"
    c.objective.document = "joined"
    c.objective.window = WINDOW
    c.tokenizer.vocab_size = 50_304
    c.tokenizer.byte_fallback = True
    c.data.directory = "data/books_en"
    c.data.target_language = "txt"
    c.data.how_to_get = "write a paragraph a line into train.txt and validation.txt"
    c.data.test = ("validation",)
    c.data.batching = "pack"
    c.data.max_length = WINDOW
    c.data.tokens_per_batch = 64 * WINDOW

    c.optimizer.schedule = "cosine"
    c.optimizer.learning_rate = 6e-4
    c.optimizer.warmup_steps = 100
    c.optimizer.b2 = 0.95
    c.optimizer.epsilon = 1e-8
    c.optimizer.weight_decay = 0.1
    c.optimizer.clip_norm = 1.0
    c.training.label_smoothing = 0.0
    c.training.steps = 1200
    c.training.steps_per_execution = 10  # one batch shape, and so one program
    c.checkpoint.every_steps = 200
    c.checkpoint.keep_last = 1
    c.checkpoint.best_by = "loss"
    c.evaluation.every_steps = 200
    c.evaluation.bleu_sentences = 0
    if recipe == "modern":
        c.model.positions, c.model.relative_positions = "none", "rope"
        c.model.max_positions = Experiment().model.max_positions
        c.model.query_key_norm = "per_head"
        c.model.activation = "relu_squared"
        c.model.norm, c.model.biases = "rms_norm", ()
        c.model.initializer = "gpt2_zero"
        c.optimizer.algorithm = "muon"
        c.optimizer.schedule, c.optimizer.learning_rate = "linear", 2e-3
        c.optimizer.clip_norm = None
    return c

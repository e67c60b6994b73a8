"""Chess without search (Ruoss et al. 2024, arXiv:2402.04494), small: position in, move out.

    pip install chess
    python train.py --config=configs/chess.py
    python train.py --config=configs/chess.py:value
    python benchmarks/studies/chess_games.py runs/chess

Positions are generated when a run first starts, about 400 per second, and kept for all later ones.
The teacher is not Stockfish: it counts material after the opponent's best reply
(transformer_jax/data/sources/chess_positions.py). A model is taught one of its best moves, 11 on
average, or all: the target is then the uniform distribution over them, whose entropy is a lower
bound of the loss.

policy   all best moves; a move's logit is computed from the squares that it connects, as in
         AlphaZero and Leela Chess Zero, and from those that it passes over
         (transformer_jax/models/move_head.py), on a board seen by the side to move, with a trained
         bias for each distance between two characters.
move     behaviour cloning: one of 1,968 classes.
moves    the same classes, but all best moves.
squares  one best move in writing: the square that it leaves and then, given that, the one it goes
         to, by a decoder of 2 layers that attends to the 77 characters.
value    the value of the position to the side to move, -10 to 10 pawns: 21 classes.

4 layers, d_model 128, learned positions; classes are predicted from the mean over the 77
characters. Seed 0, a shared core, held-out positions: how many of the likeliest moves are legal,
and how many of the likeliest legal ones are among the teacher's best. Taking the greatest piece
is among them in 47.1 %.

policy   99.8 % and 95.0 % of validation, 99.2 and 95.0 % of the test split, 56 minutes. Without the
         squares that a move passes over, and with 4 heads, 97.4 and 94.0 % of validation; most
         illegal moves then jumped over a piece.
squares  71.7 % and 57.5 % of the test split, 67 minutes.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

VARIANTS: dict = {
    "policy": {},
    "move": {},
    "moves": {},
    "squares": {},
    "value": {},
}  # no published figures to compare with


def get_config(target: str = "policy"):
    """Return the experiment of one of VARIANTS."""
    if target not in VARIANTS:
        raise ValueError(f"no variant {target!r}; there are {', '.join(VARIANTS)}")
    c = door(Experiment())
    c.model.num_encoder_layers = 4
    c.model.d_model, c.model.d_ff, c.model.num_heads = 128, 256, 4
    c.model.residual, c.model.activation = "pre_norm", "gelu"
    c.model.positions, c.model.max_positions = "learned", 79
    c.model.embedding_scale = False  # where a piece stands matters as much as what it is
    c.model.compute_dtype = "bfloat16"

    if target != "squares":
        c.model.architecture, c.objective.window = "encoder", 79
    if target == "squares":
        c.model.num_decoder_layers = 2
        c.model.tied_embeddings = "decoder"
        c.data.max_length_ratio = 79.0
        c.decoding.max_length_ratio, c.decoding.max_extra_length = 0.0, 4
        c.evaluation.metrics = ("WER",)  # of squares; legal moves and the teacher's come with it
        c.tokenizer.vocab_size = 4 + 64 + 1  # the squares and "q": other promotions are rare
    elif target == "policy":
        c.objective.name = "policy"
        c.model.num_heads = 8
        c.model.initializer = "gpt2"
        c.model.relative_positions, c.model.relative_clip = "toeplitz", 78  # the whole board
        c.model.share_relative_positions = False
    else:
        c.objective.name, c.model.pooling = "classify", "mean"
    c.src.codec = "board" if target == "policy" else "fen"
    c.tgt.codec = {"squares": "words", "value": "classes"}.get(target, "moves")
    c.tokenizer.joint = False
    c.data.source = "chess"
    c.data.source_language = "fen"
    c.data.target_language = "moves" if target == "policy" else target
    c.data.num_examples = (200_000, 1000, 1000)
    c.data.max_length = 79
    c.data.tokens_per_batch = 64 * 79
    c.data.num_buckets = 1

    c.optimizer.algorithm = "muon"
    c.optimizer.schedule = "cosine"
    c.optimizer.learning_rate, c.optimizer.warmup_steps = 2e-3, 200
    c.optimizer.weight_decay = 0.1
    c.training.steps = 8000
    c.checkpoint.every_steps, c.evaluation.every_steps = 500, 500
    c.checkpoint.best_by = "loss"
    c.checkpoint.keep_last = 1
    c.evaluation.bleu_sentences = 0
    return c

"""Masters' games of chess as text: a language model of moves, which never sees a board.

    python train.py --config=configs/chess_games.py --config.data.directory=DIR
    python eval.py --workdir=runs/chess_games
    python benchmarks/studies/chess_text.py runs/chess_games DIR/validation.tsv

The directory holds train.tsv, or train.tsv.gz, and validation.tsv: the result of a game, both
ratings, the year, and the moves in algebraic notation, "e4 c5 Nf3 ...": 100,000 and 2,000 games of
players of 2300 or more, each sequence of moves once. Every 100th game of train.tsv selects the
checkpoint; validation.tsv is scored as the test split. Any games will do: python-chess writes the
moves of a PGN file in this form.

A piece is a move, the 4,500 most frequent of about 4,900; the end of a game is one, too. The study
counts how often the likeliest piece is the next move and how often it is a legal one, reads the
board from the states of each layer by a linear map, and plays. On validation, the commonest move
after the last two is the next one in 17.5 %, a random legal move in 5.2 %. Toshniwal et al. 2022
(arXiv:2102.13249) train GPT-2 on 200,000 games, squares as pieces, and find almost all of its moves
legal.

4 layers, width 128, rotary positions: 1.4 M parameters, 39 minutes on a core beside other programs.
On validation, seed 0, the likeliest piece is the next move in 26.0 % and a legal one in 75.0 %. See
results/notes/chess_games.md.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door


def get_config():
    """Return the experiment."""
    c = door(Experiment())
    c.model.architecture = "decoder"
    c.model.num_decoder_layers, c.model.num_heads = 4, 4
    c.model.d_model, c.model.d_ff = 128, 512
    c.model.residual, c.model.activation = "pre_norm", "relu_squared"
    c.model.positions, c.model.relative_positions = "none", "rope"
    c.model.query_key_norm, c.model.initializer = "per_head", "gpt2"
    c.model.dropout_rate = 0.0

    c.objective.name, c.objective.document = "language_model", "line"
    c.objective.window = 256
    c.tgt.codec = "words"
    c.tokenizer.vocab_size = 4500
    c.data.directory = "data/chess_games"
    c.data.target_language = "moves"
    c.data.columns = ("target=5",)
    c.data.train = ("train.tsv[!::100]",)
    c.data.validation = ("train.tsv[::100]",)
    c.data.test = ("validation.tsv",)
    c.data.how_to_get = (
        "games as rows of result, two ratings, year and moves, such as of a PGN file"
    )
    c.data.batching = "pack"
    c.data.max_length = 256
    c.data.tokens_per_batch = 16 * 256

    c.optimizer.algorithm, c.optimizer.update_rms = "muon", 0.4
    c.optimizer.weight_decay = 0.1
    c.optimizer.schedule = "linear"
    c.optimizer.learning_rate, c.optimizer.warmup_steps = 2e-3, 100
    c.training.label_smoothing = 0.0
    c.training.ema_decay = 0.995
    c.training.steps = 1600
    c.checkpoint.every_steps = c.evaluation.every_steps = 400
    c.checkpoint.best_by = "loss"
    c.checkpoint.keep_last = 1
    c.evaluation.bleu_sentences = 0
    c.decoding.search = "sample"
    return c

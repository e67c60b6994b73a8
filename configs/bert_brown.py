"""A small BERT on the Brown corpus, from scratch: masked pieces, in windows of 128.

    python train.py --config=configs/bert_brown.py --config.data.directory=DIR
    python train.py --config=configs/bert_brown.py:nsp --config.data.directory=DIR
    python eval.py --workdir=runs/bert_brown --split=validation

The directory holds train.txt and validation.txt, one sentence per line: NLTK's Brown corpus,
tokenised, with the last 2,000 sentences for validation and 53,340, a million words, for training.

BERT's architecture (Devlin et al. 2019, arXiv:1810.04805): post-norm, a norm of embeddings, GELU,
two token types, of which one occurs here, and its head for masked pieces; 15 % of pieces are
predicted, in whole words. Only positions are rotary, since learned ones take long to tell
neighbours apart: with those the loss was 6.15 after 750 updates, near what frequencies alone give,
and with rotary ones 5.48 after 250. 4 layers, width 256, 4 heads, 8,000 pieces: 5.3 M parameters,
trained with Muon. Windows are running text, with EOS between sentences (RoBERTa's FULL-SENTENCES,
Liu et al. 2019, arXiv:1907.11692); configs/movie_reviews.py and configs/treebank_chunks.py
fine-tune it. "nsp" reads two segments and also predicts whether the second follows the first, as
BERT did; write an empty line where a document ends, otherwise everything is one document.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door


def get_config(objective: str = "joined"):
    """Return the experiment for "joined" or "nsp"."""
    if objective not in ("joined", "nsp"):
        raise ValueError(f"no variant {objective!r}; there are 'joined' and 'nsp'")
    c = door(Experiment())
    c.model.architecture = "encoder"
    c.model.num_encoder_layers = 4
    c.model.num_heads = 4
    c.model.d_model = 256
    c.model.d_ff = 1024
    c.model.activation = "gelu"
    c.model.norm_epsilon = 1e-12
    c.model.positions = "none"
    c.model.relative_positions = "rope"
    c.model.token_types = 2
    c.model.input_norm = True
    c.model.embedding_scale = False
    c.model.initializer = "gpt2"
    c.model.compute_dtype = "bfloat16"

    if objective == "nsp":
        c.objective.name = "masked_lm_nsp"
    else:
        c.objective.name = "masked_lm"
        c.objective.document = "joined"
    c.objective.window = 128
    c.objective.whole_words = True
    c.tokenizer.vocab_size = 8000
    c.data.directory = "data/brown"
    c.data.target_language = "txt"
    c.data.how_to_get = "python -m nltk.downloader brown; write a sentence a line"
    c.data.test = ("validation",)
    c.data.max_length = 128
    c.data.tokens_per_batch = 32 * 128
    c.data.num_buckets = 1

    c.optimizer.algorithm = "muon"
    c.optimizer.update_rms = 0.4
    c.optimizer.schedule = "linear"
    c.optimizer.learning_rate = 2e-3
    c.optimizer.warmup_steps = 200
    c.optimizer.weight_decay = 0.01
    c.optimizer.clip_norm = 1.0
    c.training.label_smoothing = 0.0
    c.training.steps = 2700
    c.checkpoint.every_steps = 250
    c.checkpoint.keep_last = 1
    c.checkpoint.best_by = "loss"
    c.evaluation.every_steps = 250
    c.evaluation.bleu_sentences = 0
    return c

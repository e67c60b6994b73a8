"""CodeXGLUE's translation of functions between Java and C#, from scratch (Lu et al. 2021).

    python train.py --config=configs/code_translation.py:java-cs --config.data.directory=DIR
    python train.py --config=configs/code_translation.py:cs-java --config.data.directory=DIR
    python eval.py --workdir=runs/code_translation-java-cs --split=test

The directory holds train.java, train.cs, validation.java and validation.cs: 10,295 and 499
functions, one a line, as published (https://github.com/microsoft/CodeXGLUE, Code-Code; its file
data/train.java-cs.txt.java is train.java here, and so on). Code is read and written as it is, case
and punctuation kept; no character is unknown, as those without a piece are spelled in bytes.

BLEU is of what spaces separate (sacrebleu, tokenize=none), as CodeXGLUE counts it, with exact match
(arXiv:2102.04664). Its README reports for a Transformer from scratch, on the official test, 55.84
BLEU and 33.0 % from Java, and 50.47 and 37.9 % from C#; for copying the source 18.54 and 0. On
validation copying has 19.3 and 0.2, and the translation of the nearest training function 24.9 and
2.4. The checkpoint is chosen by each 20th training function, which does not train, and validation
is scored as the test split (`--config.data.test=test`: the official test); 25 of its Java functions
occur in training.

4 + 4 layers, width 192, 4.9 M parameters. Validation, scored once, seed 0: 77.7 BLEU and 60.5 %
exact match from Java, 73.6 and 61.1 % from C#, two hours each, both at once on two cores. See
results/notes/code_translation.md.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door


def get_config(direction: str = "java-cs"):
    """Return the experiment for "java-cs" or "cs-java"."""
    if direction not in ("java-cs", "cs-java"):
        raise ValueError(f"no variant {direction!r}; there are 'java-cs' and 'cs-java'")
    c = door(Experiment())
    c.model.d_model, c.model.d_ff, c.model.num_heads = 192, 768, 4
    c.model.num_encoder_layers, c.model.num_decoder_layers = 4, 4
    c.model.residual = "pre_norm"
    c.model.positions, c.model.relative_positions = "none", "rope"
    c.model.query_key_norm, c.model.initializer = "per_head", "gpt2"
    c.model.dropout_rate = 0.2
    c.model.compute_dtype = "bfloat16"

    c.data.directory = "data/code_translation"
    c.data.source_language, c.data.target_language = direction.split("-")
    c.data.train = ("train[!::20]",)
    c.data.validation = ("train[::20]",)
    c.data.test = ("validation",)
    c.data.how_to_get = "https://github.com/microsoft/CodeXGLUE, Code-Code/code-to-code-trans/data"
    c.data.max_length = 400
    c.data.tokens_per_batch = 4096
    c.data.num_buckets = 10
    c.tokenizer.vocab_size = 4000
    c.tokenizer.normalization = "identity"
    c.tokenizer.byte_fallback = True

    c.optimizer.algorithm, c.optimizer.update_rms = "muon", 0.4
    c.optimizer.weight_decay = 0.1
    c.optimizer.schedule = "linear"
    c.optimizer.learning_rate, c.optimizer.warmup_steps = 2e-3, 300
    c.training.ema_decay = 0.999
    c.training.steps = 3600
    c.checkpoint.every_steps, c.evaluation.every_steps = 900, 900
    c.evaluation.bleu_tokenize = "none"
    c.evaluation.bleu_sentences = 200
    c.evaluation.metrics = ("BLEU",)
    c.decoding.beam_size = 5
    c.decoding.max_length_ratio, c.decoding.max_extra_length = 2.0, 50
    return c

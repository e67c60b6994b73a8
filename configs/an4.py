"""CMU AN4: spelled letters, digits and commands, from mel cepstra to characters.

    python train.py --config=configs/an4.py:hybrid --config.data.directory=DIR
    python train.py --config=configs/an4.py:ctc --config.data.directory=DIR
    python train.py --config=configs/an4.py:attention --config.data.directory=DIR
    python eval.py --workdir=runs/an4-hybrid --split=test

The directory holds train.npz and validation.npz, 845 utterances of 66 speakers and 103 of 8 others
(37 and 5 minutes; http://www.speech.cs.cmu.edu/databases/an4): `features` float16 [frames 13], 100
frames of mel cepstra a second, `offsets` [n+1], where utterance i is rows offsets[i] up to
offsets[i+1], and `text` [n]. Each 20th utterance of train selects the checkpoint and does not
train; validation.npz is scored as the test split. The best constant answer has a word error rate
of 98.8 % there. ESPnet's recipe reports 7.4 % words and 3.6 % characters on the official test, for
a Transformer with CTC on filter banks, from the wave files (egs2/an4/asr1).

ctc        two convolutions and a Conformer (Gulati et al. 2020, arXiv:2005.08100), which predicts a
           character or none every 20 ms.
attention  the same encoder with a decoder.
hybrid     both: the loss is 0.7 x the decoder's + 0.3 x CTC's (Watanabe et al. 2017,
           https://doi.org/10.1109/JSTSP.2017.2763455), and both score the hypotheses of a beam, CTC
           by its prefix scores; `--config.decoding.ctc_weight=0` asks the decoder alone.

SpecAugment (Park et al. 2019, arXiv:1904.08779) masks frames and cepstra in training. hybrid has
14.0 % on the test split after 1,200 updates, CER 8.2 %; the others have not been trained: see
results/notes/an4.md.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

VARIANTS: dict = {"hybrid": {}, "ctc": {}, "attention": {}}


def get_config(variant: str = "hybrid"):
    """Return the experiment of one of VARIANTS."""
    if variant not in VARIANTS:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(VARIANTS)}")
    c = door(Experiment())
    c.model.stem = "conv1d"
    c.model.d_model, c.model.d_ff, c.model.num_heads = 144, 576, 4
    c.model.num_encoder_layers = 6
    c.model.encoder_pattern, c.model.conv_kernel = ("conformer",), 15
    c.model.positions, c.model.relative_positions = "none", "xlnet"
    c.model.residual, c.model.tied_embeddings = "pre_norm", "decoder"
    c.model.embedding_scale, c.model.activation = False, "silu"
    c.model.dropout_rate = 0.2
    c.model.compute_dtype = "bfloat16"

    c.src.codec, c.tgt.codec = "frames", "characters"
    c.tokenizer.joint = False
    c.data.source = "arrays"
    c.data.source_language, c.data.target_language = "features", "text"
    c.data.directory = "data/an4"
    c.data.how_to_get = "http://www.speech.cs.cmu.edu/databases/an4, as arrays of mel cepstra"
    c.data.train, c.data.validation = ("train[!::20]",), ("train[::20]",)
    c.data.test = ("validation",)
    c.data.max_length = 700  # 7 s
    c.data.max_length_ratio = 100.0  # a frame is far less than a character
    c.data.tokens_per_batch = 16 * 350
    c.data.num_buckets = 3
    c.data.augment = ("frequency_mask", "time_mask", "time_mask")
    c.data.frequency_mask_size = 3
    c.data.time_mask_size, c.data.time_mask_share = 40, 0.15

    c.optimizer.algorithm, c.optimizer.update_rms = "muon", 0.4
    c.optimizer.weight_decay = 0.1
    c.optimizer.schedule = "linear"
    c.optimizer.learning_rate, c.optimizer.warmup_steps = 2e-3, 100
    c.optimizer.clip_norm = 1.0
    c.training.label_smoothing = 0.0 if variant == "ctc" else 0.1
    c.training.ema_decay = 0.995
    c.training.steps = 1500
    c.checkpoint.every_steps, c.evaluation.every_steps = 250, 250
    c.checkpoint.best_by = "wer"
    c.checkpoint.keep_last = 1
    c.evaluation.metrics = ("WER", "CER")
    c.evaluation.bleu_sentences = 43  # all of them
    if variant == "ctc":
        c.model.architecture, c.objective.name = "encoder", "ctc"
        return c
    c.model.num_decoder_layers = 3
    c.decoding.beam_size, c.decoding.alpha = 8, 0.0
    c.decoding.max_length_ratio, c.decoding.max_extra_length = 0.3, 20
    if variant == "hybrid":
        c.objective.name, c.objective.ctc_weight = "ctc_attention", 0.3
        c.decoding.ctc_weight = 0.3
    return c

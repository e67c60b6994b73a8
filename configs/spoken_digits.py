"""Recognition of spoken digits, small, from scratch.

    python train.py --config=configs/spoken_digits.py:ctc --config.data.directory=DIR
    python eval.py --workdir=runs/spoken_digits-ctc --split=validation
    ls DIR/*.wav | transformer-jax translate --workdir=runs/spoken_digits-ctc

The directory holds train and validation, folders or .zip, of the free spoken digit data set: 8 kHz
wav files, one digit each, named DIGIT_SPEAKER_TAKE.wav. The output is the digit's word, letter by
letter; the input is 40 log-mel bands, 100 frames per second, some of them masked in training
(SpecAugment: Park et al. 2019, arXiv:1904.08779).

ctc         two convolutions and a Conformer (Gulati et al. 2020, arXiv:2005.08100), which predicts
            a letter or none every 20 ms (CTC: Graves et al. 2006).
whisper     an encoder-decoder like Whisper (Radford et al. 2022, arXiv:2212.04356).

All speakers are in both parts. 3,000 updates, seed 0, last checkpoint, 300 takes: word error rate
2.33 % for ctc, 2.00 % for whisper; 12 and 6 minutes of a core. With a held-out speaker after the
variant, as in ctc-jackson, training leaves that speaker's takes out, and validation uses only them:
word error rate 28.9 % for jackson, 25.3 % for nicolas, 10.7 % for theo, 25.6 % for yweweler, 47.6 %
for george and 33.1 % for lucas, 28.5 % on average. Five voices do not make up for one never heard.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_VARIANTS = ("ctc", "whisper")


def get_config(variant: str = "ctc"):
    """Return the experiment for "ctc" or "whisper", or either followed by -SPEAKER."""
    name, _, speaker = variant.partition("-")
    if name not in _VARIANTS:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(_VARIANTS)}")
    c = door(Experiment())
    c.model.stem = "conv1d"
    c.model.d_model, c.model.d_ff = 96, 384
    c.model.num_heads, c.model.num_encoder_layers = 4, 4
    c.model.residual, c.model.tied_embeddings = "pre_norm", "decoder"
    c.model.embedding_scale = False

    c.src.codec, c.tgt.codec = "log_mel", "characters"
    c.src.sample_rate, c.src.n_fft, c.src.hop_length, c.src.num_mels = 8000, 256, 80, 40
    c.tokenizer.joint = False
    c.data.source = "wavs"
    c.data.source_language, c.data.target_language = "speech", "digits"
    c.data.directory = "data/spoken_digits"
    c.data.how_to_get = "https://github.com/Jakobovski/free-spoken-digit-dataset"
    c.data.label_pattern = r"(?P<label>\d)_(?P<speaker>\w+)_\d+\.wav"
    c.data.label_texts = tuple(f"{digit}={word}" for digit, word in enumerate(_WORDS))
    if speaker:
        c.data.train = (f"train[speaker:!{speaker}]",)
        c.data.validation = (f"train[speaker:{speaker}]", f"validation[speaker:{speaker}]")
    c.data.test = c.data.validation
    c.data.max_length = 256  # 2.5 s
    c.data.max_length_ratio = 100.0  # a frame is far less than a letter
    c.data.tokens_per_batch = 64 * 64
    c.data.num_buckets = 2
    c.data.augment = ("frequency_mask", "frequency_mask", "time_mask", "time_mask")
    c.data.frequency_mask_size = 8
    c.data.time_mask_size, c.data.time_mask_share = 20, 0.2

    c.optimizer.schedule = "cosine"
    c.optimizer.learning_rate, c.optimizer.warmup_steps = 1e-3, 300
    c.optimizer.weight_decay = 0.01
    c.optimizer.clip_norm = 1.0
    c.training.steps = 3000
    c.checkpoint.every_steps, c.evaluation.every_steps = 300, 300
    c.checkpoint.best_by = "wer"
    c.evaluation.checkpoint = "last"  # the data has no third split: nothing is chosen by it
    c.evaluation.metrics = ("WER", "CER")
    if name == "ctc":
        c.model.architecture, c.objective.name = "encoder", "ctc"
        c.model.encoder_pattern, c.model.conv_kernel = ("conformer",), 15
        c.model.positions, c.model.relative_positions = "none", "xlnet"
        c.model.activation = "silu"
    else:
        c.model.num_decoder_layers = 2
        c.model.positions, c.model.activation = "sinusoidal_tensor2tensor", "gelu"
        c.model.biases = ("query", "value", "output", "feed_forward")
        c.decoding.max_length_ratio, c.decoding.max_extra_length = 0.0, 12
    return c

"""Groups of the manual's words: what each applies to, and what reads which field."""

from typing import Literal

from transformer_jax.config.bounds import STEPS
from transformer_jax.errors import UserError

# Fields that also accept a user-defined part: "path/file.py:Name", see parts.py.
TAKE_PARTS = (
    "model.norm", "model.activation", "model.positions", "model.relative_positions",
    "model.encoder_pattern", "model.decoder_pattern", "src.codec", "tgt.codec", "objective.name",
    "optimizer.schedule", "evaluation.metrics",
)  # fmt: skip
# The mixers: what mixes values along a sequence in a layer.
MixerKind = Literal[
    "full", "latent", "local", "dilated", "longformer", "bigbird", "lsh", "linear", "delta_rule",
    "random_features", "gated_random_features", "favor",
    "aft_full", "aft_local", "aft_conv", "aft_simple", "ssru",
    "elman", "lstm", "gru", "bielman", "bilstm", "bigru", "conformer",
]  # fmt: skip
# Those whose weights are a softmax over positions.
ATTENTION = ("full", "latent", "local", "dilated", "longformer", "bigbird", "conformer")
WITHIN = ("local", "dilated", "longformer", "aft_local", "aft_conv")  # read `window`
PLACES = ("aft_full", "aft_local")  # have a vector for each position
FREE = (*PLACES, "aft_conv", "aft_simple")  # weight channels of values by those of keys
TWO_WAY = ("bielman", "bilstm", "bigru")  # bidirectional
CELLS = ("elman", "lstm", "gru")
HEADLESS = (*CELLS, *TWO_WAY, "ssru")  # have no heads
WHOLE = ("longformer", "bigbird", "conformer", *TWO_WAY)  # need the complete text
ALONE = ("longformer", "bigbird", "lsh", "conformer")  # need each text in its own row
DRAWN = ("random_features", "gated_random_features", "favor")
ONE_WAY = ("delta_rule", "gated_random_features", "ssru")  # left to right only
# Fields of evaluation: scores that differ in one of them cannot be compared.
PROTOCOL = ("bleu_tokenize", "lowercase")
# Have maps that only "xavier" initialises.
OWN_VALUES = ("latent", "longformer", "lsh", "delta_rule", *HEADLESS)
# The mixers that read each field that not all of them read.
MIXER_FIELDS: dict[str, tuple[str, ...]] = {
    "latent_size": ("latent",),
    "query_latent_size": ("latent",),
    "dilation": ("dilated",),
    "global_tokens": ("longformer",),
    "block_size": ("bigbird", "lsh"),
    "random_blocks": ("bigbird",),
    "hash_rounds": ("lsh",),
    "hash_buckets": ("lsh",),
    "position_rank": PLACES,
    "num_features": DRAWN,
    "redraw_every": ("lsh", *DRAWN),
    "feature_seed": ("bigbird", "lsh", *DRAWN),
    "conv_kernel": ("conformer",),
}
EXPERT_FIELDS = (  # read by layers of "experts"
    "num_experts", "experts_per_token", "expert_scores", "normalize_expert_weights",
    "shared_experts", "balancing_rate",
)  # fmt: skip
# The stem that reads each field that not all of them read.
STEM_FIELDS = {
    "stem_layers": "convolution",
    "grid": "convolution",
    "patch_length": "series",
    "patch_stride": "series",
    "distribution": "series",
}
# The model fields that recurrent models use: layers, tables, dropout and computation.
RECURRENT = (
    "architecture", "d_model", "num_encoder_layers", "num_decoder_layers", "encoder_pattern",
    "decoder_pattern", "window", "recurrence", "source_attention", "input_feeding",
    "reverse_source", "dropout_rate", "positions", "tied_embeddings", "embedding_norm",
    "embedding_scale", "logits_scale", "compute_dtype",
)  # fmt: skip
DECOMPOSABLE = (
    "architecture", "d_model", "d_ff", "dropout_rate", "positions", "embedding_norm",
    "embedding_scale", "compute_dtype",
)  # fmt: skip
# The fields that apply to architectures other than Transformers.
ELMO = (
    "architecture", "d_model", "num_encoder_layers", "encoder_pattern", "dropout_rate", "pooling",
    "positions", "tied_embeddings", "embedding_norm", "embedding_scale", "logits_scale",
    "compute_dtype",
)  # fmt: skip
OWN_FIELDS = {
    "recurrent": RECURRENT, "elmo": ELMO, "decomposable_attention": DECOMPOSABLE
}  # fmt: skip
ROTARY = ("rope", "rope_interleaved")
SCALED_BY_LENGTH = ("llama3", "yarn")  # values of rope_scaling
LATENT_POSITIONS = ("none", *ROTARY, "alibi", "t5", "toeplitz")  # go with "latent"
# The relative position schemes that read each field that not all of them read.
RELATIVE = {
    "rope_theta": ROTARY,
    "rope_fraction": ROTARY,
    "rope_scaling": ROTARY,
    "relative_buckets": ("t5",),
    "relative_max_distance": ("t5",),
    "relative_clip": ("shaw", "shaw_values", "toeplitz"),
    "share_relative_positions": ("t5", "shaw", "shaw_values", "toeplitz", "xlnet"),
}
# The fields that each codec of vectors reads.
VECTOR_FIELDS = {
    "patches": ("patch_size",),
    "log_mel": ("sample_rate", "n_fft", "hop_length", "num_mels"),
}
# What messages call a value of each codec of vectors.
VECTOR_NOUNS = {"patches": "picture", "series": "series", "log_mel": "sound"}
# The codecs of vectors instead of text, and their sources.
VECTORS = {
    "patches": ("arrays", "folders", "tfds"), "series": ("series",), "log_mel": ("wavs",),
}  # fmt: skip
MADE = ("spelled_numbers", "listops", "copying", "chess")  # sources that need no files
SOUNDS = ("log_mel",)  # codecs of audio
# The codecs of tokenizer.vocab_size pieces, and the tokenizer fields they read besides `joint`.
SIZED = {
    "subwords": (
        "algorithm", "vocab_size", "byte_fallback", "character_coverage", "normalization",
        "max_lines", "symbols", "model", "unk_surface",
    ),
    "wordpiece": ("vocab_size", "max_lines", "symbols", "lowercase"),
    "words": ("vocab_size", "max_lines", "symbols", "lowercase"),
}  # fmt: skip
# The architectures that each objective trains.
ARCHITECTURES = {
    "translate": ("encoder_decoder", "recurrent", "prefix_decoder"),
    "language_model": ("decoder",),
    "prefix_lm": ("decoder",),
    "text_prefix_lm": ("decoder",),
    "permutation_lm": ("two_stream",),
    "bidirectional_lm": ("elmo",),
    "masked_lm": ("encoder", "perceiver"),
    "span_corruption": ("encoder_decoder",),
    "denoising": ("encoder_decoder",),
    "text_continuation": ("encoder_decoder",),
    "masked_lm_nsp": ("encoder",),
    "tag": ("encoder", "elmo"),
    "answer": ("encoder",),
    "regress": ("encoder", "perceiver", "elmo", "decoder"),
    "classify": ("encoder", "perceiver", "elmo", "decoder"),
    "classify_pairs": ("encoder", "decomposable_attention"),
    "forecast": ("encoder",),
    "ctc": ("encoder",),
    "reconstruct": ("autoencoder",),
    "policy": ("encoder",),
}
# The codec of the target side where it is not text but the labels of one.
LABELS = {
    "classify": "classes", "classify_pairs": "classes", "tag": "labels", "regress": "values",
    "answer": "spans", "policy": "moves",
}  # fmt: skip
# Alternatives to "classes": a text may have several labels, and moves are a fixed list.
CLASSES = ("labels", "moves")
CLASSIFIES = ("classify", "classify_pairs", "policy")  # objectives that predict classes
NO_TEXT = (*LABELS.values(), *CLASSES)
# The named pieces that an objective inserts into texts; a codec trained for it has them.
SYMBOLS = dict.fromkeys(("masked_lm", "masked_lm_nsp", "denoising"), ("<mask>",))
SENTINEL = "<extra_id_{}>"  # T5's name for the pieces that replace removed spans
MASKED = ("masked_lm", "masked_lm_nsp")
PREFIXED = ("prefix_lm", "text_prefix_lm")  # attend to the prefix of a row in both directions
OF_TEXT = (
    "language_model", "text_prefix_lm", "permutation_lm", "bidirectional_lm", *MASKED,
    "span_corruption", "denoising", "text_continuation",
)  # fmt: skip
# The objectives on vectors, and the codec that each reads.
OF_VECTORS = {"forecast": "series", "reconstruct": "patches"}
ONE_SIDED = (*OF_TEXT, *OF_VECTORS)
UNMIXED = ("masked_lm_nsp", "answer", "forecast")  # their items do not record their text
NO_CHOICE = ("regress", "answer", "ctc", *OF_VECTORS)  # predict no piece or class
WINDOWED = (*OF_TEXT, "forecast", *LABELS)
# The objectives that read each field.
READ_BY = {
    "window": (*WINDOWED, "prefix_lm"),
    "horizon": ("forecast",),
    "document": tuple(kind for kind in OF_TEXT if kind != "masked_lm_nsp"),
    "partial_prediction": ("permutation_lm",),
    "mask_rate": MASKED,
    "whole_words": MASKED,
    "noise_density": ("span_corruption",),
    "sentinels": ("span_corruption",),
    "mean_span_length": ("span_corruption", "denoising"),
    "text_infilling_rate": ("denoising",),
    "token_masking_rate": ("denoising",),
    "token_deletion_rate": ("denoising",),
    "sentence_permutation_rate": ("denoising",),
    "document_rotation_rate": ("denoising",),
}
JOINS = (
    "language_model", "text_prefix_lm", "masked_lm", "span_corruption", "denoising",
    "text_continuation",
)  # fmt: skip
# The objectives that parts of the training text may have besides the main one, with one model.
BESIDE: dict[str, tuple[str, ...]] = {
    "translate": ("span_corruption", "denoising"),
    "prefix_lm": ("language_model",),
    "span_corruption": ("denoising",),
    "denoising": ("span_corruption",),
}


def average_count(checkpoint: str) -> int | None:
    """Return the N of the checkpoint name "average:N", or None for best, last and a step.

    Raises:
      UserError: if the name is none of these.
    """
    head, colon, tail = checkpoint.partition(":")
    number = tail if colon else head
    short = number.isdecimal() and len(number) <= len(str(STEPS))  # longer is not a step
    if head == "average" and colon and short and int(tail) > 0:
        return int(tail)
    if checkpoint in ("best", "last") or (short and not colon):
        return None
    raise UserError(f"checkpoint={checkpoint!r}: must be best, last, a step, or average:N")

"""The manual: every field of an experiment, its unit and its default, written once.

`Experiment()` is the paper's base model. How values are read, overridden and written is
`door.py`'s business. "Paper" is Vaswani et al. 2017, https://arxiv.org/abs/1706.03762.
"""

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, cast

from transformer_jax.errors import UserError


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise UserError(message)


# Every number has bounds on both sides, and a test holds every field to that. They leave room for
# whatever makes sense, and keep slips of the hand from the memory and the integers of the machine.
_STEPS = 10**9  # steps are counted in 32 bits
_SIZE = 2**20  # of one axis of an array
_ELEMENTS = 2**31  # of one matrix; 8 GiB
HELD_POSITIONS = 2**18  # of all hypotheses of one sentence; each takes 24 kB in the base model


# Fields of which a part of one's own can be the value, too: "path/file.py:Name", see parts.py.
TAKE_PARTS = (
    "model.norm", "model.activation", "model.positions", "model.relative_positions",
    "model.encoder_pattern", "model.decoder_pattern", "src.codec", "tgt.codec", "objective.name",
    "optimizer.schedule", "evaluation.metrics",
)  # fmt: skip


def _or(words: Iterable[str]) -> str:
    return " or ".join(map(repr, words))


def _rate(**values: float | None) -> None:
    for name, value in values.items():
        _check(value is None or 0 <= value < 1, f"{name}={value}: must be at least 0 and below 1")


def _is_part(value: str) -> bool:
    return ":" in value


def _within(low: float, high: float, **values: float | None) -> None:
    for name, value in values.items():
        _check(
            value is None or low <= value <= high,
            f"{name}={value}: must be at least {low} and at most {high}",
        )


def _above(low: float, high: float, otherwise: str = "", **values: float | None) -> None:
    for name, value in values.items():
        _check(
            value is None or low < value <= high,
            f"{name}={value}: must be above {low} and at most {high}{otherwise}",
        )


# What mixes values along a sequence in a layer.
MixerKind = Literal[
    "full", "local", "dilated", "longformer", "bigbird", "lsh", "linear", "delta_rule",
    "random_features", "gated_random_features", "favor",
    "aft_full", "aft_local", "aft_conv", "aft_simple", "ssru",
    "elman", "lstm", "gru", "bielman", "bilstm", "bigru", "conformer",
]  # fmt: skip
# Those whose weights are a softmax over positions.
_ATTENTION = ("full", "local", "dilated", "longformer", "bigbird", "conformer")
_WITHIN = ("local", "dilated", "longformer", "aft_local", "aft_conv")  # which read `window`
_PLACES = ("aft_full", "aft_local")  # which have a vector for each position
_FREE = (*_PLACES, "aft_conv", "aft_simple")  # which weight channels of values by those of keys
_TWO_WAY = ("bielman", "bilstm", "bigru")  # which read from both ends
_CELLS = ("elman", "lstm", "gru")
_WHOLE = ("longformer", "bigbird", "conformer", *_TWO_WAY)  # which need a text that is whole
_ALONE = ("longformer", "bigbird", "lsh", "conformer")  # which need a row for each text
_DRAWN = ("random_features", "gated_random_features", "favor")
_ONE_WAY = ("delta_rule", "gated_random_features", "ssru")  # which have no other end
# Which mixers read each field that is for some of them alone.
_MIXER_FIELDS: dict[str, tuple[str, ...]] = {
    "dilation": ("dilated",),
    "global_tokens": ("longformer",),
    "block_size": ("bigbird", "lsh"),
    "random_blocks": ("bigbird",),
    "hash_rounds": ("lsh",),
    "hash_buckets": ("lsh",),
    "position_rank": _PLACES,
    "num_features": _DRAWN,
    "redraw_every": ("lsh", *_DRAWN),
    "feature_seed": ("bigbird", "lsh", *_DRAWN),
    "conv_kernel": ("conformer",),
}


@dataclass(frozen=True)
class ModelConfig:
    """The model. Defaults are the paper's base model (section 3, Table 3)."""

    # "decoder": one stack that reads a text and writes on, without source or encoder (GPT).
    # "two_stream": the same, but pieces are predicted in any order, by a second stream that sees
    # places and not what stands there (XLNet: Yang et al. 2019, arXiv:1906.08237).
    # "encoder": one stack that reads a text in both directions and writes nothing; it predicts
    # pieces that are masked, or a class (BERT: Devlin et al. 2019, arXiv:1810.04805).
    # "perceiver": `num_latents` trained vectors, the latents, look at what is read, then encoder
    # layers are theirs, and queries for what is predicted look at them, so that operations grow in
    # proportion to the length of a text (Jaegle et al. 2021, arXiv:2103.03206; Perceiver IO,
    # arXiv:2107.14795).
    # "recurrent": the translation models before it, of recurrent layers that read and others that
    # write, without residual parts and feed-forward layers; see `recurrence`.
    # "elmo": recurrent layers that read a text from the left, and others from the right; what all
    # of them find is mixed where something is said of it (Peters et al. 2018, arXiv:1802.05365).
    # "decomposable_attention": no layers; words of two texts are compared with what they attend to
    # in the other, and the sums say how the texts belong together (Parikh et al. 2016,
    # arXiv:1606.01933).
    # "prefix_decoder": an encoder of vectors, a linear map, and a decoder that has what those give
    # before its text (LLaVA: Liu et al. 2023, arXiv:2304.08485).
    # "autoencoder": an encoder of vectors, of each of which one of `num_codes` codes is left, and
    # encoder layers again, which are called the decoder and make the vectors of the codes (VQ-VAE:
    # van den Oord et al. 2017, arXiv:1711.00937; of Transformers: Yu et al. 2021,
    # arXiv:2110.04627).
    architecture: Literal[
        "encoder_decoder", "decoder", "two_stream", "encoder", "perceiver", "recurrent", "elmo",
        "decomposable_attention", "prefix_decoder", "autoencoder",
    ] = "encoder_decoder"  # fmt: skip
    num_latents: int = 256  # perceiver
    num_codes: int = 256  # autoencoder
    # autoencoder: channels in which the nearest code is looked up, by its direction alone.
    code_width: int = 16
    # autoencoder: how much the distance from a place to its code counts that moves the place, where
    # the one that moves the code counts 1 (van den Oord et al. 2017, equation 3).
    commitment: float = 0.25
    # How the values of a source side enter. "embedding": pieces, by a table. "linear": vectors,
    # such as patches of pictures, by one map (ViT: Dosovitskiy et al. 2021, arXiv:2010.11929);
    # "convolution": patches, joined to pictures again, by convolutions (Xiao et al. 2021,
    # arXiv:2106.14881). "series": a window of a time series, in standard deviations from its own
    # mean, in patches that overlap (PatchTST: Nie et al. 2023, arXiv:2211.14730). "conv1d":
    # vectors, such as frames of sound, by two convolutions along the sequence, the second of stride
    # 2, so that half as many enter (Whisper: Radford et al. 2022, arXiv:2212.04356).
    stem: Literal["embedding", "linear", "convolution", "series", "conv1d"] = "embedding"
    patch_length: int = 16  # series: rows of a patch
    patch_stride: int = 8  # series: rows from the beginning of a patch to that of the next
    # What is predicted of each value of a series. "point": a number, by its squared error; or the
    # parameters of a distribution: "normal", "student_t", or its nine deciles, "quantiles".
    distribution: Literal["point", "normal", "student_t", "quantiles"] = "point"
    stem_layers: int = 2  # convolution: so many, each of which halves both sides of a patch
    # Rows and columns of patches in a picture: for convolution, grid_positions, and prefix_decoder,
    # whose encoder reads pictures of so many patches alone.
    grid: tuple[int, ...] = ()
    # What a stem of vectors adds to each patch, beside `positions`: "sinusoidal" sines and cosines
    # of its row in half of the channels, and of its column in the others.
    grid_positions: Literal["none", "sinusoidal"] = "none"
    d_model: int = 512  # width of the residual stream
    d_ff: int = 2048  # width inside the feed-forward layers
    num_heads: int = 8  # attention heads
    head_dim: int | None = None  # size of one query and key head (d_k); None: d_model / num_heads
    v_head_dim: int | None = None  # size of one value head (d_v); None: the same as head_dim
    # Heads of keys and values, each shared by num_heads / num_kv_heads heads of queries; None:
    # num_heads. 1 is multi-query attention (Shazeer 2019, arXiv:1911.02150), more are grouped
    # (Ainslie et al. 2023, arXiv:2305.13245).
    num_kv_heads: int | None = None
    num_encoder_layers: int = 6  # layers of the encoder (N in the paper)
    num_decoder_layers: int = 6  # layers of the decoder
    # encoder_pattern, decoder_pattern: which layer does what, from the first one on, repeated.
    # Keys and values are kept by
    #   full       attention to all positions
    #   local      to those less than `window` away
    #   dilated    to as many, each `dilation` positions from the next (arXiv:2004.05150)
    #   longformer  local, and the first `global_tokens` of a text see all and are seen by all:
    #              encoders (arXiv:2004.05150)
    #   bigbird    of blocks to those beside them, the first, the last and random ones: encoders
    #              (arXiv:2007.14062)
    #   lsh        the Reformer's, of positions near one another by a hash (arXiv:2001.04451); keys
    #              are queries
    #   aft_full   attention-free: a weight for each channel of a key and, trained, for each pair of
    #              positions; aft_local for those within `window`, aft_conv for each distance within
    #              it, aft_simple for none, with two sums in place of keys (arXiv:2105.14103)
    # and a state of constant size by
    #   linear     scores are products of features (arXiv:2006.16236)
    #   delta_rule what a key has stored is taken away before: decoders (arXiv:2102.11174)
    #   random_features  features near a softmax (RFA, arXiv:2103.02143); gated_random_features:
    #              what is earlier counts less: decoders
    #   favor      the Performer's, positive and at right angles (arXiv:2009.14794)
    #   ssru       the simpler simple recurrent unit: decoders (https://aclanthology.org/D19-5632)
    #   elman, lstm, gru  recurrent layers from the left to the right, with a state of d_model;
    #              bielman, bilstm, bigru from both ends, with half of that each: encoders
    #   conformer  a block of four parts: half a feed-forward layer, attention to all positions, a
    #              convolution of `conv_kernel`, half a feed-forward layer; and a norm. Encoders
    #              (Gulati et al. 2020, arXiv:2005.08100, with layer norm for batch norm)
    encoder_pattern: tuple[MixerKind, ...] = ("full",)
    decoder_pattern: tuple[MixerKind, ...] = ("full",)
    # Of local layers, dilated or not, and longformer's: positions to either side, its own included.
    window: int | None = None
    global_tokens: int = 1  # longformer: positions of a text, from the first one on
    block_size: int = 64  # bigbird, lsh: positions of a block
    random_blocks: int = 3  # bigbird: those that each looks at, drawn by `feature_seed`
    # lsh: with so many rotations, each of which puts positions in one of so many buckets; they are
    # drawn anew as features are, see `redraw_every`.
    hash_rounds: int = 2
    hash_buckets: int = 32  # an even number
    position_rank: int = 64  # aft_full, aft_local: numbers in the vectors of positions
    dilation: int = 2  # of dilated layers
    conv_kernel: int = 31  # conformer: positions that a convolution reads, an odd number
    num_features: int = 64  # random_features, gated or not, favor: directions of features of a head
    # In how many steps of training they are drawn anew. Evaluation and decoding have those of
    # `feature_seed`, in every layer.
    redraw_every: int = 1
    feature_seed: int = 0
    # architecture="recurrent", whose patterns name recurrent layers; an encoder_pattern of others
    # is the Transformer's encoder, with its fields. "luong": all layers, then a look at the source
    # (Luong et al. 2015, arXiv:1508.04025; without one, Sutskever et al. 2014, arXiv:1409.3215);
    # "bahdanau": a look first, which enters the layers (RNNsearch: Bahdanau et al. 2015,
    # arXiv:1409.0473; without one, Cho et al. 2014, arXiv:1406.1078); "gnmt": a look behind the
    # first layer, which enters all, and residual connections from the third on (Wu et al. 2016,
    # arXiv:1609.08144); "rnmt_plus": the same with a norm of each gate, of lstm, and what was
    # looked at enters the prediction (Chen et al. 2018, arXiv:1804.09849).
    recurrence: Literal["luong", "bahdanau", "gnmt", "rnmt_plus"] = "luong"
    # How it looks: "dot" and "general" (with a map) products, "additive" v tanh(W q + U h), which
    # "multi_head_additive" has for each of `num_heads`, or of places at most `window` from the
    # target's own ("local_monotonic") or from one that is predicted ("local_predictive").
    source_attention: Literal[
        "none", "dot", "general", "additive", "multi_head_additive", "local_monotonic",
        "local_predictive",
    ] = "general"  # fmt: skip
    input_feeding: bool = True  # luong: what a look gave enters the next step beside the token
    reverse_source: bool = False  # the source is read from its end
    dropout_rate: float = 0.1  # on each sub-layer's output and on embeddings (paper 5.4)
    attention_dropout_rate: float = 0.0  # on attention weights; the paper has none
    activation_dropout_rate: float = 0.0  # inside the feed-forward layers; the paper has none
    # The share of layers that a training step skips at random (LayerDrop, Fan et al. 2019,
    # arXiv:1909.11556, whose value is 0.2), in both stacks; evaluation and decoding have them all.
    layer_drop_rate: float = 0.0
    # Where the norm stands: "post_norm" norm(x + f(x)) of a sub-layer f; "pre_norm"
    # x + f(norm(x)); "sandwich" x + norm(f(norm(x))) (arXiv:2105.13290); "reordered_norm"
    # x + norm(f(x)) (arXiv:2501.00656); "deep_norm" norm(alpha x + f(x)), with smaller initial
    # values, for very deep stacks (arXiv:2203.00555).
    # "reversible": two streams, each part reading one and adding to the other, of which the way
    # back needs the last values alone: activations take no more memory with the depth.
    residual: Literal[
        "post_norm", "pre_norm", "sandwich", "reordered_norm", "deep_norm", "reversible"
    ] = "post_norm"
    # "layer_norm" with scale and bias; "rms_norm": a scale alone, and no mean is taken off (Zhang
    # and Sennrich 2019, arXiv:1910.07467); "scale_norm": one number for all channels (Nguyen and
    # Salazar 2019, arXiv:1910.05895); "layer_norm_no_bias" (arXiv:2204.02311).
    norm: Literal["layer_norm", "rms_norm", "scale_norm", "layer_norm_no_bias"] = "layer_norm"
    norm_epsilon: float = 1e-6  # added to the variance or mean square; tensor2tensor's value
    # Inside the feed-forward layers. "gelu" is by the error function, "gelu_tanh" GPT-2's
    # approximation. "swiglu" and those behind it: gated, with a third matrix of d_model x d_ff
    # (Shazeer 2020, arXiv:2002.05202); "geglu_tanh" is "gated-gelu" of T5 1.1.
    activation: Literal[
        "relu", "gelu", "gelu_tanh", "relu_squared", "silu", "mish", "swiglu", "reglu", "geglu",
        "geglu_tanh",
    ] = "relu"  # fmt: skip
    # biases: which linear maps add one. () as in Llama and T5; ("query", "key", "value") as in
    # Qwen2; all but "key" as in Whisper. "output" is the map behind the heads.
    biases: tuple[Literal["query", "key", "value", "output", "feed_forward"], ...] = (
        "query", "key", "value", "output", "feed_forward",
    )  # fmt: skip
    # Scores are products of queries and keys: "inverse_sqrt" times head_dim^-0.5 (paper 3.2.1),
    # "none" as they are (T5, whose queries start smaller by that factor).
    score_scale: Literal["inverse_sqrt", "none"] = "inverse_sqrt"
    attention_temperature: float = 1.0  # divides scores, before a bias of relative_positions
    # RMSNorm of queries and keys, before they rotate: "per_head", all heads with one scale (Qwen3);
    # "all_heads", over all heads together (OLMo 2: arXiv:2501.00656).
    query_key_norm: Literal["none", "per_head", "all_heads"] = "none"
    # "dense": all pairs as written in the paper. "fused": jax.nn.dot_product_attention, which never
    # stores them; by cuDNN on a GPU in bfloat16, by XLA elsewhere, with a warning that says why.
    attention: Literal["dense", "fused"] = "dense"
    # What is added to the embeddings: "sinusoidal" as in the paper, alternating sines and cosines;
    # "sinusoidal_tensor2tensor" first all sines, then all cosines; "learned" a table; or "none".
    positions: Literal["sinusoidal", "sinusoidal_tensor2tensor", "learned", "none"] = "sinusoidal"
    max_positions: int = 512  # of learned positions and aft_full, aft_local; others have no limit
    # What self-attention knows of distances, beside `positions`; cross-attention knows none.
    # "rope" rotates queries and keys (pairs of channels i and i + r/2; "rope_interleaved": 2i and
    # 2i + 1), "alibi" lowers scores in proportion to the distance. The others are trained. "t5"
    # adds a number for each head and bucket of distances to scores (Raffel et al. 2020,
    # arXiv:1910.10683), "toeplitz" one for each head and distance up to `relative_clip`. "shaw"
    # adds a vector for each distance to keys, "shaw_values" one to keys and another to values (Shaw
    # et al. 2018, arXiv:1803.02155). "xlnet" adds products of queries with linear maps of the
    # distance's sinusoids, and two biases of queries (Dai et al. 2019, arXiv:1901.02860).
    relative_positions: Literal[
        "none", "rope", "rope_interleaved", "alibi", "t5", "shaw", "shaw_values", "toeplitz",
        "xlnet",
    ] = "none"  # fmt: skip
    rope_theta: float = 10_000.0  # base of the angles' frequencies
    rope_fraction: float = 1.0  # share of each head's channels, from the first on, that rotates
    # relative_buckets, relative_max_distance: t5's buckets of distances, half of them for what is
    # ahead unless all attention of a stack is causal; the distance from which on all are one.
    relative_buckets: int = 32
    relative_max_distance: int = 128
    relative_clip: int = 16  # shaw, shaw_values, toeplitz: distances beyond count as this one
    # Whether what is trained for distances is one for all layers of a stack, or each layer has its
    # own; None: as published, which is one for t5 and toeplitz, and each its own for the others.
    share_relative_positions: bool | None = None
    # Which tables are one: "all" both embeddings and the pre-softmax matrix (paper 3.4),
    # "decoder" target embedding and pre-softmax, "none" three tables.
    tied_embeddings: Literal["all", "decoder", "none"] = "all"
    # "fix_norm": rows of all these tables count as if of length 1 (arXiv:1910.05895).
    embedding_norm: Literal["none", "fix_norm"] = "none"
    embedding_scale: bool = True  # inputs times sqrt(d_model) (paper 3.4); GPT-2, BERT, T5: False
    # A norm of the sum of embeddings, before the first layer of each stack: BERT, BART, BLOOM.
    input_norm: bool = False
    # "encoder" alone reads these three, and "elmo" pooling. Kinds of tokens, as sentence A and B,
    # each with a vector that is added to embeddings (BERT's type_vocab_size, 2 there); 0: none.
    token_types: int = 0
    # What a class is predicted from: the "first" position (BERT), or the "mean" of all.
    pooling: Literal["first", "mean"] = "first"
    # Whether that passes a linear map and tanh first, as in BERT; in ViT it does not.
    pooler: bool = True
    logits_scale: bool = False  # hidden states times 1 / sqrt(d_model) before a tied table: T5
    # Which layers of a stack have the same parameters, layer i those of layer i + the length of its
    # pattern: "none"; "all" (ALBERT, arXiv:1909.11942); "universal": all, and the vectors of
    # `positions` and of the step are added before each layer, not once to the input (the Universal
    # Transformer, arXiv:1807.03819, without halting).
    layer_sharing: Literal["none", "all", "universal"] = "none"
    # Where parameters start: "xavier" as in tensor2tensor, "t5" as in T5, "gpt2" as in GPT-2, by
    # N(0, 0.02) and less where deep stacks add up.
    initializer: Literal["xavier", "t5", "gpt2"] = "xavier"
    compute_dtype: Literal["float32", "bfloat16"] = "float32"  # of matrix products; params: float32
    # Low-rank adaptation (Hu et al. 2021, arXiv:2106.09685): maps of these names, in every layer,
    # become W + lora_alpha / lora_rank x A B, and A and B alone are trained. None: none. lora_maps
    # are those names.
    lora_rank: int | None = None  # columns of A
    lora_alpha: float = 8.0
    lora_maps: tuple[
        Literal["query", "key", "value", "output", "gate", "up", "down"], ...
    ] = ("query", "value")  # fmt: skip
    # Speed and memory alone; parameters, checkpoints and results are the same.
    layer_loop: Literal["unrolled", "scan"] = "unrolled"  # scan: compiles one layer, runs slower
    # Positions go through feed-forward layers in so many parts, made again on the way back.
    feed_forward_chunks: int = 1
    # What the way back computes again, to save memory: "none"; "dots": all of a layer but its
    # products with parameters; "full": all of a layer from its input.
    remat: Literal["none", "dots", "full"] = "none"

    def __post_init__(self) -> None:
        _within(1, _SIZE, d_model=self.d_model, d_ff=self.d_ff, num_heads=self.num_heads)
        _within(1, _SIZE, head_dim=self.head_dim, v_head_dim=self.v_head_dim)
        _within(1, _SIZE, max_positions=self.max_positions)
        _within(1, 1000, num_encoder_layers=self.num_encoder_layers)
        _within(1, 1000, num_decoder_layers=self.num_decoder_layers)
        _within(1, 2**16, feed_forward_chunks=self.feed_forward_chunks)
        _check(
            self.feed_forward_chunks == 1 or self.activation_dropout_rate == 0,
            f"feed_forward_chunks={self.feed_forward_chunks}: with activation_dropout_rate="
            f"{self.activation_dropout_rate} all parts would drop the same; set it to 0",
        )
        _rate(dropout_rate=self.dropout_rate, attention_dropout_rate=self.attention_dropout_rate)
        _rate(activation_dropout_rate=self.activation_dropout_rate)
        _rate(layer_drop_rate=self.layer_drop_rate)
        _above(0, 1, norm_epsilon=self.norm_epsilon)
        _within(1, _SIZE, num_kv_heads=self.num_kv_heads, window=self.window)
        _within(1, _SIZE, lora_rank=self.lora_rank)
        _within(0, _SIZE, token_types=self.token_types)
        _above(0, 1e6, lora_alpha=self.lora_alpha)
        _above(1, 1e9, rope_theta=self.rope_theta)
        _above(0, 1, rope_fraction=self.rope_fraction)
        _within(1e-3, 1e3, attention_temperature=self.attention_temperature)
        _within(4, 2**16, relative_buckets=self.relative_buckets)
        _within(1, _SIZE, relative_max_distance=self.relative_max_distance)
        _within(1, 2**16, relative_clip=self.relative_clip)
        _check(
            len(set(self.biases)) == len(self.biases),
            f"biases={self.biases}: names a map twice; name each once",
        )
        _check_heads(self)
        _check_mixer_sizes(self)
        _check_patterns(self)
        _check_relative(self)
        _check_two_stream(self)
        _check_recurrent(self)
        _check_reversible(self)
        _check_encoder(self)
        _check_perceiver(self)
        _check_autoencoder(self)
        _check_stem(self)
        _check_scales(self)
        _check_lora(self)
        _check(
            self.head_dim is not None
            or self.d_model % self.num_heads == 0
            or _own_fields(self) is not None,
            f"d_model={self.d_model} is no multiple of num_heads={self.num_heads}: "
            "choose another num_heads or set head_dim",
        )
        _check(
            not self.sinusoidal or self.d_model % 2 == 0,
            f"d_model={self.d_model} is odd, which positions={self.positions!r} cannot be: "
            "choose an even d_model or positions='learned'",
        )
        for name in ("d_ff", "num_heads"):
            width = self.d_ff if name == "d_ff" else self.num_heads * self.key_size
            _check(
                self.d_model * width <= _ELEMENTS,
                f"{name}={getattr(self, name)}: a matrix of d_model={self.d_model} x {width} is "
                f"more than {_ELEMENTS} numbers; lower them",
            )
        if self.attention == "fused":
            _check(
                self.attention_dropout_rate == 0,
                f"attention_dropout_rate={self.attention_dropout_rate}: attention='fused' has no "
                "dropout on its weights; set it to 0 or choose 'dense'",
            )
            _check(
                self.key_size == self.value_size,
                f"v_head_dim={self.value_size}: attention='fused' needs it equal to "
                f"head_dim={self.key_size}; make them equal or choose 'dense'",
            )

    @property
    def stacks(self) -> tuple[str, ...]:
        """The names of its stacks of layers, in the order in which a text passes them."""
        both = "encoder", "decoder"
        alone: dict[str, tuple[str, ...]] = {
            "decoder": ("decoder",), "two_stream": ("decoder",), "encoder": ("encoder",),
            "perceiver": ("encoder",), "elmo": ("encoder",), "decomposable_attention": (),
        }  # fmt: skip
        return alone.get(self.architecture, both)

    @property
    def reads_by_cells(self) -> bool:
        """Whether the layers that read are recurrent ones without residual parts."""
        return {*self.encoder_pattern} <= {*_CELLS, *_TWO_WAY}

    @property
    def key_size(self) -> int:
        """d_k."""
        return self.head_dim or self.d_model // self.num_heads

    @property
    def value_size(self) -> int:
        """d_v."""
        return self.v_head_dim or self.key_size

    @property
    def sinusoidal(self) -> bool:
        """Whether sines and cosines are added to embeddings."""
        return self.positions in ("sinusoidal", "sinusoidal_tensor2tensor")

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.num_kv_heads or self.num_heads

    @property
    def rotated_channels(self) -> int:
        """Channels of each head that rotary positions turn."""
        return int(self.key_size * self.rope_fraction)

    def patches(self, window: int) -> int:
        """Return how many patches stem="series" makes of a window."""
        return (window - self.patch_length) // self.patch_stride + 1

    @property
    def position_limit(self) -> int | None:
        """How many positions the model knows; None: no limit."""
        places = not {*_PLACES}.isdisjoint(self.encoder_pattern + self.decoder_pattern)
        return self.max_positions if self.positions == "learned" or places else None


def _check_heads(model: ModelConfig) -> None:
    _check(
        model.num_heads % model.kv_heads == 0,
        f"num_kv_heads={model.num_kv_heads}: must divide num_heads={model.num_heads}",
    )


def _check_mixer_sizes(model: ModelConfig) -> None:
    _within(1, 2**16, dilation=model.dilation, num_features=model.num_features)
    _within(1, 2**16, global_tokens=model.global_tokens)
    _within(1, _SIZE, position_rank=model.position_rank, block_size=model.block_size)
    _within(1, 2**12, conv_kernel=model.conv_kernel)
    _check(
        model.conv_kernel % 2 == 1,
        f"conv_kernel={model.conv_kernel}: reads as many positions on either side; choose an odd "
        "number",
    )
    _within(0, 1000, random_blocks=model.random_blocks)
    _within(1, 64, hash_rounds=model.hash_rounds)
    _within(2, 2**16, hash_buckets=model.hash_buckets)
    _check(
        model.hash_buckets % 2 == 0,
        f"hash_buckets={model.hash_buckets}: a rotation has two for each of its axes; choose an "
        "even number",
    )
    _within(1, _STEPS, redraw_every=model.redraw_every)
    _within(0, 2**32 - 1, feature_seed=model.feature_seed)


def _check_patterns(model: ModelConfig) -> None:
    patterns = model.encoder_pattern + model.decoder_pattern
    for name in ("encoder_pattern", "decoder_pattern"):
        layers = getattr(model, f"num_{name.removesuffix('_pattern')}_layers")
        count = len(getattr(model, name))
        _check(
            1 <= count <= layers,
            f"{name}={getattr(model, name)}: must name 1 to {layers} layers, which is how many "
            "there are",
        )
    near = model.architecture == "recurrent" and model.source_attention.startswith("local")
    needed = near or not {*patterns}.isdisjoint(_WITHIN)
    _check(
        (model.window is None) != needed or any(map(_is_part, patterns)),
        f"window={model.window}: must be set if, and only if, encoder_pattern or decoder_pattern "
        f"has a layer of {_or(_WITHIN)}, or source_attention is local",
    )
    for option, kinds in _MIXER_FIELDS.items():
        default = ModelConfig.__dataclass_fields__[option].default
        read = not {*kinds}.isdisjoint(patterns) or any(map(_is_part, patterns))
        _check(
            read or getattr(model, option) == default,
            f"{option}={getattr(model, option)}: neither encoder_pattern nor decoder_pattern has a "
            f"layer of {_or(kinds)}; leave it at {default}",
        )
    _check_mixers(model)
    for missing in {"encoder", "decoder"} - {*model.stacks}:
        for name in (f"num_{missing}_layers", f"{missing}_pattern"):
            default = ModelConfig.__dataclass_fields__[name].default
            _check(
                getattr(model, name) == default,
                f"{name}={getattr(model, name)}: architecture={model.architecture!r} has no "
                f"{missing}; leave it at {default}",
            )


def _without_scores(pattern: Iterable[str]) -> list[str]:
    """Return the layers of ours that are no attention with a softmax over positions."""
    return [kind for kind in pattern if kind not in _ATTENTION and not _is_part(kind)]


def _check_mixers(model: ModelConfig) -> None:
    _check(
        "conformer" not in model.encoder_pattern or model.residual == "pre_norm",
        f"residual={model.residual!r}: parts of 'conformer' in encoder_pattern="
        f"{model.encoder_pattern} each read a norm; choose 'pre_norm'",
    )
    for name, kinds, why in (
        ("encoder_pattern", _ONE_WAY, "goes from the left to the right; an encoder reads all"),
        ("decoder_pattern", _WHOLE, "reads whole texts; a decoder has written no end yet"),
    ):
        if name == "decoder_pattern" and model.architecture == "autoencoder":
            kinds, why = _ONE_WAY, "goes from the left to the right; this decoder reads all codes"
        for kind in getattr(model, name):
            _check(
                kind not in kinds,
                f"{name}={getattr(model, name)}: {kind!r} {why}; choose another",
            )
    for name in ("encoder_pattern", "decoder_pattern"):
        pattern = getattr(model, name)
        others = _without_scores(pattern)
        if not others:
            continue
        for option, why in (
            ("relative_positions", "has no scores of pairs for it to change"),
            ("attention_dropout_rate", "has no weights to leave out"),
        ):
            default = ModelConfig.__dataclass_fields__[option].default
            _check(
                getattr(model, option) == default,
                f"{option}={getattr(model, option)!r}: {others[0]!r} in {name}={pattern} {why}; "
                f"leave it at {default!r}",
            )
        _check(
            "lsh" not in others or model.num_kv_heads is None,
            f"num_kv_heads={model.num_kv_heads}: keys of 'lsh' in {name}={pattern} are its "
            "queries; leave it at None",
        )
        alike = model.kv_heads == model.num_heads and model.key_size == model.value_size
        _check(
            alike or {*others}.isdisjoint(_FREE),
            f"{name}={pattern}: {_or(_FREE)} weight each channel of a value by that of its key; "
            "leave num_kv_heads and v_head_dim at None",
        )
        _check(
            model.d_model % 2 == 0 or not {*others} & {*_TWO_WAY},
            f"d_model={model.d_model}: {name}={pattern} has a state of half of that for either "
            "direction; choose an even d_model",
        )


def _check_reversible(model: ModelConfig) -> None:
    for name in ("layer_sharing", "layer_drop_rate", "layer_loop", "remat"):
        default = ModelConfig.__dataclass_fields__[name].default
        _check(
            model.residual != "reversible" or getattr(model, name) == default,
            f"{name}={getattr(model, name)!r}: residual='reversible' undoes its layers one by one "
            f"on the way back; leave it at {default!r}",
        )


def _check_encoder(model: ModelConfig) -> None:
    for name in ("token_types", "pooling", "pooler"):
        among = ("encoder", "elmo") if name == "pooling" else ("encoder",)
        default = ModelConfig.__dataclass_fields__[name].default
        _check(
            model.architecture in among or getattr(model, name) == default,
            f"{name}={getattr(model, name)!r}: means nothing with architecture="
            f"{model.architecture!r}; leave it at {default!r} or choose 'encoder'",
        )


# Which stems read each field that is for some of them alone.
_STEM_FIELDS = {
    "stem_layers": "convolution",
    "grid": "convolution",
    "patch_length": "series",
    "patch_stride": "series",
    "distribution": "series",
}


def _check_perceiver(model: ModelConfig) -> None:
    _within(1, _SIZE, num_latents=model.num_latents)
    perceives = model.architecture == "perceiver"
    _check(
        perceives or model.num_latents == 256,
        f"num_latents={model.num_latents}: means nothing with architecture={model.architecture!r}; "
        "leave it at 256 or choose 'perceiver'",
    )
    _check(
        not perceives or model.layer_sharing != "universal",
        "layer_sharing='universal': adds positions before each layer, and latents have none; "
        "choose 'all'",
    )


def _check_autoencoder(model: ModelConfig) -> None:
    _within(1, 2**20, num_codes=model.num_codes)
    _within(2, _SIZE, code_width=model.code_width)
    _within(0, 1e3, commitment=model.commitment)
    coded = model.architecture == "autoencoder"
    for name in ("num_codes", "code_width", "commitment"):
        default = ModelConfig.__dataclass_fields__[name].default
        _check(
            coded or getattr(model, name) == default,
            f"{name}={getattr(model, name)}: means nothing with architecture="
            f"{model.architecture!r}; leave it at {default} or choose 'autoencoder'",
        )
    _check(
        not coded or model.stem in ("linear", "convolution"),
        f"stem={model.stem!r}: architecture='autoencoder' makes the vectors that it reads; choose "
        "'linear' or 'convolution'",
    )


def _check_stem(model: ModelConfig) -> None:
    _within(1, 10, stem_layers=model.stem_layers)
    _within(1, _SIZE, patch_length=model.patch_length, patch_stride=model.patch_stride)
    placed = model.grid_positions != "none"
    _check(
        not placed or (model.stem != "embedding" and bool(model.grid) and model.d_model % 4 == 0),
        f"grid_positions={model.grid_positions!r}: is for a stem of vectors, with the rows and "
        "columns of a picture in grid and a d_model that 4 divides; leave it at 'none'",
    )
    for name, stem in _STEM_FIELDS.items():
        default = ModelConfig.__dataclass_fields__[name].default
        read = name == "grid" and (placed or model.architecture == "prefix_decoder")
        _check(
            read or model.stem == stem or getattr(model, name) == default,
            f"{name}={getattr(model, name)!r}: means nothing with stem={model.stem!r}; leave it at "
            f"{default!r} or choose {stem!r}",
        )
    _check(
        len(model.grid) in (0, 2) and all(1 <= n <= 2**10 for n in model.grid),
        f"grid={model.grid}: must be the rows and columns of patches in a picture, as in (8, 8)",
    )
    if model.stem == "embedding":
        _check(
            model.architecture != "prefix_decoder",
            "stem='embedding': architecture='prefix_decoder' reads vectors; choose another stem, "
            "or architecture='decoder' and objective.name='prefix_lm'",
        )
        return
    _check(
        model.stem != "series" or model.architecture == "encoder",
        f"stem='series': architecture={model.architecture!r} writes pieces; choose 'encoder'",
    )
    _check(
        model.architecture != "prefix_decoder"
        or all(kind == "full" or _is_part(kind) for kind in model.decoder_pattern),
        f"decoder_pattern={model.decoder_pattern}: padding may stand between vectors and text of "
        "architecture='prefix_decoder', which windows and states do not leave out; choose 'full'",
    )
    readers = "encoder", "perceiver", "encoder_decoder", "prefix_decoder", "autoencoder"
    _check(
        model.architecture in readers,
        f"stem={model.stem!r}: architecture={model.architecture!r} reads pieces; choose "
        f"'embedding', or architecture={_or(readers)}",
    )
    _check(
        model.token_types == 0,
        f"token_types={model.token_types}: means nothing with stem={model.stem!r}; set it to 0",
    )
    _check(
        model.tied_embeddings != "all" or model.architecture != "encoder_decoder",
        f"stem={model.stem!r}: there is no source table that tied_embeddings='all' could share; "
        "choose 'decoder' or 'none'",
    )
    _check(
        model.stem != "conv1d" or not (placed or model.architecture == "prefix_decoder"),
        f"stem='conv1d': halves a sequence, and grid_positions={model.grid_positions!r} and "
        "architecture='prefix_decoder' are of patches; choose another stem, or another of those",
    )
    if model.stem != "convolution":
        return
    _check(
        bool(model.grid),
        "grid=(): stem='convolution' needs the rows and columns of patches in a picture, as in "
        "(8, 8)",
    )
    _check(
        model.d_model % 2 ** (model.stem_layers - 1) == 0,
        f"d_model={model.d_model}: stem_layers={model.stem_layers} halve it "
        f"{model.stem_layers - 1} times; choose a multiple of {2 ** (model.stem_layers - 1)}",
    )


def _check_two_stream(model: ModelConfig) -> None:
    if model.architecture != "two_stream":
        return
    _check(
        (model.positions, model.relative_positions) != ("none", "none"),
        "positions='none': with relative_positions='none' too, the queries of architecture="
        "'two_stream' are all alike; choose positions or relative_positions",
    )
    _check(
        not model.input_norm,
        "input_norm=True: the streams of architecture='two_stream' begin without a norm, as "
        "XLNet's do; set it to False",
    )
    # A query that may look nowhere gets the mean of all values: of what it is to predict, too.
    _check(
        all(kind == "full" or _is_part(kind) for kind in model.decoder_pattern),
        f"decoder_pattern={model.decoder_pattern}: queries of architecture='two_stream' look at "
        "what stands anywhere, and a window may hold nothing; choose 'full'",
    )


# What recurrent models have of a model: layers, tables, dropout and how it is computed.
_RECURRENT = (
    "architecture", "d_model", "num_encoder_layers", "num_decoder_layers", "encoder_pattern",
    "decoder_pattern", "window", "recurrence", "source_attention", "input_feeding",
    "reverse_source", "dropout_rate", "positions", "tied_embeddings", "embedding_norm",
    "embedding_scale", "logits_scale", "compute_dtype",
)  # fmt: skip
_DECOMPOSABLE = (
    "architecture", "d_model", "d_ff", "dropout_rate", "positions", "embedding_norm",
    "embedding_scale", "compute_dtype",
)  # fmt: skip
# The fields that mean something to architectures that are no Transformers.
_ELMO = (
    "architecture", "d_model", "num_encoder_layers", "encoder_pattern", "dropout_rate", "pooling",
    "positions", "tied_embeddings", "embedding_norm", "embedding_scale", "logits_scale",
    "compute_dtype",
)  # fmt: skip
_OWN_FIELDS = {
    "recurrent": _RECURRENT, "elmo": _ELMO, "decomposable_attention": _DECOMPOSABLE
}  # fmt: skip


def _own_fields(model: ModelConfig) -> tuple[str, ...] | None:
    """Return the fields that mean something to a model that has no Transformer's layers."""
    if model.architecture != "recurrent":
        return _OWN_FIELDS.get(model.architecture)
    if not model.reads_by_cells:
        return None
    normed, headed = (
        model.recurrence == "rnmt_plus", model.source_attention == "multi_head_additive"
    )  # fmt: skip
    return (*_RECURRENT, *("norm_epsilon",) * normed, *("num_heads",) * headed)


def _check_recurrent(model: ModelConfig) -> None:
    own = ("recurrence", "source_attention", "input_feeding", "reverse_source")
    fields, recurrent = _own_fields(model), model.architecture == "recurrent"
    for name, item in ModelConfig.__dataclass_fields__.items():
        value, default = getattr(model, name), item.default
        known = (recurrent or name not in own) if fields is None else name in fields
        _check(
            value == default or known,
            f"{name}={value!r}: means nothing with architecture={model.architecture!r}; leave it "
            f"at {default!r}",
        )
    _check(
        fields is None or model.positions == "none",
        f"positions={model.positions!r}: architecture={model.architecture!r} has none; set it to "
        "'none'",
    )
    _check(
        model.architecture != "elmo" or {*model.encoder_pattern} <= {*_CELLS},
        f"encoder_pattern={model.encoder_pattern}: layers of architecture='elmo' are {_or(_CELLS)}",
    )
    if not recurrent:
        return
    cells = ("lstm",) if model.recurrence == "rnmt_plus" else _CELLS
    _check(
        {*model.decoder_pattern} <= {*cells},
        f"decoder_pattern={model.decoder_pattern}: layers of architecture='recurrent' with "
        f"recurrence={model.recurrence!r} are {_or(cells)}",
    )
    _check(
        model.reads_by_cells or {*model.encoder_pattern}.isdisjoint((*_CELLS, *_TWO_WAY)),
        f"encoder_pattern={model.encoder_pattern}: layers of architecture='recurrent' are either "
        f"{_or((*_CELLS, *_TWO_WAY))}, or the Transformer's; choose these or those",
    )
    _check(
        model.source_attention != "multi_head_additive" or model.d_model % model.num_heads == 0,
        f"d_model={model.d_model} is no multiple of num_heads={model.num_heads}: choose another "
        "num_heads, or source_attention='additive'",
    )
    _check(
        model.reads_by_cells or not model.reverse_source,
        f"reverse_source=True: layers of {model.encoder_pattern} read a source from both ends; set "
        "it to False",
    )
    feeds = model.recurrence == "luong" and model.source_attention != "none"
    _check(
        feeds or not model.input_feeding,
        f"input_feeding=True: recurrence={model.recurrence!r} with source_attention="
        f"{model.source_attention!r} has its own way; set it to False",
    )
    _check(
        model.recurrence not in ("gnmt", "rnmt_plus") or model.source_attention != "none",
        f"source_attention='none': recurrence={model.recurrence!r} feeds what it looks at to all "
        "layers; choose another",
    )


# Which schemes of relative positions read each field that is for some of them alone.
_RELATIVE = {
    "rope_theta": ("rope", "rope_interleaved"),
    "rope_fraction": ("rope", "rope_interleaved"),
    "relative_buckets": ("t5",),
    "relative_max_distance": ("t5",),
    "relative_clip": ("shaw", "shaw_values", "toeplitz"),
    "share_relative_positions": ("t5", "shaw", "shaw_values", "toeplitz", "xlnet"),
}


def _check_relative(model: ModelConfig) -> None:
    scheme = model.relative_positions
    for name, schemes in _RELATIVE.items():
        default = ModelConfig.__dataclass_fields__[name].default
        _check(
            scheme in schemes or _is_part(scheme) or getattr(model, name) == default,
            f"{name}={getattr(model, name)}: means nothing with relative_positions={scheme!r}; "
            f"leave it at {default}",
        )
    channels = model.rotated_channels
    _check(
        scheme not in _RELATIVE["rope_theta"] or (channels >= 2 and channels % 2 == 0),
        f"rope_fraction={model.rope_fraction}: rotates {channels} of {model.key_size} channels "
        "of a head; must be an even number, at least 2",
    )
    _check(
        model.relative_buckets % 2 == 0,
        f"relative_buckets={model.relative_buckets}: must be even, for two directions",
    )
    _check(
        model.relative_max_distance > model.relative_buckets // 2,
        f"relative_max_distance={model.relative_max_distance}: must be above half of "
        f"relative_buckets={model.relative_buckets}, which are for one distance each",
    )
    _check(
        scheme != "xlnet" or model.d_model % 2 == 0,
        f"d_model={model.d_model} is odd, which sines and cosines of relative_positions='xlnet' "
        "cannot be; choose an even d_model",
    )
    _check(
        scheme != "shaw_values" or model.attention == "dense",
        "relative_positions='shaw_values': attention='fused' has no term for values; choose "
        "'dense', or relative_positions='shaw'",
    )


def _check_scales(model: ModelConfig) -> None:
    """Refuse sizes of values, and vectors of each step, that do not go together."""
    _check(
        not model.logits_scale or model.tied_embeddings != "none",
        "logits_scale=True: is for a pre-softmax table that is an embedding too, and "
        "tied_embeddings='none' has none; set it to False or choose 'all' or 'decoder'",
    )
    _check(
        not model.logits_scale or model.embedding_norm == "none",
        f"logits_scale=True: embedding_norm={model.embedding_norm!r} sets the size of logits "
        "already; set it to False or choose embedding_norm='none'",
    )
    _check(
        model.initializer == "xavier" or model.residual != "deep_norm",
        f"initializer={model.initializer!r}: residual='deep_norm' has initial values of its own, "
        "which are multiples of Xavier's; choose 'xavier' or another residual",
    )
    _check(
        model.layer_sharing != "universal" or model.sinusoidal,
        f"positions={model.positions!r}: layer_sharing='universal' adds sines and cosines of the "
        "position and the step before each layer; choose 'sinusoidal' or layer_sharing='all'",
    )


def _check_lora(model: ModelConfig) -> None:
    for name in ("lora_alpha", "lora_maps"):
        default = ModelConfig.__dataclass_fields__[name].default
        _check(
            model.lora_rank is not None or getattr(model, name) == default,
            f"{name}={getattr(model, name)}: means nothing without lora_rank; leave it at "
            f"{default}, or set lora_rank",
        )
    _check(bool(model.lora_maps), "lora_maps=(): names no map to adapt")


@dataclass(frozen=True)
class SideConfig:
    """How the text of one side becomes ids."""

    # "subwords": SentencePiece, see `tokenizer`; "wordpiece": words cut into the longest pieces, as
    # in BERT; "words": what stands between spaces, which may be pieces that another program made;
    # "trees": linearised trees, "(NP XX )NP", of the brackets that the training trees have and of
    # words, which are pieces by their numbers;
    # "bytes" of UTF-8; "characters": those that the training text has; "classes": a line is one of
    # the different lines of the training text;
    # "labels": a line is labels with spaces between them, which the training text has;
    # "values": a line is a number; "spans": a line is a place in the source side's;
    # "fen": a line is a position of chess, in 77 characters (Ruoss et al. 2024, arXiv:2402.04494);
    # "moves": a line is one of its 1,968 moves, "e2e4";
    # "huggingface": the tokenizer.json of a model that was imported.
    # What is no text becomes vectors. "patches": squares of pictures; "series": rows of numbers;
    # "log_mel": frames of sound, each the logarithms of the power in some bands (Whisper: Radford
    # et al. 2022, arXiv:2212.04356).
    codec: Literal[
        "subwords", "wordpiece", "words", "trees", "bytes", "characters", "classes", "labels",
        "values", "spans", "fen", "moves", "huggingface", "patches", "series", "log_mel",
    ] = "subwords"  # fmt: skip


@dataclass(frozen=True)
class SourceConfig(SideConfig):
    """How what is read becomes ids, or vectors."""

    patch_size: int = 4  # patches: pixels on either side of one
    # log_mel, whose defaults are Whisper's: samples a second; all sounds must have as many.
    sample_rate: int = 16_000
    n_fft: int = 400  # samples that a frame is made of
    hop_length: int = 160  # samples from one frame to the next
    num_mels: int = 80  # bands, whose corners are evenly spaced on the mel scale

    def __post_init__(self) -> None:
        _within(1, 2**12, patch_size=self.patch_size, num_mels=self.num_mels)
        _within(1000, 10**6, sample_rate=self.sample_rate)
        _within(2, 2**16, n_fft=self.n_fft)
        _within(1, 2**16, hop_length=self.hop_length)
        for codec, names in _VECTOR_FIELDS.items():
            for name in names:
                default = SourceConfig.__dataclass_fields__[name].default
                _check(
                    self.codec == codec or getattr(self, name) == default,
                    f"{name}={getattr(self, name)}: means nothing with codec={self.codec!r}; leave "
                    f"it at {default}",
                )


# Which fields each codec of vectors reads.
_VECTOR_FIELDS = {
    "patches": ("patch_size",),
    "log_mel": ("sample_rate", "n_fft", "hop_length", "num_mels"),
}
# The codecs of what is no text, but vectors, and the sources of it.
VECTORS = {
    "patches": ("arrays", "folders", "tfds"), "series": ("series",), "log_mel": ("wavs",),
}  # fmt: skip
SOUNDS = ("log_mel",)  # those of sound
# The codecs of tokenizer.vocab_size pieces, and the fields of it that they read beside `joint`.
SIZED = {
    "subwords": (
        "algorithm", "vocab_size", "byte_fallback", "character_coverage", "normalization",
        "max_lines", "symbols", "model", "unk_surface",
    ),
    "wordpiece": ("vocab_size", "max_lines", "symbols", "lowercase"),
    "words": ("vocab_size", "max_lines", "symbols", "lowercase"),
}  # fmt: skip


@dataclass(frozen=True)
class TokenizerConfig:
    """SentencePiece, trained on the training split when a run first starts; or other pieces."""

    algorithm: Literal["bpe", "unigram"] = "bpe"  # which pieces: merges, or a unigram model
    vocab_size: int = 32000  # pieces, the 4 reserved ones included; per side if not joint
    joint: bool = True  # one vocabulary for both languages, of whatever codec
    byte_fallback: bool = False  # spell unknown characters as bytes; needs 260 pieces of its own
    character_coverage: float = 1.0  # share of the characters that get pieces
    # Of characters, before anything else, by SentencePiece's rule of that name; "_cf" also folds
    # case, "identity" changes nothing.
    normalization: Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"] = "nmt_nfkc"
    max_lines: int = 5_000_000  # lines sampled for the training of a model, joint or not
    # Pieces that are never cut or joined wherever a text has them: tags ("<2de>"), placeholders.
    # They are pieces of vocab_size.
    symbols: tuple[str, ...] = ()
    # subwords: how UNK is written in texts, "[UNK]" for example, as wordpiece and words always do.
    unk_surface: str = " ⁇ "
    # wordpiece, words: without case and, in wordpiece, without accents, as BERT's uncased models.
    lowercase: bool = False
    # A SentencePiece model that is there already, a file, and is not trained: its pieces, in their
    # order, behind the reserved ones, and its normalisation. `symbols` are pieces more.
    model: str | None = None

    def __post_init__(self) -> None:
        for symbol in self.symbols:
            _check(
                bool(symbol)
                and not re.search(r"\s|▁", symbol)
                and symbol not in ("<pad>", "<s>", "</s>", "<unk>")
                and self.symbols.count(symbol) == 1,
                f"symbols={self.symbols}: {symbol!r} must have no spaces, be no reserved "
                "piece, and be named once",
            )
        for name in ("algorithm", "vocab_size", "byte_fallback", "character_coverage",
                     "normalization", "max_lines"):  # fmt: skip
            default = TokenizerConfig.__dataclass_fields__[name].default
            _check(
                self.model is None or getattr(self, name) == default,
                f"{name}={getattr(self, name)!r}: follows from model={self.model!r}; leave it at "
                f"{default!r}",
            )
        floor = 4 + 256 + 1 if self.byte_fallback else 5
        _check(
            self.vocab_size >= floor,
            f"vocab_size={self.vocab_size}: must be at least {floor}"
            + (" with byte_fallback" if self.byte_fallback else ""),
        )
        _check(
            0.9 <= self.character_coverage <= 1.0,
            f"character_coverage={self.character_coverage}: must lie between 0.9 and 1",
        )
        _within(floor, _SIZE, vocab_size=self.vocab_size)
        _within(101, 10**9, max_lines=self.max_lines)  # at least 101: SentencePiece's own bound


@dataclass(frozen=True)
class DataConfig:
    """Where pairs come from and how they become batches."""

    # "text": files of lines; "tfds": a data set of TensorFlow Datasets; "spelled_numbers": numbers
    # in words, which are made here.
    # Made here as well: "listops", nested lists of digits under operators, and their value (Long
    # Range Arena, arXiv:2011.04006); "copying", random letters on both sides.
    # "chess": positions of games, and of each a best "move" or the "value", as target_language
    # says, by the material behind the best reply; in the extra `chess`.
    # "arrays": files of NumPy, of pictures for example, with a label for each entry; "folders":
    # files of pictures, in a folder for each label. "series": time series, of comma-separated
    # values: a header, a date in the first column, then numbers. "wavs": files of sound, and what
    # is said there.
    source: Literal[
        "text", "tfds", "spelled_numbers", "listops", "copying", "chess", "arrays", "folders",
        "series", "wavs",
    ] = "text"  # fmt: skip
    # text, arrays, folders, series, wavs: the folder of the files; tfds: its data_dir (None: TFDS's
    # own default place).
    directory: str | None = None
    name: str = ""  # tfds: the data set, "wmt14_translate/de-en"
    # source_language and target_language name the two sides. text: file name endings; tfds: feature
    # names; spelled_numbers: num2words languages; arrays: names of arrays in each file.
    source_language: str = "en"
    target_language: str = "de"
    # train, validation, test: the parts of each split, joined in order. text: "train" reads
    # train.en and train.de (or .gz of both); arrays: train.npz; folders: train/LABEL/FILE; series:
    # "NAME[FIRST:LAST]", those rows of NAME.csv, from 0 on and without LAST, of which all are
    # predicted in validation and test, as the rows that are read may stand before them; wavs: a
    # folder, or train.zip; tfds: split names; of what is made here the only part is the split's own
    # name. wavs: a part with [GROUP:VALUE] behind it is the files for which that group of
    # label_pattern is that, with [GROUP:!VALUE] all others: train[speaker:!anna].
    train: tuple[str, ...] = ("train",)
    validation: tuple[str, ...] = ("validation",)
    test: tuple[str, ...] = ("test",)
    how_to_get: str = ""  # shown when the data is missing: the command that fetches it
    # "PART=TEXT": stands before each source line of a part, with a space between. It names a task
    # ("translate English to German:", Raffel et al. 2020, arXiv:1910.10683), or tags that are among
    # tokenizer.symbols: the target language (Johnson et al. 2017, arXiv:1611.04558), or that the
    # source is a back-translation (Caswell et al. 2019, arXiv:1906.06442).
    prefixes: tuple[str, ...] = ()
    # How much of an epoch is from each part of `train`. By default each item comes once. An epoch
    # always has as many items as all parts; those of a part that it has more or less of come in
    # turn, epoch after epoch. weights: "PART=NUMBER", shares of all parts, relative to each other.
    weights: tuple[str, ...] = ()
    # Or in proportion to the items of a part, counted up to mixing_limit (None: all), to the power
    # of 1 / temperature (Raffel et al. 2020, section 3.5.2): 1 is in proportion, more more alike.
    mixing_temperature: float = 1.0
    mixing_limit: int | None = None
    # wavs: what is said in a file. A regular expression for whole names of files, whose group
    # "label" is it; "": it stands behind a TAB on the line of that name in PART.tsv.
    label_pattern: str = ""
    label_texts: tuple[str, ...] = ()  # "LABEL=TEXT": what stands for a label, of each there is
    # What is made here: how much for train, validation and test.
    num_examples: tuple[int, ...] = (50_000, 500, 500)
    max_number: int = 1_000_000_000  # spelled_numbers: numbers are below this
    # listops, copying: a text has at least and at most so many symbols. The defaults of this and of
    # the next two are those of Long Range Arena.
    example_lengths: tuple[int, ...] = (501, 1999)
    list_depth: int = 10  # listops: levels of lists, digits counted
    list_arguments: int = 10  # listops: the most of a list, which has 2 at least

    # folders: rows and columns that each picture is brought to, by its middle; (): as they are.
    image_size: tuple[int, ...] = ()
    # How pictures are changed at random in training, in this order: "crop", moved by up to
    # crop_padding pixels; "flip", left and right changed in half of them; "cutout", a square of
    # cutout_size pixels taken out (arXiv:1708.04552). And frames of sound (SpecAugment: Park et al.
    # 2019, arXiv:1904.08779), once for each time that a word stands there: "frequency_mask", up
    # to frequency_mask_size bands that lie together become the sound's mean; "time_mask", so do
    # up to time_mask_size frames, of at most time_mask_share of all.
    augment: tuple[Literal["crop", "flip", "cutout", "frequency_mask", "time_mask"], ...] = ()
    crop_padding: int = 4
    cutout_size: int = 8
    frequency_mask_size: int = 27
    time_mask_size: int = 100
    time_mask_share: float = 1.0

    # BPE-dropout (Provilkov et al. 2020, arXiv:1910.13267, whose value is 0.1): the share of merges
    # left out at random where training pairs are cut into pieces; 0: none.
    subword_dropout: float = 0.0
    segmentations: int = 8  # with subword_dropout: how often an epoch has each pair, cut anew

    max_length: int = 256  # longest side of a training pair, in pieces with EOS; longer are dropped
    max_length_ratio: float = 9.0  # training pairs more uneven than this, in pieces, are dropped
    # translate: of sources longer than max_length; "drop" such pairs in training, and translate
    # them in parts; "cut" what is beyond it, there and here: texts whose class is written.
    long_sources: Literal["drop", "cut"] = "drop"
    tokens_per_batch: int = 25_000  # most positions on each side of one global batch, with padding
    # "bucket": one pair a row, with pairs of similar length; "pack": several pairs a row, which do
    # not see one another.
    batching: Literal["bucket", "pack"] = "bucket"
    num_buckets: int = 16  # bucket: static shapes; chosen from the data by least padding
    rows_divisible_by: int = 8  # rows of a batch are a multiple of this; so must a mesh allow

    def __post_init__(self) -> None:
        _rate(subword_dropout=self.subword_dropout)
        _within(1, 1000, segmentations=self.segmentations, num_buckets=self.num_buckets)
        _within(1, 2**12, crop_padding=self.crop_padding, cutout_size=self.cutout_size)
        _check(
            len(self.image_size) in (0, 2) and all(1 <= n <= 2**14 for n in self.image_size),
            f"image_size={self.image_size}: must be rows and columns, as in (64, 64)",
        )
        _within(1, 2**12, frequency_mask_size=self.frequency_mask_size)
        _within(1, 2**16, time_mask_size=self.time_mask_size)
        _above(0, 1, time_mask_share=self.time_mask_share)
        self._check_labels()
        for name, word in (
            ("crop_padding", "crop"), ("cutout_size", "cutout"),
            ("frequency_mask_size", "frequency_mask"), ("time_mask_size", "time_mask"),
            ("time_mask_share", "time_mask"),
        ):  # fmt: skip
            default = DataConfig.__dataclass_fields__[name].default
            _check(
                word in self.augment or getattr(self, name) == default,
                f"{name}={getattr(self, name)}: means nothing without {word!r} in augment="
                f"{self.augment}; leave it at {default}",
            )
        _within(2, _SIZE, max_length=self.max_length)
        _within(1, _SIZE, max_length_ratio=self.max_length_ratio)
        _within(1, _SIZE, rows_divisible_by=self.rows_divisible_by)
        _within(1, 2**28, tokens_per_batch=self.tokens_per_batch)
        need = self.max_length * self.rows_divisible_by
        _check(
            self.tokens_per_batch >= need,
            f"tokens_per_batch={self.tokens_per_batch} is below max_length={self.max_length} x "
            f"rows_divisible_by={self.rows_divisible_by}: raise it to {need} or lower the others",
        )
        _check(bool(self.train), "train=(): names no part to train on")
        _within(0.1, 1000, mixing_temperature=self.mixing_temperature)
        _within(1, 2**40, mixing_limit=self.mixing_limit)
        self._check_parts()
        _check(
            len(self.num_examples) == 3 and all(1 <= n <= 10**8 for n in self.num_examples),
            f"num_examples={self.num_examples}: must be three sizes of at least 1 and at most 10^8",
        )
        _within(1, 10**18, max_number=self.max_number)
        _within(2, 100, list_depth=self.list_depth, list_arguments=self.list_arguments)
        _check(
            len(self.example_lengths) == 2
            and 1 <= self.example_lengths[0] <= self.example_lengths[1] <= 10**6,
            f"example_lengths={self.example_lengths}: must be the least and the greatest number of "
            "symbols, from 1 to 10^6",
        )
        for name, sources in (
            ("example_lengths", ("listops", "copying")), ("list_depth", ("listops",)),
            ("list_arguments", ("listops",)), ("image_size", ("folders",)),
        ):  # fmt: skip
            default = DataConfig.__dataclass_fields__[name].default
            _check(
                self.source in sources or getattr(self, name) == default,
                f"{name}={getattr(self, name)}: is for source={_or(sources)}, not {self.source!r}; "
                f"leave it at {default}",
            )
        _check(
            self.source != "spelled_numbers" or sum(self.num_examples) <= self.max_number,
            f"num_examples={self.num_examples}: more than max_number={self.max_number} in all",
        )

    def _check_labels(self) -> None:
        """Refuse what says otherwise than it must what is said in a file of sound."""
        for name in ("label_pattern", "label_texts"):
            default = DataConfig.__dataclass_fields__[name].default
            _check(
                self.source == "wavs" or getattr(self, name) == default,
                f"{name}={getattr(self, name)!r}: is for source='wavs', not {self.source!r}; leave "
                f"it at {default!r}",
            )
        if self.label_pattern:
            _check_pattern("label_pattern", self.label_pattern)
            _check(
                "label" in re.compile(self.label_pattern).groupindex,
                f"label_pattern={self.label_pattern!r}: has no group of that name; write "
                "(?P<label>...) where the label stands",
            )
        named = [entry.partition("=")[0] for entry in self.label_texts]
        for label, entry in zip(named, self.label_texts, strict=True):
            _check(
                named.count(label) == 1 and entry.partition("=")[2].strip() != "",
                f"label_texts={entry!r}: must be LABEL=TEXT, once for each label",
            )

    def _check_parts(self) -> None:
        """Refuse prefixes and weights of other parts, and mixtures of one."""
        for name, parts in (
            ("prefixes", (*self.train, *self.validation, *self.test)), ("weights", self.train),
        ):  # fmt: skip
            entries = getattr(self, name)
            named = [entry.partition("=")[0] for entry in entries]
            for part, entry in zip(named, entries, strict=True):
                _check(
                    part in parts and named.count(part) == 1 and entry.partition("=")[2] != "",
                    f"{name}={entry!r}: must be PART={'TEXT' if name == 'prefixes' else 'NUMBER'}, "
                    f"once for each of the parts {', '.join(dict.fromkeys(parts))}",
                )
        weights = self.named("weights")
        _check(
            not weights or weights.keys() == set(self.train),
            f"weights={self.weights}: must name each part of train={self.train}",
        )
        for part, text in weights.items():
            _check(
                bool(re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text)) and float(text) > 0,
                f"weights='{part}={text}': must be PART=NUMBER, with a number above 0",
            )
        for name in ("weights", "mixing_temperature", "mixing_limit"):
            default = DataConfig.__dataclass_fields__[name].default
            value = getattr(self, name)
            _check(
                value == default or len(set(self.train)) == len(self.train) > 1,
                f"{name}={value!r}: needs several parts, each named once, not train={self.train}",
            )
            _check(
                name == "weights" or value == default or not self.weights,
                f"{name}={value!r}: weights={self.weights} are the shares already; leave it at "
                f"{default!r}, or set weights to ()",
            )

    def alone(self, split: str, part: str) -> "DataConfig":
        """Return the config of one part of a split, without what it says of several."""
        return dataclasses.replace(self.only(split, (part,)), prefixes=())

    def only(self, split: str, parts: tuple[str, ...]) -> "DataConfig":
        """Return the config of some parts of a split, without the shares of any."""
        kept = {**{x: getattr(self, x) for x in ("train", "validation", "test")}, split: parts}
        read = {part for named in kept.values() for part in named}
        prefixes = tuple(x for x in self.prefixes if x.partition("=")[0] in read)
        return dataclasses.replace(
            self, **kept, prefixes=prefixes, weights=(), mixing_temperature=1.0, mixing_limit=None
        )

    def named(self, field: str) -> dict[str, str]:
        """Return "PART=VALUE" entries of `prefixes` or `weights` by their part."""
        pairs = (entry.partition("=") for entry in getattr(self, field))
        return {part: text for part, _, text in pairs}

    @property
    def mixes(self) -> bool:
        """Whether an epoch may have the items of some parts more or less than once."""
        plain = self.mixing_temperature == 1 and self.mixing_limit is None
        return bool(self.weights) or not plain


# The architectures that each objective trains.
ARCHITECTURES = {
    "translate": ("encoder_decoder", "recurrent", "prefix_decoder"),
    "language_model": ("decoder",),
    "prefix_lm": ("decoder",),
    "permutation_lm": ("two_stream",),
    "bidirectional_lm": ("elmo",),
    "masked_lm": ("encoder", "perceiver"),
    "span_corruption": ("encoder_decoder",),
    "denoising": ("encoder_decoder",),
    "masked_lm_nsp": ("encoder",),
    "tag": ("encoder", "elmo"),
    "answer": ("encoder",),
    "regress": ("encoder", "perceiver", "elmo"),
    "classify": ("encoder", "perceiver", "elmo"),
    "classify_pairs": ("encoder", "decomposable_attention"),
    "forecast": ("encoder",),
    "ctc": ("encoder",),
    "reconstruct": ("autoencoder",),
}
# The codec of the target side where that is no text, but what is said of one.
LABELS = {
    "classify": "classes", "classify_pairs": "classes", "tag": "labels", "regress": "values",
    "answer": "spans",
}  # fmt: skip
# Those that stand in for "classes": what is predicted is one of a fixed list.
CLASSES = ("moves",)
NO_TEXT = (*LABELS.values(), *CLASSES)
# The named pieces that an objective writes into texts; a codec that is trained for it has them.
SYMBOLS = dict.fromkeys(("masked_lm", "masked_lm_nsp", "denoising"), ("<mask>",))
SENTINEL = "<extra_id_{}>"  # T5's name of the pieces that stand for what is left out
_MASKED = ("masked_lm", "masked_lm_nsp")
_OF_TEXT = (
    "language_model", "permutation_lm", "bidirectional_lm", *_MASKED, "span_corruption",
    "denoising",
)  # fmt: skip
# Those of vectors, and the codec that each reads.
_OF_VECTORS = {"forecast": "series", "reconstruct": "patches"}
_ONE_SIDED = (*_OF_TEXT, *_OF_VECTORS)
_WINDOWED = (*_OF_TEXT, "forecast", *LABELS)
# The objectives that read a field.
_READ_BY = {
    "window": _WINDOWED,
    "horizon": ("forecast",),
    "document": tuple(kind for kind in _OF_TEXT if kind != "masked_lm_nsp"),
    "partial_prediction": ("permutation_lm",),
    "mask_rate": _MASKED,
    "whole_words": _MASKED,
    "noise_density": ("span_corruption",),
    "sentinels": ("span_corruption",),
    "mean_span_length": ("span_corruption", "denoising"),
    "text_infilling_rate": ("denoising",),
    "token_masking_rate": ("denoising",),
    "token_deletion_rate": ("denoising",),
    "sentence_permutation_rate": ("denoising",),
    "document_rotation_rate": ("denoising",),
}
_JOINS = ("masked_lm", "span_corruption", "denoising")
# What parts of the training text may be for beside an objective: the same model reads and writes.
BESIDE: dict[str, tuple[str, ...]] = {
    "translate": ("span_corruption", "denoising"),
    "prefix_lm": ("language_model",),
    "span_corruption": ("denoising",),
    "denoising": ("span_corruption",),
}


@dataclass(frozen=True)
class ObjectiveConfig:
    """What is predicted from what."""

    # "translate": the target side, piece by piece, from the source side.
    # "language_model": each piece of one text from those before it; the text is the target side,
    # and there is no source: with data.source="text" the files PART.TARGET_LANGUAGE alone.
    # "prefix_lm": the target side from the source side, which stands before it in one sequence.
    # "permutation_lm": some pieces of one text, in a random order, each from all others but those
    # behind it in that order (XLNet); texts as for language_model.
    # "bidirectional_lm": each piece from those before it, and from those behind it (ELMo); texts
    # likewise.
    # "masked_lm": pieces of one text that are hidden, from all others (BERT); texts likewise.
    # "span_corruption": the spans that a text has lost, from what is left of it (T5).
    # "denoising": a text, from what noise has made of it (BART); texts of both likewise.
    # "masked_lm_nsp": the same of two segments of one text, and whether the second follows the
    # first or is from elsewhere (BERT 3.1); a line is a sentence, an empty one ends a document.
    # "tag": a label for each word, both with spaces between them: parts of speech, names.
    # "answer": where in a text the answer to a question stands (SQuAD). A line of the source side
    # is a question, a TAB and the text, one of the target side how many characters stand before
    # the answer, a TAB and the answer.
    # "regress": the number on the line of the target side, from the source side.
    # "classify": the line of the target side, which is one of few, from the source side.
    # "classify_pairs": the same of two texts, a line of the source side with a TAB between them, as
    # in natural language inference.
    # "forecast": what comes next in a time series, of each channel by itself; the series is the
    # target side, as the text of language_model is.
    # "ctc": the target side, whose pieces come in the order of the source's places: at each place
    # a piece or none is predicted, and all ways to write the line so count together (Graves et al.
    # 2006, https://doi.org/10.1145/1143844.1143891). It is for sound.
    # "reconstruct": pictures, from the codes that are left of them; they are the target side, and
    # src.patch_size says into what they are cut.
    name: Literal[
        "translate", "language_model", "prefix_lm", "permutation_lm", "bidirectional_lm",
        "masked_lm", "masked_lm_nsp", "span_corruption", "denoising", "tag", "answer", "regress",
        "classify", "classify_pairs", "forecast", "ctc", "reconstruct",
    ] = "translate"  # fmt: skip
    # For all but translate and prefix_lm: the most pieces read at a time. Longer documents are cut
    # into consecutive windows. Each but the first begins with the last piece of the one before; of
    # masked_lm, each begins with BOS; of span_corruption and denoising, each ends with EOS, and is
    # as long as leaves neither side with more; of tag and answer, they are of whole words. What
    # classify, classify_pairs and regress do not read is left out. Of forecast, windows begin at
    # every row.
    window: int = 256
    # Of those without a source side but masked_lm_nsp, what a document is. "line": each line, EOS
    # stands for its end. "file": each part of the split, line ends and all, as it lies on the disk.
    # "joined" (masked_lm, span_corruption, denoising): all lines behind one another, EOS between
    # them.
    document: Literal["line", "file", "joined"] = "line"
    horizon: int = 96  # forecast: rows that are predicted behind each window
    # permutation_lm: one piece in so many is predicted, K in the paper (section 2.3).
    partial_prediction: int = 6
    # masked_lm, masked_lm_nsp: the share of pieces that are predicted, at least one of each window.
    # Of ten, eight are read as MASK, one as any other piece, one as it is (Devlin et al. 2019).
    mask_rate: float = 0.15
    whole_words: bool = False  # of the same: a word is hidden whole or not at all
    # span_corruption: the share of pieces that are left out, in spans, each of which is read as one
    # sentinel (Raffel et al. 2020, arXiv:1910.10683, section 3.1.4).
    noise_density: float = 0.15
    sentinels: int = 100  # span_corruption: named pieces, from <extra_id_0> on
    # Pieces in a span: in span_corruption the mean; in denoising Poisson's, so some have none.
    mean_span_length: float = 3.0
    # denoising: kinds of noise (Lewis et al. 2020, arXiv:1910.13461, section 2.2). The share of
    # pieces that lie in spans, each of which is read as one MASK; an empty one is a MASK more.
    text_infilling_rate: float = 0.3
    token_masking_rate: float = 0.0  # of the other pieces, those that are read as MASK
    token_deletion_rate: float = 0.0  # of those that remain, the pieces that are left out
    # The share of a window's sentences that change places; one ends with a line or a full stop.
    sentence_permutation_rate: float = 1.0
    document_rotation_rate: float = 0.0  # of windows, those that begin with any of their pieces
    # "PART=NAME": a part of data.train that is for another objective than `name`, which is what the
    # model is for and what validation measures (multi-task training, Raffel et al. 2020, section
    # 3.5.2). Beside translate, span_corruption or denoising; beside prefix_lm, language_model;
    # beside span_corruption and denoising, the other. Their texts are of the target language.
    parts: tuple[str, ...] = ()
    # With a part of one's own as the name: which of those of ours it is like in what is read, which
    # architecture it trains and how that is validated and used.
    like: str | None = None

    def __post_init__(self) -> None:
        _within(1, _SIZE, window=self.window, horizon=self.horizon)
        _above(0, 0.9, mask_rate=self.mask_rate, noise_density=self.noise_density)
        _within(1, 1000, partial_prediction=self.partial_prediction)
        _check(
            self.kind in ARCHITECTURES,
            f"like={self.like!r}: must say which objective name={self.name!r} is like; one of "
            f"{[*ARCHITECTURES]}",
        )
        _check(
            self.like is None or _is_part(self.name),
            f"like={self.like!r}: is for parts of one's own, and name={self.name!r} is none; leave "
            "it at None",
        )
        self._check_parts()
        _within(1, 1000, mean_span_length=self.mean_span_length)
        _within(1, 2**15, sentinels=self.sentinels)
        _rate(text_infilling_rate=self.text_infilling_rate)
        _rate(token_masking_rate=self.token_masking_rate)
        _rate(token_deletion_rate=self.token_deletion_rate)
        _within(0, 1, sentence_permutation_rate=self.sentence_permutation_rate)
        _within(0, 1, document_rotation_rate=self.document_rotation_rate)
        for name, readers in _READ_BY.items():
            usual = ObjectiveConfig.__dataclass_fields__[name].default
            value = getattr(self, name)
            others = ("language_model",) if name in ("window", "document") else readers
            _check(
                not self.kinds.isdisjoint(readers) or value == usual,
                f"{name}={value!r}: means nothing with name={self.name!r}; leave it at {usual!r} "
                f"or choose {' or '.join(f'name={other!r}' for other in others)}",
            )
        _check(
            self.kinds & {*_ONE_SIDED} <= {*_JOINS} or self.document != "joined",
            f"document='joined': name={self.name!r} reads documents apart; choose 'line', or "
            f"{' or '.join(f'name={name!r}' for name in _JOINS)}",
        )
        needs = {
            "permutation_lm": (2, "a piece that is read and one that is predicted"),
            "bidirectional_lm": (2, "a piece that is read and one that is predicted"),
            "masked_lm": (2, "BOS and a piece"),
            "masked_lm_nsp": (5, "BOS and two segments of a piece and EOS"),
            "answer": (5, "BOS and two segments of a piece and EOS"),
            "tag": (3, "BOS, a piece and EOS"),
            "regress": (2, "BOS and a piece"),
            "classify": (2, "BOS and a piece"),
            "classify_pairs": (5, "BOS and two segments of a piece and EOS"),
            "span_corruption": (3, "a piece, a sentinel and EOS"),
            "denoising": (2, "a piece and EOS"),
        }
        least, what = needs.get(self.kind, (1, ""))
        _check(
            self.window >= least,
            f"window={self.window}: name={self.name!r} needs at least {least}, {what}",
        )

    def _check_parts(self) -> None:
        """Refuse parts that are for what the model cannot learn beside its objective."""
        beside = BESIDE.get(self.kind, ())
        named = [entry.partition("=")[0] for entry in self.parts]
        for part, entry in zip(named, self.parts, strict=True):
            _check(
                bool(beside),
                f"parts={entry!r}: name={self.name!r} has no other objective beside it; set parts "
                f"to (), or choose {_or(BESIDE)}",
            )
            _check(
                named.count(part) == 1 and entry.partition("=")[2] in beside,
                f"parts={entry!r}: must be PART=NAME, once for each part, with a NAME among those "
                f"that may stand beside name={self.name!r}: {_or(beside)}",
            )
        for name in self.kinds - {self.kind}:
            self.alone(name)  # which has needs of its own

    def alone(self, name: str) -> "ObjectiveConfig":
        """Return the config of one of several objectives, without what it does not read."""
        kind = self.kind if name == self.name else name
        unread: dict[str, Any] = {
            field: ObjectiveConfig.__dataclass_fields__[field].default
            for field, readers in _READ_BY.items()
            if kind not in readers
        }
        like = self.like if name == self.name else None
        return dataclasses.replace(self, **unread, name=cast(Any, name), like=like, parts=())

    def of_parts(self, train: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        """Return the parts of `train` that each objective has, by its name, this one's first."""
        named = dict(entry.partition("=")[::2] for entry in self.parts)
        names = [named.get(part, self.name) for part in train]
        return {
            name: tuple(part for part, other in zip(train, names, strict=True) if other == name)
            for name in (self.name, *sorted({*names} - {self.name}))
        }

    @property
    def kind(self) -> str:
        """The objective of ours that it is or is like."""
        return self.like or self.name

    @property
    def kinds(self) -> frozenset[str]:
        """Its kind, and the objectives that parts of the training text have beside it."""
        return frozenset([self.kind, *(entry.partition("=")[2] for entry in self.parts)])

    @property
    def one_sided(self) -> bool:
        """Whether there is a target side alone."""
        return self.kind in _ONE_SIDED

    @property
    def windowed(self) -> bool:
        """Whether `window` is the most that is read at a time."""
        return self.kind in _WINDOWED

    @property
    def lengths(self) -> tuple[int, int] | None:
        """How long both sides of every example are, where all are alike."""
        return (self.window, self.horizon) if self.kind == "forecast" else None

    @property
    def masked(self) -> bool:
        """Whether pieces are hidden, and predicted where they stand."""
        return self.kind in _MASKED

    @property
    def labels(self) -> bool:
        """Whether the target side is no text, but what is said of one."""
        return self.kind in LABELS

    @property
    def translates(self) -> bool:
        """Whether the target side is text that is written from the source side."""
        return self.kind in ("translate", "prefix_lm", "ctc")

    @property
    def symbols(self) -> tuple[str, ...]:
        """The named pieces that it writes into texts."""
        sentinels = self.sentinels * ("span_corruption" in self.kinds)
        named = (SYMBOLS.get(kind, ()) for kind in sorted(self.kinds))
        return (*(SENTINEL.format(i) for i in range(sentinels)), *chain.from_iterable(named))


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam (paper 5.3) or Muon, and the learning rate. The first update is step 1."""

    # "muon": the kernels of linear maps move by their momentum, made orthogonal, so that no
    # direction of it outweighs the others (Jordan et al. 2024,
    # https://kellerjordan.github.io/posts/muon/); embeddings, biases and norms by Adam.
    algorithm: Literal["adam", "muon"] = "adam"
    momentum: float = 0.95  # muon: decay of the sum of a kernel's past gradients
    # muon: root mean square of a kernel's update, in learning rates; 0.2 is about that of Adam's
    # (Liu et al. 2025, arXiv:2502.16982).
    update_rms: float = 0.2
    b1: float = 0.9  # Adam: decay of the mean of past gradients
    b2: float = 0.98  # Adam: decay of the mean of their squares
    epsilon: float = 1e-9  # Adam: added to the root of that mean
    # "paper": learning_rate x d_model^-0.5 x min(step^-0.5, step x warmup_steps^-1.5).
    # The others rise linearly to learning_rate in warmup_steps, then: "inverse_sqrt" falls with
    # step^-0.5; "linear" and "cosine" fall towards 0 after training.steps; "constant" stays.
    schedule: Literal["paper", "inverse_sqrt", "linear", "cosine", "constant"] = "paper"
    learning_rate: float = 1.0  # a factor for "paper", else the peak
    warmup_steps: int = 4000  # updates over which the learning rate rises
    clip_norm: float | None = None  # largest norm of the gradient; None: unclipped
    # The share of kernels and embeddings, times the learning rate, that an update takes away
    # (Loshchilov and Hutter 2019, arXiv:1711.05101); biases and norms stay. 0: none.
    weight_decay: float = 0.0
    # Patterns (regular expressions for whole names, "encoder/.*") of parameters that stay as they
    # begin; the log of a start lists all names.
    frozen: tuple[str, ...] = ()
    # "PATTERN=FACTOR", of the learning rate of parameters: ".*embedding/table=0.1". Factors of
    # several patterns multiply.
    rate_factors: tuple[str, ...] = ()
    # Each layer's learning rate is so many times that of the layer above it, embeddings' the least
    # (Clark et al. 2020, arXiv:2003.10555). 1: all alike.
    layer_decay: float = 1.0

    def __post_init__(self) -> None:
        _rate(momentum=self.momentum, b1=self.b1, b2=self.b2)
        _above(0, 100, update_rms=self.update_rms)
        _above(0, 1, epsilon=self.epsilon)
        _above(0, 100, learning_rate=self.learning_rate)
        rate = f"learning_rate={self.learning_rate}: with schedule={self.schedule!r} it is"
        if self.schedule == "paper":
            _check(self.learning_rate >= 0.01, f"{rate} a factor, about 1; must be at least 0.01")
        else:
            _check(self.learning_rate < 0.1, f"{rate} the peak, about 0.001; must be below 0.1")
        _within(1, _STEPS, warmup_steps=self.warmup_steps)
        _above(0, 1, layer_decay=self.layer_decay)
        for pattern in (*self.frozen, *(name for name, _ in self.factors)):
            _check_pattern("frozen" if pattern in self.frozen else "rate_factors", pattern)
        # With a rate below 0.1, an update of more than 10 would take away more than all there is.
        _within(0, 10, weight_decay=self.weight_decay)
        _above(0, 10**9, ", or None for no clipping", clip_norm=self.clip_norm)

    @property
    def factors(self) -> list[tuple[str, float]]:
        """Patterns of `rate_factors`, each with its number.

        Raises:
          UserError: if an entry is not of that form.
        """
        found = []
        for entry in self.rate_factors:
            pattern, _, text = entry.rpartition("=")
            try:
                factor = float(text)
            except ValueError:
                factor = -1.0
            _check(
                bool(pattern) and 0 < factor <= 1000,
                f"rate_factors={entry!r}: must be PATTERN=FACTOR, with a factor above 0 and at "
                "most 1000; to keep parameters as they begin, name them in frozen",
            )
            found.append((pattern, factor))
        return found


@dataclass(frozen=True)
class InitConfig:
    """Where parameters begin, if not at random: fine-tuning."""

    # A work directory, as it is or with @CHECKPOINT (best, last, a step, average:N), or one of
    # Hugging Face: parameters of the same names are taken from it at the first start, and are not
    # needed later.
    source: str | None = None
    # More of these, in the order in which they are asked: what those before do not have is taken
    # from the next, as a decoder beside an encoder.
    also: tuple[str, ...] = ()
    take: tuple[str, ...] = (
        ".*",
    )  # patterns of the parameters that are taken, by their names here
    # "THEIRS=OURS": how names begin there, and here: "encoder/=decoder/". Of several that fit, the
    # first whose name here is not taken: both models of `also` may have "positions/".
    rename: tuple[str, ...] = ()
    # With its tokenizer. False: with one trained on the data here; embeddings then follow their
    # pieces, and those of new pieces begin near the mean of all.
    tokenizer: bool = True

    def __post_init__(self) -> None:
        for name in ("also", "take", "rename", "tokenizer"):
            default = InitConfig.__dataclass_fields__[name].default
            _check(
                self.source is not None or getattr(self, name) == default,
                f"{name}={getattr(self, name)}: means nothing without source; leave it at "
                f"{default}, or name a source",
            )
        for pattern in self.take:
            _check_pattern("take", pattern)
        for entry in self.rename:
            _check(
                len(entry.split("=")) == 2,
                f"rename={entry!r}: must be THEIRS=OURS, beginnings of names",
            )


def _check_pattern(field: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise UserError(f"{field}={pattern!r}: no regular expression ({error})") from None


@dataclass(frozen=True)
class TrainingConfig:
    """How long, and against which loss."""

    steps: int = 100_000  # updates
    max_minutes: float | None = (
        None  # stop after so many minutes of training, resumed ones included
    )
    label_smoothing: float = 0.1  # epsilon (paper 5.4)
    # "tensor2tensor": epsilon over the V-1 other pieces, as the paper's code did;
    # "uniform": epsilon over all V, as torch and optax do.
    smoothing: Literal["tensor2tensor", "uniform"] = "tensor2tensor"
    # R-Drop's alpha: every row passes twice, and the two distributions are drawn together (Liang et
    # al. 2021, arXiv:2106.14448, whose value for translation is 5); None: a row passes once.
    r_drop: float | None = None
    # Validate, keep and translate with the running mean of the parameters, of this decay (0.999);
    # less in the first steps: (1 + step) / (10 + step). None: with the parameters themselves.
    ema_decay: float | None = None
    accumulation_steps: int = 1  # slices that one global batch is computed in, to save memory
    early_stopping: int | None = None  # stop after so many evaluations without a better best
    log_every: int = 50  # steps between rows of metrics.jsonl
    max_bad_steps: int = 10  # stop (code 70) after so many non-finite updates in a row
    # Report a step whose loss per token is above this many times the running mean of the steps
    # before it (decay 0.9); None: never.
    loss_spike: float | None = 2.0

    def __post_init__(self) -> None:
        _within(1, _STEPS, steps=self.steps, log_every=self.log_every)
        _within(1, _STEPS, max_bad_steps=self.max_bad_steps, early_stopping=self.early_stopping)
        _within(1, _SIZE, accumulation_steps=self.accumulation_steps)
        _rate(label_smoothing=self.label_smoothing, ema_decay=self.ema_decay)
        _above(0, 1000, ", or None for a single pass", r_drop=self.r_drop)
        _above(1, 10**6, ", or None for no reports", loss_spike=self.loss_spike)
        _above(0, 10**7, ", or None for no limit", max_minutes=self.max_minutes)

    @property
    def passes(self) -> int:
        """Of a row through the model, in one step."""
        return 1 if self.r_drop is None else 2


@dataclass(frozen=True)
class CheckpointConfig:
    """What is kept: the last `keep_last` checkpoints and the best one."""

    every_steps: int = 1000  # steps between saves
    keep_last: int = 5  # how many of the last checkpoints stay, beside the best
    best_by: Literal["bleu", "loss", "accuracy", "wer"] = "bleu"  # of the validation split
    # When a save fails, for a full disk for example: "continue" and try again at the next one, or
    # "stop" (code 74). What was saved before stays in either case.
    on_failed_save: Literal["continue", "stop"] = "continue"

    def __post_init__(self) -> None:
        _within(1, _STEPS, every_steps=self.every_steps, keep_last=self.keep_last)


@dataclass(frozen=True)
class EvaluationConfig:
    """Validation while training, and the scoring protocol."""

    every_steps: int = 1000  # steps between validations; a multiple of checkpoint.every_steps
    bleu_sentences: int = 1000  # most validation sentences decoded greedily, spread; 0: loss alone
    checkpoint: str = "best"  # what eval.py scores by default: best, last, STEP or average:N
    # How sacrebleu tokenises for BLEU; "13a" is its default, "none" is for text that is tokenised.
    bleu_tokenize: Literal["13a", "none", "intl", "char", "zh", "ja-mecab", "ko-mecab"] = "13a"
    lowercase: bool = False  # score case-insensitively
    # What eval.py computes of translations, in this order; validation takes BLEU, of what is said
    # in sound WER, the share of words that are wrong. CER: of characters. "labelled_F1": of the
    # brackets of trees (tgt.codec="trees").
    metrics: tuple[Literal["BLEU", "chrF", "TER", "labelled_F1", "WER", "CER"], ...] = (
        "BLEU", "chrF",
    )  # fmt: skip
    # forecast: rows of a season, a day of hours; the last ones, repeated, are what forecasts are
    # compared with.
    season: int = 24

    def __post_init__(self) -> None:
        _within(1, _STEPS, every_steps=self.every_steps)
        _within(0, 10**9, bleu_sentences=self.bleu_sentences)
        _within(1, _SIZE, season=self.season)
        average_count(self.checkpoint)
        _check(
            0 < len({*self.metrics}) == len(self.metrics),
            f"metrics={self.metrics}: must name at least one, and each once",
        )


@dataclass(frozen=True)
class DecodingConfig:
    """Search for the best translation. Defaults are the paper's (section 6.1). Models of CTC do not
    search: they write the likeliest piece of each place.
    """

    # "beam": beam search, greedy if beam_size is 1; "sample": random hypotheses, see below.
    search: Literal["beam", "sample"] = "beam"
    beam_size: int = 4  # 1: greedy
    # score = log-probability / penalty; the length counts EOS and not BOS.
    # "gnmt": ((5 + length) / 6)^alpha; "power": length^alpha.
    length_penalty: Literal["gnmt", "power"] = "gnmt"
    alpha: float = 0.6
    # GNMT's beta: adds beta * sum of log min(attention a source piece has had, 1); 0: off.
    coverage_penalty: float = 0.0
    # "optimal": stop when the best finished hypothesis cannot be beaten any more;
    # "width": stop when beam_size hypotheses are finished, as CTranslate2 and transformers do.
    stop: Literal["optimal", "width"] = "optimal"
    # Longest output: max_length_ratio * source length + max_extra_length; shortest:
    # min_length_ratio * source length. In pieces, EOS counted.
    max_length_ratio: float = 1.0
    max_extra_length: int = 50
    min_length_ratio: float = 0.0
    no_repeat_ngram: int = 0  # no n-gram of this size twice in an output; 0: off
    forbidden: tuple[str, ...] = ()  # pieces that are never written
    # A translation is written with so many pieces alone, those that are likeliest for its source by
    # IBM Model 1, which `transformer-jax shortlist --workdir=DIR` learns from the training texts:
    # logits are computed of these (Jean et al. 2015, L'Hostis et al. 2016; a lexical shortlist).
    # 0: all pieces.
    shortlist: int = 0
    # "tree": outputs are well-formed linearised trees with a leaf, XX, for each word of the source,
    # whatever the model would say (tgt.codec="trees"); "none": nothing is asked of them.
    constraint: Literal["none", "tree"] = "none"
    num_samples: int = 1  # with search="sample"
    temperature: float = 1.0  # of sampling; below 1: more probable pieces
    top_k: int = 0  # sample among so many most probable pieces; 0: all
    top_p: float = 1.0  # sample among the fewest pieces with so much probability
    seed: int = 0  # of sampling; a line's samples depend on it and on the line's number
    # "none": best score first; "chrf", "bleu": least Bayes risk first, that is the hypothesis most
    # like the other beam_size or num_samples ones by that score (Eikema and Aziz 2020), "bleu" of
    # single sentences with tokenize=13a.
    rerank: Literal["none", "chrf", "bleu"] = "none"
    # Speculative decoding, with greedy search or sampling: where tokens are proposed from, of which
    # one pass of the model judges several. The work directory of a smaller model with the same
    # tokenizer, or "ngram": what followed the last pieces where they stood before, in what was read
    # or written (Leviathan et al. 2022, Chen et al. 2023, Yang et al. 2023). Texts are those of the
    # model, and samples have its distribution.
    draft: str | None = None
    draft_length: int = 4  # tokens proposed in a pass
    # Of several models: the mean of their probabilities, or of their log-probabilities.
    ensemble: Literal["probabilities", "log_probabilities"] = "probabilities"
    # Of a language model that continues prompts, where keys and values are: "contiguous", each row
    # has room for the longest text; "paged", in blocks that rows take as they need them, and that
    # prompts which begin alike and samples of one prompt share (PagedAttention, Kwon et al. 2023):
    # less memory for more time. All blocks together have tokens_per_batch positions.
    cache: Literal["contiguous", "paged"] = "contiguous"
    cache_block: int = 16  # positions of a block
    tokens_per_batch: int = 8192  # most source positions times hypotheses at a time on a device

    def __post_init__(self) -> None:
        _within(1, 1000, beam_size=self.beam_size)
        _within(1, 10_000, num_samples=self.num_samples)
        _within(1, 2**22, tokens_per_batch=self.tokens_per_batch)
        _within(0, 100, max_length_ratio=self.max_length_ratio)
        _within(0, 10_000, max_extra_length=self.max_extra_length)
        _within(0, 2**32 - 1, seed=self.seed)
        _within(0, _SIZE, top_k=self.top_k)
        _within(0, 1000, no_repeat_ngram=self.no_repeat_ngram)
        _within(0, _SIZE, shortlist=self.shortlist)
        _within(0, 100, alpha=self.alpha, coverage_penalty=self.coverage_penalty)
        _within(1e-6, 1000, temperature=self.temperature)
        _above(0, 1, top_p=self.top_p)
        _check(
            0 <= self.min_length_ratio <= self.max_length_ratio,
            f"min_length_ratio={self.min_length_ratio}: must lie between 0 and "
            f"max_length_ratio={self.max_length_ratio}",
        )
        _check(
            self.max_length_ratio > 0 or self.max_extra_length > 0,
            f"max_length_ratio={self.max_length_ratio} and "
            f"max_extra_length={self.max_extra_length}: leave no room for an output",
        )
        for name in ("no_repeat_ngram", "forbidden", "min_length_ratio", "shortlist"):
            value = getattr(self, name)
            default = DecodingConfig.__dataclass_fields__[name].default
            _check(
                self.constraint == "none" or value == default,
                f"{name}={value!r}: may leave constraint={self.constraint!r} nothing to write; "
                f"leave it at {default!r}, or choose 'none'",
            )
        self._check_draft()
        self._check_cache()
        self.check_fits(1)

    def _check_cache(self) -> None:
        """Refuse what pages do not hold, and what means nothing without them."""
        paged, default = self.cache == "paged", DecodingConfig.cache_block
        _within(1, 4096, cache_block=self.cache_block)
        _check(
            paged or self.cache_block == default,
            f"cache_block={self.cache_block}: cache='contiguous' has no blocks; set cache='paged', "
            f"or leave it at {default}",
        )
        _check(
            not paged or self.search == "sample" or self.beam_size == 1,
            "cache='paged': a beam exchanges hypotheses at every step, and each would need copies "
            "of its blocks, where the contiguous cache moves bits; set beam_size=1, or "
            "search='sample'",
        )
        _check(
            not paged or self.draft is None,
            f"cache='paged': a step on pages writes one token, and draft={self.draft!r} asks for "
            "several; leave one of them out",
        )

    def _check_draft(self) -> None:
        """Refuse what a draft does not speed up, and what means nothing without one."""
        default = DecodingConfig.draft_length
        _within(1, 64, draft_length=self.draft_length)
        _check(
            self.draft is not None or self.draft_length == default,
            f"draft_length={self.draft_length}: nothing is proposed without a draft; set draft, or "
            f"leave it at {default}",
        )
        _check(
            self.draft is None or self.search == "sample" or self.beam_size == 1,
            f"draft={self.draft!r}: beam search needs the best continuations of all its hypotheses "
            "together at every position, and a draft proposes one text; set beam_size=1, or "
            "search='sample'",
        )
        _check(
            self.draft is None or self.constraint == "none",
            f"draft={self.draft!r}: proposals may break constraint={self.constraint!r}; leave one "
            "of them out",
        )
        _check(
            self.draft is None or not self.shortlist,
            f"draft={self.draft!r}: proposes any piece, and shortlist={self.shortlist} judges some "
            "alone; set one of them to its default",
        )
        _check(self.draft != "", "draft='': names no directory; leave it out, or write None")

    def check_fits(self, source_length: int, most: int | None = None) -> None:
        """Check that all hypotheses of a source of so many pieces can be held at a time.

        `most` is a limit of the length of an output that the model has.

        Raises:
          UserError: if they take too many positions; names the fields.
        """
        name = "num_samples" if self.search == "sample" else "beam_size"
        longest = int(self.max_length_ratio * source_length) + self.max_extra_length
        longest = min(longest, most or longest)
        _check(
            self.hypotheses * longest <= HELD_POSITIONS,
            f"{name}={self.hypotheses}: that many outputs of up to {longest} pieces, for a source "
            f"of {source_length}, are more than {HELD_POSITIONS} positions; lower it, "
            f"max_extra_length={self.max_extra_length} or max_length_ratio={self.max_length_ratio}",
        )

    @property
    def hypotheses(self) -> int:
        """Hypotheses that a search of one sentence returns at most."""
        return self.num_samples if self.search == "sample" else self.beam_size


@dataclass(frozen=True)
class MeshConfig:
    """Devices along each axis of the mesh; -1 on one of them: all that remain.

    The sizes that an axis divides must be multiples of it.
    """

    data: int = -1  # copies of the model, each on its share of the batch
    fsdp: int = 1  # shares of the batch too; d_model of parameters and optimizer state is divided
    tensor: int = 1  # num_heads, d_ff and the vocabulary are divided, in parameters and products

    def __post_init__(self) -> None:
        sizes = dataclasses.asdict(self)
        for name, size in sizes.items():
            _check(
                size == -1 or 1 <= size <= _SIZE,
                f"{name}={size}: must be at least 1 and at most {_SIZE}, or -1",
            )
        _check(
            list(sizes.values()).count(-1) <= 1,
            f"data={self.data}, fsdp={self.fsdp}, tensor={self.tensor}: only one may be -1",
        )


@dataclass(frozen=True)
class ProfileConfig:
    """Traces, for TensorBoard's profile plugin and https://ui.perfetto.dev."""

    steps: tuple[int, ...] = ()  # (first, last) step to trace, into profile/ of the work directory

    def __post_init__(self) -> None:
        _check(
            not self.steps
            or (len(self.steps) == 2 and 1 <= self.steps[0] <= self.steps[1] <= _STEPS),
            f"steps={self.steps}: must be the first and the last step to trace, as in 10,15",
        )


@dataclass(frozen=True)
class Experiment:
    """Everything that defines one run."""

    seed: int = 0  # of initialisation, dropout and the order of the data
    model: ModelConfig = field(default_factory=ModelConfig)
    src: SourceConfig = field(default_factory=SourceConfig)
    tgt: SideConfig = field(default_factory=SideConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    data: DataConfig = field(default_factory=DataConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    init: InitConfig = field(default_factory=InitConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    profile: ProfileConfig = field(default_factory=ProfileConfig)

    def __post_init__(self) -> None:
        _within(0, 2**32 - 1, seed=self.seed)
        self._check_model()
        self._check_codecs()
        self._check_objective()
        if self.objective.windowed:
            self._check_windows()
        if self.objective.parts:
            self._check_tasks()
        self._check_training()
        self._check_checkpoints()

    def _check_model(self) -> None:
        """Refuse a model that does not fit its vocabularies, its texts or what it starts from."""
        model = self.model
        rows = max(self.tokenizer.vocab_size, model.max_positions)
        _check(
            rows * model.d_model <= _ELEMENTS,
            f"model.d_model={model.d_model}: a table of so many columns and tokenizer.vocab_size="
            f"{self.tokenizer.vocab_size} or model.max_positions={model.max_positions} rows has "
            f"more than {_ELEMENTS} numbers; lower one of them",
        )
        _check(
            self.tokenizer.joint
            or model.tied_embeddings != "all"
            or "decoder" not in model.stacks
            or model.architecture == "prefix_decoder",
            "tokenizer.joint=False: two vocabularies cannot share model.tied_embeddings='all'; "
            "choose 'decoder' or 'none'",
        )
        _check(
            model.lora_rank is None or self.init.source is not None,
            f"model.lora_rank={model.lora_rank}: adapts the maps of a trained model, and there is "
            "none; set init.source to its work directory",
        )
        alone = model.architecture in ("recurrent", "perceiver", "prefix_decoder")
        _check(
            self.data.batching != "pack" or not alone,
            f"data.batching='pack': a row of architecture={model.architecture!r} must hold one "
            "text; choose 'bucket'",
        )
        _check(
            model.architecture != "perceiver"
            or model.positions != "none"
            or not self.objective.masked,
            "model.positions='none': queries of pieces are their positions in architecture="
            "'perceiver', and would be all alike; choose another",
        )
        for pattern in (model.encoder_pattern, model.decoder_pattern):
            _check(
                self.data.batching != "pack" or {*_ALONE}.isdisjoint(pattern),
                f"data.batching='pack': layers of {pattern} count the positions of a row, or "
                "convolve it: it must hold one text; choose 'bucket'",
            )
        longest = ("data.max_length", self.data.max_length)
        if self.objective.windowed:
            longest = ("objective.window", self.objective.window)
        if model.stem == "series":
            longest = ("the number of patches", model.patches(self.objective.window))
        _check(
            model.position_limit is None or model.position_limit >= longest[1],
            f"model.max_positions={model.max_positions} is below {longest[0]}={longest[1]}"
            ": raise the one or lower the other",
        )

    def _check_training(self) -> None:
        """Refuse settings of the step that contradict each other."""
        model, data, training = self.model, self.data, self.training
        _check(
            data.rows_divisible_by % training.accumulation_steps == 0,
            f"training.accumulation_steps={training.accumulation_steps} does not divide "
            f"data.rows_divisible_by={data.rows_divisible_by}: choose a divisor",
        )
        _check(
            not data.subword_dropout or self.tokenizer.algorithm == "bpe",
            f"data.subword_dropout={data.subword_dropout}: there are no merges to leave out with "
            f"tokenizer.algorithm={self.tokenizer.algorithm!r}; choose 'bpe', or set it to 0",
        )
        _check(
            training.r_drop is None
            or max(model.dropout_rate, model.attention_dropout_rate, model.activation_dropout_rate)
            > 0,
            f"training.r_drop={training.r_drop}: two passes without dropout are the same; "
            "raise model.dropout_rate or set it to None",
        )
        _check(
            not self.profile.steps or self.profile.steps[0] <= training.steps,
            f"profile.steps={self.profile.steps}: begin after training.steps={training.steps}",
        )

    def _check_checkpoints(self) -> None:
        """Refuse a choice of checkpoints that could not be made."""
        save, every = self.checkpoint.every_steps, self.evaluation.every_steps
        _check(
            every % save == 0,
            f"evaluation.every_steps={every} is no multiple of checkpoint.every_steps={save}: "
            "the best checkpoint is chosen when it is saved",
        )
        count = average_count(self.evaluation.checkpoint)
        _check(
            count is None or self.checkpoint.keep_last >= count,
            f"evaluation.checkpoint={self.evaluation.checkpoint!r} needs "
            f"checkpoint.keep_last={self.checkpoint.keep_last} to be at least {count}",
        )
        _check(
            self.checkpoint.best_by not in ("bleu", "wer") or self.evaluation.bleu_sentences > 0,
            f"checkpoint.best_by={self.checkpoint.best_by!r} needs evaluation.bleu_sentences="
            f"{self.evaluation.bleu_sentences} above 0; raise it or choose 'loss'",
        )
        _check(
            self.checkpoint.best_by not in {"bleu", "wer"} - {self.measured},
            f"checkpoint.best_by={self.checkpoint.best_by!r}: with src.codec={self.src.codec!r} "
            f"and objective.name={self.objective.name!r} validation measures {self.measured!r}; "
            f"choose that, or 'loss'",
        )
        _check(
            self.checkpoint.best_by != "accuracy"
            or self.objective.kind in ("classify", "classify_pairs", "tag", "answer"),
            "checkpoint.best_by='accuracy': is for objective.name='classify', 'tag' or 'answer', "
            f"not {self.objective.name!r}; choose 'loss'",
        )

    @property
    def measured(self) -> str:
        """What validation measures of what is written, as `checkpoint.best_by` calls it."""
        heard = self.src.codec in SOUNDS or self.objective.kind == "ctc"
        return "wer" if heard else "bleu"

    @property
    def codecs(self) -> tuple[str, str]:
        """The source side's codec and the target side's, which is both where there is one side."""
        return (self.tgt if self.objective.one_sided else self.src).codec, self.tgt.codec

    def _check_codecs(self) -> None:
        """Refuse codecs that do not go together, and settings of subwords where there are none."""
        codecs = self.codecs
        name, no_text = self.objective.name, NO_TEXT
        wanted = LABELS.get(self.objective.kind)
        said = "classes" if codecs[1] in CLASSES else codecs[1]
        _check(
            said == wanted if wanted else codecs[1] not in no_text,
            f"tgt.codec={codecs[1]!r}: objective.name={name!r} "
            + (f"predicts {wanted}; choose {wanted!r}" if wanted else "has text there; choose "
               f"another codec, or an objective.name of {', '.join(LABELS)}"),
        )  # fmt: skip
        _check(
            codecs[0] not in no_text,
            f"src.codec={codecs[0]!r}: the source side is read, and must be text; choose another "
            "codec",
        )
        _check(
            len(set(codecs)) == 1 or not self.tokenizer.joint,
            f"src.codec={codecs[0]!r}, tgt.codec={codecs[1]!r}: two codecs cannot be one joint "
            "vocabulary; choose the same for both, or set tokenizer.joint=False",
        )
        self._check_vectors()
        read = {"joint", *(field for name in codecs for field in SIZED.get(name, ()))}
        for item in dataclasses.fields(self.tokenizer):
            value = getattr(self.tokenizer, item.name)
            _check(
                item.name in read or value == item.default,
                f"tokenizer.{item.name}={value!r}: means nothing with tgt.codec={codecs[1]!r}; "
                f"leave it at {item.default!r}",
            )
        _check(
            not self.data.subword_dropout or "subwords" in codecs,
            f"data.subword_dropout={self.data.subword_dropout}: means nothing with tgt.codec="
            f"{codecs[1]!r}; set it to 0",
        )
        _check(
            "labelled_F1" not in self.evaluation.metrics or codecs[1] == "trees",
            f"evaluation.metrics={self.evaluation.metrics}: 'labelled_F1' is of trees, and "
            f"tgt.codec={codecs[1]!r} has none; leave it out",
        )
        constraint = self.decoding.constraint
        _check(
            constraint == "none" or (codecs[1] == "trees" and self.objective.translates),
            f"decoding.constraint={constraint!r}: is for trees that are written of a sentence, and "
            f"tgt.codec={codecs[1]!r} with objective.name={name!r} writes none; set it to 'none'",
        )
        _check(
            self.decoding.shortlist == 0 or self.translates_text,
            f"decoding.shortlist={self.decoding.shortlist}: is of translations of text, and "
            f"objective.name={name!r} with src.codec={self.src.codec!r} makes none; set it to 0",
        )

    @property
    def translates_text(self) -> bool:
        """Whether pieces of a text are searched for, for pieces of another."""
        return self.objective.kind in ("translate", "prefix_lm") and self.codecs[0] not in VECTORS

    def _check_vectors(self) -> None:
        """Refuse what does not go with a source side of vectors, or with one of text."""
        codec, model, data = self.src.codec, self.model, self.data
        forecasts, own = self.objective.kind == "forecast", _OF_VECTORS.get(self.objective.kind)
        _check(
            self.tgt.codec not in VECTORS or own is not None,
            f"tgt.codec={self.tgt.codec!r}: vectors are read, and not written; choose another",
        )
        vectors = self.codecs[0] in VECTORS
        read = f"{'tgt' if self.objective.one_sided else 'src'}.codec={self.codecs[0]!r}"
        stems = ("series",) if forecasts else ("linear", "convolution", "conv1d")
        _check(
            model.stem in (stems if vectors else ("embedding",)),
            f"model.stem={model.stem!r}: {read} makes "
            + (f"vectors; choose {_or(stems)}" if vectors else "pieces; choose "
               "'embedding', or a codec of vectors"),
        )  # fmt: skip
        among = VECTORS.get(self.codecs[0], ())
        others = {name for names in VECTORS.values() for name in names} - {"tfds"}
        _check(
            data.source in among if vectors else data.source not in others,
            f"data.source={data.source!r}: {read} reads "
            + (f"{' or '.join(among)}; choose {_or(among)}" if vectors else "text; choose another "
               f"source, or one of the codecs {_or(VECTORS)}"),
        )  # fmt: skip
        for word in data.augment:
            of = "log_mel" if word.endswith("_mask") else "patches"
            _check(
                self.codecs[0] == of or _is_part(word),
                f"data.augment={data.augment}: {word!r} is for src.codec={of!r}, not "
                f"{self.codecs[0]!r}; leave it out",
            )
        _check(
            forecasts == (self.codecs[0] == "series"),
            f"{read}: " + ("objective.name='forecast' reads time series; choose tgt.codec='series'"
            if forecasts else "time series are for objective.name='forecast'; choose that, or "
            "another codec"),
        )  # fmt: skip
        _check(
            own is None or self.codecs[0] == own,
            f"{read}: objective.name={self.objective.name!r} reads {own}; choose tgt.codec={own!r}",
        )
        if forecasts:
            self._check_forecast()
        if self.objective.kind == "reconstruct":
            self._check_reconstruct()
        if not vectors or forecasts:
            return
        _check(
            self.objective.kind in ("classify", "regress", "translate", "ctc", "reconstruct"),
            f"src.codec={codec!r}: objective.name={self.objective.name!r} reads text; choose "
            "'classify', 'regress', 'translate', 'ctc' or 'reconstruct'",
        )
        _check(
            not data.prefixes and data.long_sources == "drop" and not data.subword_dropout,
            f"data.prefixes={data.prefixes}, data.long_sources={data.long_sources!r}, "
            f"data.subword_dropout={data.subword_dropout}: are for sources of text; leave them at "
            "(), 'drop' and 0",
        )
        _check(
            model.stem != "convolution" or codec == "patches",
            f"model.stem='convolution': src.codec={codec!r} makes no patches; choose 'conv1d'",
        )
        _check(
            model.stem != "convolution" or self.src.patch_size == 2**model.stem_layers,
            f"model.stem_layers={model.stem_layers}: make patches of {2**model.stem_layers} pixels "
            f"smaller, and src.patch_size={self.src.patch_size}; change one of them",
        )
        _check(
            model.stem == "linear" or data.batching != "pack",
            f"data.batching='pack': a row of model.stem={model.stem!r} must hold one source, which "
            "is convolved; choose 'bucket'",
        )

    def _check_forecast(self) -> None:
        """Refuse windows of a series that are not of whole patches, and rows of several."""
        model, window = self.model, self.objective.window
        _check(
            window >= model.patch_length
            and (window - model.patch_length) % model.patch_stride == 0,
            f"objective.window={window}: model.patch_length={model.patch_length} and a multiple of "
            f"model.patch_stride={model.patch_stride} do not make it up, and would leave out rows; "
            "change one of them",
        )
        _check(
            self.data.batching == "bucket",
            f"data.batching={self.data.batching!r}: a row of objective.name='forecast' is a "
            "window; choose 'bucket'",
        )
        _check(
            self.training.r_drop is None,
            f"training.r_drop={self.training.r_drop}: is for choices among pieces or classes; set "
            "it to None",
        )

    def _check_reconstruct(self) -> None:
        """Refuse what does not fit pictures that are read and made again."""
        _check(
            self.src.codec == "patches",
            f"src.codec={self.src.codec!r}: what objective.name={self.objective.name!r} makes is "
            "what it reads; choose 'patches', as for tgt.codec",
        )
        _check(
            self.training.r_drop is None,
            f"training.r_drop={self.training.r_drop}: is for choices among pieces or classes; set "
            "it to None",
        )
        _check(
            self.evaluation.bleu_sentences == 0,
            f"evaluation.bleu_sentences={self.evaluation.bleu_sentences}: pictures have no BLEU; "
            "set it to 0, and checkpoint.best_by='loss'",
        )

    def _check_objective(self) -> None:
        """Refuse what does not fit an objective other than translation."""
        data, objective, codec = self.data, self.objective, self.tgt.codec
        name = f"objective.name={objective.name!r}"
        wanted = ARCHITECTURES[objective.kind]
        _check(
            self.model.architecture in wanted,
            f"model.architecture={self.model.architecture!r}: {name} is an objective of "
            f"architecture={_or(wanted)}; choose that, or another objective",
        )
        _check(
            objective.kind != "prefix_lm" or not _without_scores(self.model.decoder_pattern),
            f"model.decoder_pattern={self.model.decoder_pattern}: {name} has a prefix that sees "
            f"itself whole, which only {_or(_ATTENTION)} can; choose these, or another objective",
        )
        _check(
            objective.kind in ("translate", "ctc") or objective.labels or self.tokenizer.joint,
            f"tokenizer.joint=False: {name} has one vocabulary; set it to True",
        )
        _check(
            objective.kind not in ("masked_lm_nsp", "answer", "classify_pairs")
            or self.model.token_types != 1,
            f"model.token_types=1: {name} reads two kinds of tokens; set it to 2, or to 0 for none",
        )
        _check(
            not objective.whole_words or codec in SIZED,
            f"objective.whole_words=True: tgt.codec={codec!r} does not say where words begin; set "
            f"it to False or choose {_or(SIZED)}",
        )
        _check(
            data.long_sources == "drop" or objective.kind == "translate",
            f"data.long_sources={data.long_sources!r}: means nothing with {name}; leave it at "
            "'drop'",
        )
        _check(
            not data.prefixes or not objective.one_sided,
            f"data.prefixes={data.prefixes}: {name} has no source side; set it to ()",
        )
        _check(
            not data.subword_dropout or self.tokenizer.model is None,
            f"data.subword_dropout={data.subword_dropout}: is for a tokenizer that is trained "
            "here, whose merges are in the order of its pieces; set it to 0",
        )
        named = len(objective.symbols) + len(self.tokenizer.symbols)
        _check(
            not named or not {*SIZED} & {*self.codecs} or self.tokenizer.vocab_size > named + 5,
            f"tokenizer.vocab_size={self.tokenizer.vocab_size}: {named} of them are named pieces, "
            f"of {name} and tokenizer.symbols; raise it, or lower objective.sentinels",
        )
        _check(
            objective.kind not in ("regress", "answer", "ctc") or self.training.r_drop is None,
            f"training.r_drop={self.training.r_drop}: is for choices among pieces or classes, of "
            f"which {name} has none; set it to None",
        )
        _check(
            objective.kind != "ctc" or codec != "huggingface",
            f"tgt.codec={codec!r}: {name} has PAD for a place without a piece, which an imported "
            "tokenizer may lack; choose another codec",
        )
        _check(
            objective.kind != "ctc" or data.batching != "pack",
            f"data.batching='pack': a row of {name} must hold one line; choose 'bucket'",
        )

    def _check_tasks(self) -> None:
        """Refuse what does not fit parts of the training text with an objective of their own."""
        data, objective = self.data, self.objective
        named = objective.of_parts(data.train)
        parts = f"objective.parts={objective.parts}"
        _check(
            sum(map(len, named.values())) - len(named[objective.name]) == len(objective.parts)
            and bool(named[objective.name]),
            f"{parts}: must name some of the parts of data.train={data.train}, but not all: those "
            f"that are left are for {objective.name}",
        )
        _check(
            self.tokenizer.joint,
            f"{parts}: one text is read and written, with one vocabulary; set tokenizer.joint=True",
        )
        _check(
            not data.subword_dropout,
            f"data.subword_dropout={data.subword_dropout}: is for pairs, and {parts} has other "
            "texts; set it to 0",
        )
        for name, own in named.items():
            one = objective.alone(name)
            tagged = [entry for entry in data.prefixes if entry.partition("=")[0] in own]
            _check(
                not tagged or not one.one_sided,
                f"data.prefixes={tagged}: a part for {name} has no source side; leave it out",
            )
            if one.windowed:
                self._check_read(one)

    def _check_windows(self) -> None:
        """Refuse what does not fit a model of texts that are cut into windows."""
        data, objective = self.data, self.objective
        name = f"objective.name={objective.name!r}"
        _check(
            self.src == SourceConfig() or not objective.one_sided,
            f"src.codec={self.src.codec!r}: {name} has no source side; set tgt.codec alone",
        )
        _check(
            not data.subword_dropout,
            f"data.subword_dropout={data.subword_dropout}: is for pairs, not for {name}; set it "
            "to 0",
        )
        _check(
            self.evaluation.bleu_sentences == 0,
            f"evaluation.bleu_sentences={self.evaluation.bleu_sentences}: {name} has no "
            "references to compare with; set it to 0, and checkpoint.best_by='loss'",
        )
        self._check_read(objective)

    def _check_read(self, objective: ObjectiveConfig) -> None:
        """Refuse windows and documents that cannot be read so."""
        data, codec = self.data, self.tgt.codec
        _check(
            objective.window <= data.max_length,
            f"objective.window={objective.window} is above data.max_length={data.max_length}: "
            "lower the one or raise the other",
        )
        _check(
            objective.document != "file" or data.source == "text",
            f"objective.document='file': data.source={data.source!r} has no files; choose 'line'",
        )
        _check(
            objective.document != "file" or codec not in SIZED,
            f"objective.document='file': tgt.codec={codec!r} does not keep line ends; choose "
            "'characters' or 'bytes', or document='line'",
        )


def average_count(checkpoint: str) -> int | None:
    """Read a checkpoint name: N of "average:N", or None for best, last and a step.

    Raises:
      UserError: if it is none of these.
    """
    head, colon, tail = checkpoint.partition(":")
    number = tail if colon else head
    short = number.isdecimal() and len(number) <= len(str(_STEPS))  # more is no count of steps
    if head == "average" and colon and short and int(tail) > 0:
        return int(tail)
    if checkpoint in ("best", "last") or (short and not colon):
        return None
    raise UserError(f"checkpoint={checkpoint!r}: must be best, last, a step, or average:N")

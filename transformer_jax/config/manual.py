"""The manual: every field of an experiment, its unit and its default, written once.

`Experiment()` is the paper's base model. How values are read, overridden and written is
`door.py`'s business. "Paper" is Vaswani et al. 2017, https://arxiv.org/abs/1706.03762.
"""

import dataclasses
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, cast

from transformer_jax.config.bounds import HELD_POSITIONS, check
from transformer_jax.config.refusals.data import check_data, check_source, check_tokenizer
from transformer_jax.config.refusals.decoding import check_decoding
from transformer_jax.config.refusals.experiment import check_experiment
from transformer_jax.config.refusals.model import check_model
from transformer_jax.config.refusals.objective import check_objective
from transformer_jax.config.refusals.running import (
    check_checkpoint,
    check_evaluation,
    check_init,
    check_mesh,
    check_optimizer,
    check_profile,
    check_training,
)
from transformer_jax.config.words import (
    CELLS,
    LABELS,
    MASKED,
    ONE_SIDED,
    PLACES,
    READ_BY,
    SENTINEL,
    SOUNDS,
    SYMBOLS,
    TWO_WAY,
    VECTORS,
    WINDOWED,
    MixerKind,
)


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
    # "encoder" alone reads these three, and "elmo" and "decoder" pooling. Kinds of tokens, as
    # sentence A and B, each with a vector that is added to embeddings (BERT's type_vocab_size, 2
    # there); 0: none.
    token_types: int = 0
    # What a class is predicted from: the "first" position (BERT), the "mean" of all, or the "last"
    # (GPT), which alone has seen the whole text where each sees those before it.
    pooling: Literal["first", "mean", "last"] = "first"
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
    # are those names; "embedding": the tables of pieces, and so the last map where it shares one.
    lora_rank: int | None = None  # columns of A
    lora_alpha: float = 8.0
    lora_maps: tuple[
        Literal["query", "key", "value", "output", "gate", "up", "down", "embedding"], ...
    ] = ("query", "value")  # fmt: skip
    # Speed and memory alone; parameters, checkpoints and results are the same.
    layer_loop: Literal["unrolled", "scan"] = "unrolled"  # scan: compiles one layer, runs slower
    # Positions go through feed-forward layers in so many parts, made again on the way back.
    feed_forward_chunks: int = 1
    # What the way back computes again, to save memory: "none"; "dots": all of a layer but its
    # products with parameters; "full": all of a layer from its input.
    remat: Literal["none", "dots", "full"] = "none"

    def __post_init__(self) -> None:
        check_model(self)

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
    def one_sequence(self) -> bool:
        """Whether what is read before anything is written stands at the first positions of it."""
        return self.architecture in ("decoder", "prefix_decoder")

    @property
    def reads_by_cells(self) -> bool:
        """Whether the layers that read are recurrent ones without residual parts."""
        return {*self.encoder_pattern} <= {*CELLS, *TWO_WAY}

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
        places = not {*PLACES}.isdisjoint(self.encoder_pattern + self.decoder_pattern)
        return self.max_positions if self.positions == "learned" or places else None


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
    # "moves": a line is one or more of its 1,968 moves, "e2e4", with spaces between them;
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
        check_source(self)


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
        check_tokenizer(self)


@dataclass(frozen=True)
class DataConfig:
    """Where pairs come from and how they become batches."""

    # "text": files of lines; "tfds": a data set of TensorFlow Datasets; "spelled_numbers": numbers
    # in words, which are made here.
    # Made here as well: "listops", nested lists of digits under operators, and their value (Long
    # Range Arena, arXiv:2011.04006); "copying", random letters on both sides.
    # "chess": positions of games, and of each a best "move", e2e4, its "squares", e2 e4, or the
    # "value", as target_language says, by the material behind the best reply; in the extra `chess`.
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
    # spelled_numbers: of so many each digit becomes 0 with probability 1/2, as people like them.
    round_numbers: float = 0.0
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
    # them in parts; "cut" what is beyond it, there and here: texts whose class is written. In
    # prefix_lm both sides share max_length, so a source is cut at objective.window.
    long_sources: Literal["drop", "cut"] = "drop"
    tokens_per_batch: int = 25_000  # most positions on each side of one global batch, with padding
    # "bucket": one pair a row, with pairs of similar length; "pack": several pairs a row, which do
    # not see one another.
    batching: Literal["bucket", "pack"] = "bucket"
    num_buckets: int = 16  # bucket: static shapes; chosen from the data by least padding
    rows_divisible_by: int = 8  # rows of a batch are a multiple of this; so must a mesh allow

    def __post_init__(self) -> None:
        check_data(self)

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


@dataclass(frozen=True)
class ObjectiveConfig:
    """What is predicted from what."""

    # "translate": the target side, piece by piece, from the source side.
    # "language_model": each piece of one text from those before it; the text is the target side,
    # and there is no source: with data.source="text" the files PART.TARGET_LANGUAGE alone.
    # "prefix_lm": the target side from the source side, which stands before it in one sequence.
    # "text_prefix_lm": the rest of each window of one text, from its first part, which is read in
    # both directions as a prefix is; where the rest begins is drawn anew each epoch. Texts as for
    # language_model.
    # "permutation_lm": some pieces of one text, in a random order, each from all others but those
    # behind it in that order (XLNet); texts as for language_model.
    # "bidirectional_lm": each piece from those before it, and from those behind it (ELMo); texts
    # likewise.
    # "masked_lm": pieces of one text that are hidden, from all others (BERT); texts likewise.
    # "span_corruption": the spans that a text has lost, from what is left of it (T5).
    # "denoising": a text, from what noise has made of it (BART); texts of both likewise.
    # "text_continuation": the rest of each window, from its first part, as in text_prefix_lm.
    # "masked_lm_nsp": the same of two segments of one text, and whether the second follows the
    # first or is from elsewhere (BERT 3.1); a line is a sentence, an empty one ends a document.
    # "tag": a label for each word, both with spaces between them: parts of speech, names.
    # "answer": where in a text the answer to a question stands (SQuAD). A line of the source side
    # is a question, a TAB and the text, one of the target side how many characters stand before
    # the answer, a TAB and the answer.
    # "regress": the number on the line of the target side, from the source side.
    # "classify": the line of the target side, which is one of few, from the source side. With
    # tgt.codec="labels" or "moves" it may be several, all of which are right: the target is their
    # distribution, in which one that is there twice counts twice.
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
        "translate", "language_model", "prefix_lm", "text_prefix_lm", "permutation_lm",
        "bidirectional_lm", "masked_lm", "masked_lm_nsp", "span_corruption", "denoising",
        "text_continuation", "tag", "answer", "regress", "classify", "classify_pairs", "forecast",
        "ctc", "reconstruct",
    ] = "translate"  # fmt: skip
    # For all but translate, ctc and reconstruct: the most pieces read at a time. Longer
    # documents are cut into consecutive windows. Each but the first begins with the last piece of
    # the one before; of masked_lm, each begins with BOS; of span_corruption and denoising, each
    # ends with EOS, and is as long as leaves neither side with more; of tag and answer, they are of
    # whole words. What classify, classify_pairs and regress do not read is left out. Of forecast,
    # windows begin at every row. Of prefix_lm with data.long_sources="cut", the most pieces of a
    # source, whatever its target, of which it would tell the length.
    window: int = 256
    # Of those without a source side but masked_lm_nsp, what a document is. "line": each line, EOS
    # stands for its end. "file": each part of the split, line ends and all, as it lies on the disk.
    # "joined" (all of these but permutation_lm and bidirectional_lm): all lines behind one another,
    # EOS between them, and BOS behind that in language_model and text_prefix_lm.
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
        check_objective(self)

    def alone(self, name: str) -> "ObjectiveConfig":
        """Return the config of one of several objectives, without what it does not read."""
        kind = self.kind if name == self.name else name
        unread: dict[str, Any] = {
            field: ObjectiveConfig.__dataclass_fields__[field].default
            for field, readers in READ_BY.items()
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
        return self.kind in ONE_SIDED

    @property
    def windowed(self) -> bool:
        """Whether `window` is the most that is read at a time."""
        return self.kind in WINDOWED

    def cut_at(self, data: DataConfig) -> int | None:
        """The most pieces of a source, EOS included, where long ones are cut."""
        if data.long_sources == "drop":
            return None
        return self.window if self.kind == "prefix_lm" else data.max_length

    @property
    def lengths(self) -> tuple[int, int] | None:
        """How long both sides of every example are, where all are alike."""
        return (self.window, self.horizon) if self.kind == "forecast" else None

    @property
    def masked(self) -> bool:
        """Whether pieces are hidden, and predicted where they stand."""
        return self.kind in MASKED

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
    # https://kellerjordan.github.io/posts/muon/); all else by Adam: embeddings, biases, norms, and
    # what is no linear map of a layer's input, such as a cell's map of its state.
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
    # (Loshchilov and Hutter 2019, arXiv:1711.05101); all else stays. 0: none.
    weight_decay: float = 0.0
    # Patterns (regular expressions for whole names, "encoder/.*") of parameters that stay as they
    # begin; the log of a start lists all names.
    frozen: tuple[str, ...] = ()
    # With model.lora_rank, of parameters that are trained beside A and B: ".*/bias" (BitFit: Ben
    # Zaken et al. 2021, arXiv:2106.10199), ".*norm/.*", or a head that is new.
    unfrozen: tuple[str, ...] = ()
    # "PATTERN=FACTOR", of the learning rate of parameters: ".*embedding/table=0.1". Factors of
    # several patterns multiply.
    rate_factors: tuple[str, ...] = ()
    # Each layer's learning rate is so many times that of the layer above it, embeddings' the least
    # (Clark et al. 2020, arXiv:2003.10555). 1: all alike.
    layer_decay: float = 1.0

    def __post_init__(self) -> None:
        check_optimizer(self)

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
            check(
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
        check_init(self)


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
        check_training(self)

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
        check_checkpoint(self)


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
        check_evaluation(self)


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
    # No n-gram of this size twice in an output, of which a prompt is no part; 0: off.
    no_repeat_ngram: int = 0
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
        check_decoding(self)

    def check_fits(self, source_length: int, most: int | None = None) -> None:
        """Check that all hypotheses of a source of so many pieces can be held at a time.

        `most` is a limit of the length of an output that the model has.

        Raises:
          UserError: if they take too many positions; names the fields.
        """
        name = "num_samples" if self.search == "sample" else "beam_size"
        longest = int(self.max_length_ratio * source_length) + self.max_extra_length
        longest = min(longest, most or longest)
        check(
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
        check_mesh(self)


@dataclass(frozen=True)
class ProfileConfig:
    """Traces, for TensorBoard's profile plugin and https://ui.perfetto.dev."""

    steps: tuple[int, ...] = ()  # (first, last) step to trace, into profile/ of the work directory

    def __post_init__(self) -> None:
        check_profile(self)


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
        check_experiment(self)

    @property
    def measured(self) -> str:
        """What validation measures of what is written, as `checkpoint.best_by` calls it."""
        heard = self.src.codec in SOUNDS or self.objective.kind == "ctc"
        return "wer" if heard else "bleu"

    @property
    def codecs(self) -> tuple[str, str]:
        """The source side's codec and the target side's, which is both where there is one side."""
        return (self.tgt if self.objective.one_sided else self.src).codec, self.tgt.codec

    @property
    def translates_text(self) -> bool:
        """Whether pieces of a text are searched for, for pieces of another."""
        return self.objective.kind in ("translate", "prefix_lm") and self.codecs[0] not in VECTORS

"""The manual: every field of an experiment, with its unit and its default, documented once.

`Experiment()` is the paper's base model. `convert.py` reads, overrides and writes values. "Paper"
is Vaswani et al. 2017, https://arxiv.org/abs/1706.03762.
"""

import dataclasses
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, cast

from transformer_jax.config.bounds import HELD_POSITIONS, MOST_ALPHA, SIZE, STEPS, check
from transformer_jax.config.choices.architectures import ARCHITECTURES
from transformer_jax.config.choices.chat import CHAT_TEMPLATES
from transformer_jax.config.choices.codecs import CODECS, VECTORS, check_source_reads
from transformer_jax.config.choices.mixers import CELLS, PLACES, TWO_WAY
from transformer_jax.config.choices.objectives import OBJECTIVES, Objective
from transformer_jax.config.choices.optimizers import (
    Optimizer,
    check_optimizer_read,
    optimizer_record,
)
from transformer_jax.config.choices.parametrizations import PARAMETRIZATIONS, Parametrization
from transformer_jax.config.choices.positions import POSITIONS
from transformer_jax.config.choices.record import readers
from transformer_jax.config.choices.searches import SEARCHES, Search
from transformer_jax.config.choices.sources import check_data_reads
from transformer_jax.config.choices.texts import FIM_PIECES, SENTINEL
from transformer_jax.config.fields import above, check_bounds, number, rate, value
from transformer_jax.config.refusals.data import (
    check_data,
    check_shares_read,
    check_tokenizer,
    check_tokenizer_reads,
)
from transformer_jax.config.refusals.decoding import check_decoding, check_decoding_reads
from transformer_jax.config.refusals.experiment import check_experiment, check_experiment_reads
from transformer_jax.config.refusals.model import check_model, check_model_reads
from transformer_jax.config.refusals.objective import check_objective, check_objective_reads
from transformer_jax.config.refusals.running import (
    check_evaluation,
    check_init,
    check_init_reads,
    check_mesh,
    check_optimizer,
    check_profile,
)

# The mixers: what mixes values along a sequence in a layer.
MixerKind = Literal[
    "full", "differential", "latent", "local", "dilated", "longformer", "bigbird", "lsh", "linear",
    "delta_rule",
    "random_features", "gated_random_features", "favor",
    "aft_full", "aft_local", "aft_conv", "aft_simple", "ssru",
    "mamba2", "bimamba2", "gated_delta", "bigated_delta", "s4d", "bis4d", "mamba", "bimamba",
    "retention", "biretention", "rwkv7", "birwkv7", "mega", "bimega",
    "mega_chunk", "bimega_chunk",
    "elman", "lstm", "gru", "bielman", "bilstm", "bigru", "conformer", "joint", "joint_last",
    "space", "time", "divided",
]  # fmt: skip


@dataclass(frozen=True)
class Section:
    """A group of fields. What is impossible is refused whenever one is made; what has no effect,
    where people write configs: `parse` calls `check_reads`.
    """

    def __post_init__(self) -> None:
        check_bounds(self)
        self.check_possible()

    def check_possible(self) -> None:
        """Reject values that do not go together."""

    def check_reads(self) -> None:
        """Reject values other than the default for fields that nothing reads."""


@dataclass(frozen=True)
class ModelConfig(Section):
    """The model. Defaults are the paper's base model (section 3, Table 3)."""

    # "decoder": one stack that continues a text, without a source or an encoder (GPT).
    # "two_stream": the same, but pieces are predicted in any order, by a second stream that sees
    # positions but not their content (XLNet: Yang et al. 2019, arXiv:1906.08237).
    # "encoder": one bidirectional stack that writes nothing; it predicts masked pieces or a class
    # (BERT: Devlin et al. 2019, arXiv:1810.04805).
    # "perceiver": `num_latents` learned latent vectors attend to the input, encoder layers process
    # the latents, and output queries attend to them, so the number of operations grows linearly
    # with the length of a text (Jaegle et al. 2021, arXiv:2103.03206; Perceiver IO,
    # arXiv:2107.14795).
    # "factorised_encoder": an encoder of the frames of a clip, one by one, and `num_time_layers`
    # layers that read a vector for each (ViViT's model 2: Arnab et al. 2021, arXiv:2103.15691).
    # "recurrent": the translation models that preceded the Transformer, a recurrent encoder and
    # decoder without residual sub-layers or feed-forward layers; see `recurrence`.
    # "elmo": recurrent layers that read a text from the left, and others from the right; labels are
    # predicted from a mixture of all their outputs (Peters et al. 2018, arXiv:1802.05365).
    # "decomposable_attention": no layers; each word of two texts is compared with what it attends
    # to in the other, and the sums of the comparisons predict how the texts are related (Parikh et
    # al. 2016, arXiv:1606.01933).
    # "prefix_decoder": an encoder of vectors, a linear map, and a decoder that reads their output
    # before its text (LLaVA: Liu et al. 2023, arXiv:2304.08485).
    # "autoencoder": an encoder that quantises each vector to one of `num_codes` codes, and more
    # encoder layers, called the decoder, that reconstruct the vectors from the codes (VQ-VAE: van
    # den Oord et al. 2017, arXiv:1711.00937; with Transformers: Yu et al. 2021, arXiv:2110.04627).
    # "variational_autoencoder": the same with a vector of `code_width` normal numbers per position
    # in place of a code (Kingma and Welling 2013, arXiv:1312.6114), in whose latents a diffusion
    # model can draw (Rombach et al. 2022, arXiv:2112.10752).
    # "diffusion_transformer": an encoder of noisy pictures that predicts what noise hides in each
    # patch, led by the time and by what the target side says of the picture (DiT: Peebles and Xie
    # 2022, arXiv:2212.09748; MM-DiT: Esser et al. 2024, arXiv:2403.03206).
    # "decision_transformer": a decoder of the steps of an agent, each at two or three positions:
    # the return still to come, the state, and the action, which is predicted from the output at the
    # state (Chen et al. 2021, arXiv:2106.01345).
    # "evoformer": layers over pairs of positions, in which triangles of pairs agree, beside a
    # sequence; it predicts the distance of each pair (AlphaFold 2: Jumper et al. 2021,
    # https://doi.org/10.1038/s41586-021-03819-2).
    # "dlinear": no layers; two linear maps from a window of a time series to the numbers after it,
    # of its moving average and of the rest (Zeng et al. 2023, arXiv:2205.13504).
    architecture: Literal[
        "encoder_decoder", "decoder", "two_stream", "encoder", "perceiver", "factorised_encoder",
        "recurrent", "elmo", "decomposable_attention", "prefix_decoder", "autoencoder",
        "variational_autoencoder", "diffusion_transformer", "decision_transformer", "evoformer",
        "dlinear",
    ] = "encoder_decoder"  # fmt: skip
    # dlinear: rows of the moving average, an odd number, of which the first and the last row of a
    # window are repeated at its ends
    trend_rows: int = number(25, 1, SIZE, of="architectures")
    # decision_transformer: "discrete" actions are a choice among those of training; "continuous"
    # ones are vectors of numbers from -1 to 1, predicted by tanh and squared error.
    actions: Literal["discrete", "continuous"] = value("discrete", of="architectures")
    # diffusion_transformer: how the target side enters. "class": the vector of a class, added to
    # that of the time; "text": the mean of the vectors of its pieces, mapped and added, while the
    # pieces themselves stand before the patches in one sequence.
    condition: Literal["class", "text"] = value("class", of="architectures")
    num_time_layers: int = number(4, 1, 1000, of="architectures")  # factorised_encoder
    num_latents: int = number(256, 1, SIZE, of="architectures")  # perceiver
    num_codes: int = number(256, 1, SIZE, of="architectures")  # autoencoder
    # autoencoder: channels in which the nearest code is looked up, by direction alone;
    # variational_autoencoder: those of a latent vector.
    code_width: int = number(16, 2, SIZE, of="architectures")
    # autoencoder: the weight of the loss that moves a position towards its code; the loss that
    # moves the code has weight 1 (van den Oord et al. 2017, equation 3).
    commitment: float = number(0.25, 0, 1e3, of="architectures")
    # variational_autoencoder: the weight of the divergence (nats) of a position's latents from a
    # standard normal distribution, beside the mean squared error of what is made of them.
    kl_weight: float = number(1e-3, 0, 1e3, of="architectures")
    pair_width: int = number(128, 1, SIZE, of="architectures")  # evoformer: channels of a pair
    pair_heads: int = number(4, 1, SIZE, of="architectures")  # evoformer: attention between pairs
    # evoformer: channels of each side of the outer product that tells pairs of the sequence
    outer_width: int = number(32, 1, SIZE, of="architectures")
    # evoformer: the parts of a block that refine pairs, in this order. A pair gains from the other
    # two sides of each triangle: by products, along the edges that leave its positions ("outgoing")
    # or enter them ("incoming"), or by attention, from the pairs with the same start ("starting")
    # or end ("ending"); a "transition" sees the pair alone.
    pair_parts: tuple[Literal["outgoing", "incoming", "starting", "ending", "transition"], ...] = (
        value(("outgoing", "incoming", "starting", "ending", "transition"), of="architectures")
    )
    # evoformer: passes before the last, whose result enters the next; training draws their number,
    # from 0 to this, for each step, and only the last has a gradient.
    recycling: int = number(3, 0, 100, of="architectures")
    # evoformer: a distance is predicted as a distribution over so many bins of equal width, from
    # nearest_distance to farthest_distance in the unit of the data; AlphaFold's are in angstroms.
    distance_bins: int = number(64, 2, 2**12, of="architectures")
    nearest_distance: float = number(2.0, 0, 1e6, of="architectures")
    farthest_distance: float = above(22.0, 0, 1e6, of="architectures")
    # How the values of a source side enter the model. "embedding": pieces, through a table.
    # "linear": vectors, such as patches of pictures, through one map (ViT: Dosovitskiy et al. 2021,
    # arXiv:2010.11929); "convolution": patches, reassembled into pictures, through convolutions
    # (Xiao et al. 2021, arXiv:2106.14881). "series": a window of a time series, normalised by its
    # own mean and standard deviation, in overlapping patches (PatchTST: Nie et al. 2023,
    # arXiv:2211.14730); "variates": each channel of such a window, whole (iTransformer: Liu et al.
    # 2024, arXiv:2310.06625). "conv1d": vectors, such as frames of sound, through two convolutions
    # along the sequence, the second with stride 2, which halves the number of vectors (Whisper:
    # Radford et al. 2022, arXiv:2212.04356). "trajectory": the steps of an agent, by linear maps of
    # return, state and action, to each of which the vector of `positions` for the time step is
    # added. "pairs": the known distances of pairs of points, for evoformer.
    stem: Literal[
        "embedding", "linear", "convolution", "series", "variates", "conv1d", "trajectory", "pairs"
    ] = "embedding"  # fmt: skip
    patch_length: int = number(16, 1, SIZE, of="stems")  # series: rows per patch
    # series: rows from the start of one patch to the start of the next
    patch_stride: int = number(8, 1, SIZE, of="stems")
    # How a window of a series is normalised, and its forecast brought back: by its own mean and
    # standard deviation ("window"), after which "learned" multiplies it by a trained number and
    # adds another, the same for all channels (RevIN: Kim et al. 2022,
    # https://openreview.net/forum?id=cGDAkQo1C0p); "last": its last row is subtracted (NLinear:
    # arXiv:2205.13504); "none".
    series_norm: Literal["window", "learned", "last", "none"] = value("window", of="stems")
    # What is predicted for each value of a series. "point": a number, by squared error; or the
    # parameters of a distribution: "normal", "student_t", or its nine deciles, "quantiles".
    distribution: Literal["point", "normal", "student_t", "quantiles"] = value("point", of="stems")
    # convolution: layers, each of which halves both sides of a patch
    stem_layers: int = number(2, 1, 10, of="stems")
    # Rows and columns of patches in a picture, or times, rows and columns of tubelets in a clip:
    # for convolution, grid_positions, layers along axes of a clip, and architectures that know the
    # form of what they read. The encoder of a prefix_decoder reads only pictures of this form.
    grid: tuple[int, ...] = value((), of="stems")
    # What a stem of vectors adds to each patch, besides `positions`: "sinusoidal" uses half of the
    # channels for sines and cosines of its row and the other half for those of its column; of a
    # tubelet, a quarter for those of its time and the rest for the others. "learned": a trained
    # vector for each place, and another for each time.
    grid_positions: Literal["none", "sinusoidal", "learned"] = "none"
    d_model: int = number(512, 1, SIZE, neutral=True)  # width of the residual stream
    d_ff: int = number(2048, 1, SIZE, neutral=True)  # width inside the feed-forward layers
    num_heads: int = number(8, 1, SIZE, neutral=True)  # attention heads
    # size of one query and key head (d_k); None: d_model / num_heads
    head_dim: int | None = number(None, 1, SIZE, neutral=True)
    # size of one value head (d_v); None: the same as head_dim
    v_head_dim: int | None = number(None, 1, SIZE, neutral=True)
    # Key and value heads, each shared by num_heads / num_kv_heads query heads; None: num_heads. 1:
    # multi-query attention (Shazeer 2019, arXiv:1911.02150); more: grouped (Ainslie et al. 2023,
    # arXiv:2305.13245).
    num_kv_heads: int | None = number(None, 1, SIZE)
    # layers of the encoder (N in the paper)
    num_encoder_layers: int = number(6, 1, 1000, neutral=True)
    num_decoder_layers: int = number(6, 1, 1000, neutral=True)  # layers of the decoder
    # encoder_pattern, decoder_pattern: the kind of each layer, from the first one on, repeated.
    # These keep keys and values:
    #   full       attention to all positions
    #   differential  the difference of two of these, for each pair of heads (arXiv:2410.05258)
    #   latent     the same with a latent vector of `latent_size` in place of keys and values, from
    #              which those of all heads are mapped (MLA: arXiv:2405.04434)
    #   local      attention to positions less than `window` away
    #   dilated    to as many, `dilation` positions apart (arXiv:2004.05150)
    #   longformer  local, but the first `global_tokens` of a text see all and are seen by all:
    #              encoders (arXiv:2004.05150)
    #   bigbird    from each block to the neighbouring blocks, the first, the last and random ones:
    #              encoders (arXiv:2007.14062)
    #   lsh        the Reformer's, among positions grouped by a hash (arXiv:2001.04451); keys are
    #              queries
    #   aft_full   attention-free: a weight for each channel of a key and a learned one for each
    #              pair of positions; aft_local for those within `window`, aft_conv for each
    #              distance within it, aft_simple for none, with two sums in place of keys
    #              (arXiv:2105.14103)
    #   mega       attention by moving averages of `state_size` numbers (arXiv:2209.10655), which a
    #              state keeps: decoders; bimega, with averages from both ends: encoders;
    #              mega_chunk and bimega_chunk: attention within chunks of `block_size` positions
    # These keep a state of constant size:
    #   linear     scores are products of features (arXiv:2006.16236)
    #   delta_rule removes what a key has stored before it writes: decoders (arXiv:2102.11174)
    #   random_features  features that approximate a softmax (RFA, arXiv:2103.02143);
    #              gated_random_features: earlier positions count less: decoders
    #   favor      the Performer's positive orthogonal features (arXiv:2009.14794)
    #   ssru       the simpler simple recurrent unit: decoders (https://aclanthology.org/D19-5632)
    #   mamba2     a state space per head that decays by one factor per token (arXiv:2405.21060)
    #   gated_delta  the delta rule with such a decay (arXiv:2412.06464)
    #   s4d        a linear state space per channel (arXiv:2206.11893)
    #   mamba      the same, but each token selects what it keeps (arXiv:2312.00752)
    #   retention  linear attention that forgets at fixed rates (RetNet: arXiv:2307.08621)
    #   rwkv7      its time mixing: each channel of a key decays, and tokens erase keys
    #              (arXiv:2503.14456)
    #              These six are for decoders; bimamba2, bigated_delta, bis4d, bimamba, biretention
    #              and birwkv7, from both ends, for encoders
    #   elman, lstm, gru  recurrent layers from left to right, with a state of d_model; bielman,
    #              bilstm, bigru from both ends, each with half of that: encoders
    #   conformer  a block of four parts: half a feed-forward layer, attention to all positions, a
    #              convolution of `conv_kernel`, half a feed-forward layer; and a norm. Encoders
    #              (Gulati et al. 2020, arXiv:2005.08100, with layer norm for batch norm)
    #   joint      attention to all positions of a text and a picture, each with maps, norms and a
    #              feed-forward layer of its own (arXiv:2403.03206); joint_last: the same for the
    #              last layer, where the text is only read: diffusion_transformer
    #   space, time  attention among the tubelets of a time, or of a place, in a clip of `grid`;
    #              divided: both in one layer, time first, with one more map after it (TimeSformer:
    #              Bertasius et al. 2021, arXiv:2102.05095): encoders of stem="linear"
    encoder_pattern: tuple[MixerKind, ...] = value(("full",), neutral=("full",))
    decoder_pattern: tuple[MixerKind, ...] = value(("full",), neutral=("full",))
    # latent: channels per token that decoding keeps, besides those of one head that rotate.
    latent_size: int = number(512, 1, SIZE, of="mixers")
    # latent: queries from such a vector; None: from its input
    query_latent_size: int | None = number(None, 1, SIZE, of="mixers")
    # local, dilated, longformer, aft_local, aft_conv: positions to either side, its own included;
    # source_attention=local_*: its own not included.
    window: int | None = number(None, 1, SIZE)
    # longformer: positions of a text, counted from the first
    global_tokens: int = number(1, 1, 2**16, of="mixers")
    block_size: int = number(
        64, 1, SIZE, of="mixers"
    )  # bigbird, lsh, mega_chunk: positions per block
    # bigbird: random blocks that each one sees, drawn by `feature_seed`
    random_blocks: int = number(3, 0, 1000, of="mixers")
    # lsh: the number of random rotations, each of which assigns positions to hash_buckets buckets;
    # they are redrawn as features are, see `redraw_every`.
    hash_rounds: int = number(2, 1, 64, of="mixers")
    hash_buckets: int = number(32, 2, 2**16, of="mixers")  # an even number
    # aft_full, aft_local: size of the position vectors
    position_rank: int = number(64, 1, SIZE, of="mixers")
    dilation: int = number(2, 1, 2**16, of="mixers")  # dilated: positions from one key to the next
    # conformer: positions that a convolution reads, an odd number
    conv_kernel: int = number(31, 1, 2**12, of="mixers")
    # random_features, gated or not, favor: random directions per head
    num_features: int = number(64, 1, 2**16, of="mixers")
    # Training steps between two draws of these directions. Evaluation and decoding use those of
    # `feature_seed`, in every layer.
    redraw_every: int = number(1, 1, STEPS, of="mixers")
    feature_seed: int = number(0, 0, 2**32 - 1, of="mixers")
    # mamba2, gated_delta, mamba, retention: channels that have a state; mega: those of values.
    # None: twice d_model
    state_width: int | None = number(None, 1, SIZE, of="mixers")
    # mamba2, gated_delta, retention: their heads, which divide these; rwkv7: those of d_model.
    # None: num_heads
    state_heads: int | None = number(None, 1, SIZE, of="mixers")
    # mamba2, gated_delta: groups of heads with the same keys and queries; None: one, but for
    # gated_delta each head is one
    state_groups: int | None = number(None, 1, SIZE, of="mixers")
    # The same, s4d and mega: numbers in the state of each channel, the size of keys and queries; an
    # even number for s4d and retention. Mamba's and MEGA's is 16.
    state_size: int = number(64, 1, SIZE, of="mixers")
    # mamba2, gated_delta, mamba: positions that the convolutions before a state read
    state_conv: int = number(4, 2, 2**6, of="mixers")
    # architecture="recurrent", whose patterns name recurrent layers; an encoder_pattern of other
    # layers is the Transformer's encoder, with its fields. "luong": all layers, then attention to
    # the source (Luong et al. 2015, arXiv:1508.04025; without attention, Sutskever et al. 2014,
    # arXiv:1409.3215); "bahdanau": attention first, whose context enters the layers (RNNsearch:
    # Bahdanau et al. 2015, arXiv:1409.0473; without attention, Cho et al. 2014, arXiv:1406.1078);
    # "gnmt": attention after the first layer, whose context enters all layers, and residual
    # connections from the third on (Wu et al. 2016, arXiv:1609.08144); "rnmt_plus": the same with a
    # norm of each lstm gate, and the context also enters the prediction (Chen et al. 2018,
    # arXiv:1804.09849).
    recurrence: Literal["luong", "bahdanau", "gnmt", "rnmt_plus"] = value(
        "luong", of="architectures"
    )
    # How it attends: "dot" and "general" (with a map) products, "additive" v tanh(W q + U h),
    # "multi_head_additive" the same for each of `num_heads`, or only to positions at most `window`
    # from the target's own ("local_monotonic") or from a predicted one ("local_predictive").
    source_attention: Literal[
        "none", "dot", "general", "additive", "multi_head_additive", "local_monotonic",
        "local_predictive",
    ] = value("general", of="architectures")  # fmt: skip
    # luong: the attention output enters the next step beside the token
    input_feeding: bool = value(True, of="architectures")
    reverse_source: bool = value(False, of="architectures")  # read the source from its end
    # on each sub-layer's output and on embeddings (paper 5.4)
    dropout_rate: float = rate(0.1, neutral=True)
    # on attention weights; the paper has none
    attention_dropout_rate: float = rate(0.0, neutral=True)
    # inside the feed-forward layers; the paper has none
    activation_dropout_rate: float = rate(0.0, neutral=True)
    # The share of layers that a training step skips at random (LayerDrop, Fan et al. 2019,
    # arXiv:1909.11556, who use 0.2), in both stacks; evaluation and decoding use all layers.
    layer_drop_rate: float = rate(0.0, neutral=True)
    # Where the norm stands: "post_norm" norm(x + f(x)) for a sub-layer f; "pre_norm"
    # x + f(norm(x)); "sandwich" x + norm(f(norm(x))) (arXiv:2105.13290); "reordered_norm"
    # x + norm(f(x)) (arXiv:2501.00656); "deep_norm" norm(alpha x + f(x)), with smaller initial
    # values, for very deep stacks (arXiv:2203.00555).
    # "parallel": x + f(norm(x)) + g(norm(x)) for a layer's mixer f and feed-forward part g, and one
    # norm for both (GPT-J; PaLM: arXiv:2204.02311); "parallel_norms": with one for each (GPT-NeoX:
    # arXiv:2204.06745). They are not for layers with cross-attention.
    # "reversible": two streams, each part reading one and adding to the other, so the backward pass
    # needs only the last values and activation memory does not grow with depth.
    # "adaptive_norm": x + gate f(norm(x) (1 + scale) + shift), all three from a vector of time and
    # condition by a map that starts at zero; the norm has no parameters (adaLN-Zero: arXiv:
    # 2212.09748). diffusion_transformer.
    residual: Literal[
        "post_norm", "pre_norm", "sandwich", "reordered_norm", "deep_norm", "parallel",
        "parallel_norms", "reversible", "adaptive_norm",
    ] = "post_norm"  # fmt: skip
    # "layer_norm" with scale and bias; "rms_norm": scale only, without subtracting the mean (Zhang
    # and Sennrich 2019, arXiv:1910.07467); "scale_norm": one number for all channels (Nguyen and
    # Salazar 2019, arXiv:1910.05895); "layer_norm_no_bias" (arXiv:2204.02311);
    # "zero_centered_rms_norm": an RMSNorm times 1 + scale, also of queries and keys (Gemma).
    norm: Literal[
        "layer_norm", "rms_norm", "scale_norm", "layer_norm_no_bias", "zero_centered_rms_norm"
    ] = "layer_norm"
    # added to the variance or mean square; tensor2tensor's value
    norm_epsilon: float = above(1e-6, 0, 1, neutral=True)
    # Inside the feed-forward layers. "gelu" uses the error function, "gelu_tanh" GPT-2's
    # approximation. "swiglu" and those after it are gated, with a third matrix of d_model x d_ff
    # (Shazeer 2020, arXiv:2002.05202); "geglu_tanh" is "gated-gelu" of T5 1.1.
    activation: Literal[
        "relu", "gelu", "gelu_tanh", "relu_squared", "silu", "mish", "swiglu", "reglu", "geglu",
        "geglu_tanh",
    ] = "relu"  # fmt: skip
    # The feed-forward part of each layer, from the first one of a stack on, repeated. "dense": all
    # positions pass through the same one. "experts": a router scores `num_experts` of width d_ff
    # for each position, which passes through the `experts_per_token` with the highest scores; their
    # outputs are added up, each times its score (Shazeer et al. 2017, arXiv:1701.06538). Parameters
    # grow with num_experts, but the work does not. All positions are computed, however many choose
    # the same expert. "none": the layer is its mixer alone (Mamba: arXiv:2312.00752).
    feed_forward_pattern: tuple[Literal["dense", "experts", "none"], ...] = value(
        ("dense",), neutral=("dense",)
    )
    num_experts: int = number(8, 2, 2**12, of="feed_forwards")
    # Mixtral: 2 (arXiv:2401.04088); Switch Transformers: 1
    experts_per_token: int = number(2, 1, 2**12, of="feed_forwards")
    # "softmax" over all experts; "sigmoid" for each alone (DeepSeek-V3: arXiv:2412.19437).
    expert_scores: Literal["softmax", "sigmoid"] = value("softmax", of="feed_forwards")
    # Whether outputs are weighted by scores divided by the sum of those chosen (Mixtral,
    # DeepSeek-V3), or by the scores themselves (Switch Transformers: arXiv:2101.03961).
    normalize_expert_weights: bool = value(True, of="feed_forwards")
    # Experts that all positions pass through besides: one dense layer of this many times d_ff
    # (DeepSeekMoE: arXiv:2401.06066).
    shared_experts: int = number(0, 0, 2**12, of="feed_forwards")
    # Whether their output is multiplied by a sigmoid of a map of their input to one number (Qwen2
    # with experts: arXiv:2407.10671; Qwen3-Next).
    shared_expert_gate: bool = value(False, of="feed_forwards", neutral=(False,))
    # What each training step adds to an expert's bias, if it was chosen less often than the mean of
    # its layer's in the batch, or takes from it, if more often. The bias counts where experts are
    # chosen, not in their weights, and so balances them without another loss (Wang et al. 2024,
    # arXiv:2408.15664). 0: no balance. metrics.jsonl shows it: busiest_expert is the load of the
    # busiest one over that mean, null where all are frozen.
    balancing_rate: float = number(0.001, 0, 1, of="feed_forwards")
    # biases: which linear maps have one. () as in Llama and T5; ("query", "key", "value") as in
    # Qwen2; all but "key" as in Whisper. "output" is the map after the heads.
    biases: tuple[Literal["query", "key", "value", "output", "feed_forward"], ...] = (
        "query", "key", "value", "output", "feed_forward",
    )  # fmt: skip
    # Scores are products of queries and keys: "inverse_sqrt" times head_dim^-0.5 (paper 3.2.1),
    # "none" unscaled (T5, whose initial queries are smaller by that factor).
    score_scale: Literal["inverse_sqrt", "none"] = "inverse_sqrt"
    # inverse_sqrt: the size whose root divides scores; None: head_dim (Gemma 2 and 3)
    score_size: int | None = number(None, 1, SIZE)
    # divides scores, before a bias of relative_positions
    attention_temperature: float = number(1.0, 1e-3, 1e3)
    # Scores s become c tanh(s / c), before a bias of relative_positions, and so stay between -c and
    # c (Gemma 2: arXiv:2408.00118). None: no cap.
    attention_softcap: float | None = above(None, 0, 1e6)
    # RMSNorm of queries and keys, before they rotate: "per_head", with one scale for all heads
    # (Qwen3); "all_heads", over all heads together (OLMo 2: arXiv:2501.00656).
    query_key_norm: Literal["none", "per_head", "all_heads"] = "none"
    # What heads gather, before the map after them, times a sigmoid of a map of the layer's input:
    # "elementwise", one for each channel (Qiu et al. 2025, arXiv:2505.06708; Qwen3-Next), or
    # "headwise", one for each head. For layers of `full`, `local`, `dilated` and `conformer`, and
    # for cross-attention.
    attention_gate: Literal["none", "elementwise", "headwise"] = "none"
    # "dense": all pairs, as in the paper. "fused": never stored; on an NVIDIA GPU, in bfloat16, by
    # one kernel, cuDNN's beyond 128 positions, else by XLA, with a warning that says why. "ring":
    # in blocks, never stored either; over mesh.context, keys and values pass from device to device.
    attention: Literal["dense", "fused", "ring"] = value(
        "dense", may_change=("dense", "fused", "ring"), neutral=("dense", "fused", "ring")
    )
    # What is added to the embeddings: "sinusoidal" as in the paper, alternating sines and cosines;
    # "sinusoidal_tensor2tensor" first all sines, then all cosines; "learned" a table; or "none".
    positions: Literal["sinusoidal", "sinusoidal_tensor2tensor", "learned", "none"] = "sinusoidal"
    # of learned positions and aft_full, aft_local; others have no limit
    max_positions: int = number(512, 1, SIZE, neutral=True)
    # How self-attention sees distances, besides `positions`; cross-attention sees none. "rope"
    # rotates queries and keys (pairs of channels i and i + r/2; "rope_interleaved": 2i and 2i + 1),
    # "alibi" lowers scores in proportion to the distance. The others are learned. "t5" adds to
    # scores a number for each head and bucket of distances (Raffel et al. 2020, arXiv:1910.10683),
    # "toeplitz" one for each head and distance up to `relative_clip`. "shaw" adds a vector for each
    # distance to keys, "shaw_values" one to keys and another to values (Shaw et al. 2018,
    # arXiv:1803.02155). "xlnet" adds products of queries with linear maps of the distance's
    # sinusoids, and two biases of queries (Dai et al. 2019, arXiv:1901.02860).
    relative_positions: Literal[
        "none", "rope", "rope_interleaved", "alibi", "t5", "shaw", "shaw_values", "toeplitz",
        "xlnet",
    ] = "none"  # fmt: skip
    # base of the angles' frequencies
    rope_theta: float = above(10_000.0, 1, 1e9, of="relative_positions")
    # the base in layers of `local`, `dilated` and `longformer`, whose angles are then not scaled
    # (Gemma 3: arXiv:2503.19786); None: rope_theta, and scaled like the others
    local_rope_theta: float | None = above(None, 1, 1e9, of="relative_positions", neutral=(None,))
    # share of each head's channels, from the first on, that rotates
    rope_fraction: float = above(1.0, 0, 1, of="relative_positions", neutral=(1.0,))
    # How angles change for texts longer than those of training: "linear" divides all frequencies by
    # rope_factor (arXiv:2306.15595); "llama3" and "yarn" those that turn less than once within
    # rope_length, and others in part (arXiv:2407.21783, 2309.00071).
    rope_scaling: Literal["none", "linear", "llama3", "yarn"] = value(
        "none", of="relative_positions"
    )
    # how many times as long they are
    rope_factor: float = number(8.0, 1, 2**20, of="rope_scalings")
    # llama3, yarn: positions of the texts of training
    rope_length: int = number(8192, 1, 2**30, of="rope_scalings")
    # relative_buckets, relative_max_distance: the number of t5's distance buckets, half of them for
    # positions ahead unless all attention of a stack is causal; and the distance from which all
    # share one bucket.
    relative_buckets: int = number(32, 4, 2**16, of="relative_positions")
    relative_max_distance: int = number(128, 1, SIZE, of="relative_positions")
    # shaw, shaw_values, toeplitz: larger distances count as this one
    relative_clip: int = number(16, 1, 2**16, of="relative_positions")
    # Whether all layers of a stack share the parameters of relative positions, or each layer has
    # its own; None: as published, shared for t5 and toeplitz, per layer for the others.
    share_relative_positions: bool | None = value(None, of="relative_positions", neutral=(None,))
    # Which tables are shared: "all" both embeddings and the pre-softmax matrix (paper 3.4),
    # "decoder" target embedding and pre-softmax, "none" three separate tables.
    tied_embeddings: Literal["all", "decoder", "none"] = "all"
    # "fix_norm": rows of all these tables are scaled to length 1 (arXiv:1910.05895).
    embedding_norm: Literal["none", "fix_norm"] = "none"
    embedding_scale: bool = True  # inputs times sqrt(d_model) (paper 3.4); GPT-2, BERT, T5: False
    # Normalise the sum of embeddings before the first layer of each stack: BERT, BART, BLOOM.
    input_norm: bool = False
    # The id of <mask>, whose vector is zeroed, as if by dropout; the others of a text are then
    # multiplied by 0.88 / (1 - its share of masks), to be as large as among 12 % of masks (ESM-2:
    # Lin et al. 2023, doi:10.1126/science.ade2574). None: <mask> has a vector like any other piece.
    # Only "encoder" reads it.
    token_dropout: int | None = number(None, 0, SIZE, of="architectures")
    # Only "encoder" reads these three; "elmo" and "decoder" read pooling. Token types, such as
    # sentence A and B, each with a vector that is added to embeddings (BERT's type_vocab_size, 2
    # there); 0: none.
    token_types: int = number(0, 0, SIZE, of="architectures", neutral=(0,))
    # How many source pieces, right after the four special ones, have no order, such as the tags of
    # src.codec="tagged": they are at position 0, and the others count from 1 without them (feature
    # invariance: Wu et al. 2021, arXiv:2005.10213, without its token type, as tags have vectors of
    # their own); 0: none. Only "encoder_decoder" reads it.
    unordered_pieces: int = number(0, 0, SIZE, of="architectures")
    # What a class is predicted from: the "first" position (BERT), the "mean" of all, or the "last"
    # (GPT), the only one that has seen the whole text under causal attention.
    pooling: Literal["first", "mean", "last"] = value("first", of="architectures")
    # Whether that first passes a linear map and tanh, as in BERT; in ViT it does not.
    pooler: bool = value(True, of="architectures", neutral=(True,))
    logits_scale: bool = False  # hidden states times 1 / sqrt(d_model) before a tied table: T5
    # Factor of the hidden states before the map to logits: Cohere's models.
    logits_factor: float = above(1.0, 0, 1e6, of="architectures", neutral=(1.0,))
    # Logits x become c tanh(x / c) (Gemma 2: arXiv:2408.00118). None: no cap.
    logits_softcap: float | None = above(None, 0, 1e6, of="architectures", neutral=(None,))
    # A number for each piece, added to its logit: Marian's models.
    logits_bias: bool = value(False, of="architectures", neutral=(False,))
    # Which layers of a stack share parameters, layer i with layer i + the length of its pattern:
    # "none"; "all" (ALBERT, arXiv:1909.11942); "universal": all, and the vectors of `positions` and
    # of the step are added before each layer, not once to the input (the Universal Transformer,
    # arXiv:1807.03819, without halting).
    layer_sharing: Literal["none", "all", "universal"] = "none"
    # Multi-token prediction: at each position a decoder also predicts the `future_tokens` pieces
    # after the next one, which adds to the loss (training.multi_token_weight); its own predictions
    # are made without these parts. "sequential": one layer after another, each of which reads the
    # output of the one before, at first that of the decoder, and the piece that follows, both
    # normalised and mapped together (DeepSeek-V3: arXiv:2412.19437, section 2.2); "parallel":
    # layers beside the last one, all with the same input (Gloeckle et al. 2024, arXiv:2404.19737).
    multi_token: Literal["none", "sequential", "parallel"] = "none"
    future_tokens: int = number(1, 1, 64, of="multi_tokens")
    # How parameters are initialised: "xavier" as in tensor2tensor, "t5" as in T5, "gpt2" as in
    # GPT-2, from N(0, 0.02), and smaller where deep stacks add up; "gpt2_zero" with zero there, so
    # that each layer starts as the identity (Bachlechner et al. 2020, arXiv:2003.04887).
    initializer: Literal["xavier", "t5", "gpt2", "gpt2_zero"] = value(
        "xavier", neutral=("xavier", "t5", "gpt2", "gpt2_zero")
    )
    # How initial values, learning rates and sums change with the size of a model, so that a rate
    # found for a small one suits a large one. "standard": not. "mup": with its width, beside that
    # of a base of d_model base_width with heads of the same size and all else in proportion (Yang
    # et al. 2022, arXiv:2203.03466). "completep": with its depth too, beside base_depth layers in
    # its deepest stack (Dey et al. 2025, arXiv:2505.01618). A model of the base's size is the same
    # with each.
    parametrization: Literal["standard", "mup", "completep"] = "standard"
    base_width: int = number(256, 1, SIZE, of="parametrizations")
    base_depth: int = number(2, 1, 1000, of="parametrizations")
    # Of matrix products; parameters are float32. float8: the linear maps of layers in e4m3, and
    # their slopes in e5m2, each array scaled by a power of two; bfloat16 for all else, and in
    # searches (Micikevicius et al. 2022, arXiv:2209.05433). For H100s and later.
    compute_dtype: Literal["float32", "bfloat16", "float8"] = value(
        "float32", neutral=("float32", "bfloat16", "float8")
    )
    # Low-rank adaptation (LoRA: Hu et al. 2021, arXiv:2106.09685): the maps named in lora_maps, in
    # every layer, become W + lora_alpha / lora_rank x A B, and only A and B are trained. None: off.
    # "embedding": the tables of pieces, and so the last map where it shares one.
    lora_rank: int | None = number(None, 1, SIZE)  # columns of A
    lora_alpha: float = above(8.0, 0, 1e6)
    lora_maps: tuple[
        Literal["query", "key", "value", "output", "gate", "up", "down", "embedding"], ...
    ] = ("query", "value")  # fmt: skip
    # Affects only speed and memory; parameters, checkpoints and results are the same.
    # scan: compiles one layer, runs slower
    layer_loop: Literal["unrolled", "scan"] = value(
        "unrolled", may_change=("unrolled", "scan"), neutral=("unrolled", "scan")
    )
    # Feed-forward layers process positions in this many chunks, recomputed in the backward pass.
    feed_forward_chunks: int = number(1, 1, 2**16, may_change=True, neutral=True)
    # How many groups of layers each stage of `mesh.stage` has, around which rows pass in a ring as
    # many times (the interleaved or circular schedule, arXiv:2104.04473): stages wait for less of
    # the time, and send as many times as often. 1: GPipe.
    stage_repeats: int = number(1, 1, SIZE, may_change=True, neutral=True)
    # What the backward pass recomputes to save memory: "none"; "dots": all of a layer but its
    # products with parameters; "full": all of a layer from its input.
    remat: Literal["none", "dots", "full"] = value(
        "none", may_change=("none", "dots", "full"), neutral=("none", "dots", "full")
    )

    def check_possible(self) -> None:
        check_model(self)

    def check_reads(self) -> None:
        check_model_reads(self)

    @property
    def stacks(self) -> tuple[str, ...]:
        """The names of its stacks of layers, in the order in which a text passes through them."""
        return ARCHITECTURES[self.architecture].stacks

    @property
    def layered(self) -> bool:
        """Whether its layers are the Transformer's, with a mixer and a feed-forward part."""
        return ARCHITECTURES[self.architecture].layered

    @property
    def crosses(self) -> bool:
        """Whether layers attend to the output of another stack, or to latents."""
        return ARCHITECTURES[self.architecture].crosses

    @property
    def one_sequence(self) -> bool:
        """Whether the input stands at the first positions of the sequence that is written."""
        return ARCHITECTURES[self.architecture].one_sequence

    @property
    def reads_by_cells(self) -> bool:
        """Whether the layers that read are recurrent ones without residual sub-layers."""
        return {*self.encoder_pattern} <= {*CELLS, *TWO_WAY}

    @property
    def widths(self) -> float:
        """How many times the base's its width is, if the parametrization asks."""
        return self.d_model / self.base_width if self._parametrized.widths else 1.0

    @property
    def depths(self) -> float:
        """How many times the base's its depth is, if the parametrization asks."""
        layers = max(getattr(self, f"num_{name}_layers") for name in self.stacks or ("encoder",))
        return layers / self.base_depth if self._parametrized.depths else 1.0

    @property
    def _parametrized(self) -> Parametrization:
        return PARAMETRIZATIONS[self.parametrization]

    @property
    def key_size(self) -> int:
        """d_k."""
        return self.head_dim or self.d_model // self.num_heads

    @property
    def value_size(self) -> int:
        """d_v."""
        return self.v_head_dim or self.key_size

    @property
    def scored_size(self) -> int:
        """The size whose inverse root scales scores."""
        return self.score_size or self.key_size

    @property
    def sinusoidal(self) -> bool:
        """Whether sines and cosines are added to embeddings."""
        return self.positions in POSITIONS and POSITIONS[self.positions].sinusoidal

    @property
    def kv_heads(self) -> int:
        """Key and value heads."""
        return self.num_kv_heads or self.num_heads

    @property
    def inner_width(self) -> int:
        """Channels of a layer that have a state."""
        return self.state_width or 2 * self.d_model

    @property
    def inner_heads(self) -> int:
        """Heads of a layer whose states decay."""
        return self.state_heads or self.num_heads

    @property
    def rotated_channels(self) -> int:
        """Channels of each head that rotary positions rotate."""
        return int(self.key_size * self.rope_fraction)

    def patches(self, window: int) -> int:
        """Return how many patches stem="series" makes of a window."""
        return (window - self.patch_length) // self.patch_stride + 1

    @property
    def position_limit(self) -> int | None:
        """How many positions the model knows; None: no limit."""
        places = not {*PLACES}.isdisjoint(self.encoder_pattern + self.decoder_pattern)
        limited = self.positions in POSITIONS and POSITIONS[self.positions].limited
        return self.max_positions if limited or places else None


@dataclass(frozen=True)
class SideConfig(Section):
    """How the text of one side becomes ids."""

    # "subwords": SentencePiece, see `tokenizer`; "wordpiece": words cut into the longest pieces, as
    # in BERT; "words": what spaces separate, which may be pieces made by another program;
    # "trees": linearised trees, "(NP XX )NP", whose pieces are the brackets of the training trees,
    # and words by their numbers; "repeats": all words of the training text, of which a sequence
    # that is repeated is written once, with its count: 3( a b ) for "a b a b a b";
    # "bytes" of UTF-8; "characters" of the training text; "residues": the letters of proteins, in
    # ESM's order; "nucleotides": those of DNA and RNA;
    # "classes": a line is one of the distinct lines of the training text;
    # "labels": a line is labels separated by spaces, all of which occur in the training text;
    # "values": a line is a number; "spans": a line is a span of the source side's line;
    # "smiles": molecules in that notation, by its atoms, bonds and other signs;
    # "notes": a line is a piece of music, steps of a MIDI pitch for each voice, "74,70,65,58";
    # "tagged": characters, after tags that are a piece each: TAG;TAG, a TAB and the characters;
    # "fen": a line is a chess position, in 77 characters (Ruoss et al. 2024, arXiv:2402.04494);
    # "board": the same as the side to move sees it: with Black to move, mirrored;
    # "moves": a line is one or more of the 1,968 chess moves, "e2e4", separated by spaces;
    # "huggingface": the tokenizer.json of an imported model.
    # What is not text becomes vectors. "patches": squares of pictures; "tubelets": squares of
    # several frames of a clip (ViViT: Arnab et al. 2021, arXiv:2103.15691); "latents": what a
    # variational autoencoder makes of pictures, as `transformer-jax pictures encode` writes it,
    # with unit variance in training; "series": rows of numbers; "log_mel": frames of sound, the log
    # power in each of several bands (Whisper: Radford et al. 2022, arXiv:2212.04356); "frames": the
    # same with other features, such as mel cepstra, computed elsewhere and standardised here;
    # "states": those of an agent, numbers that are standardised or one of a finite number, with the
    # return still to come; "actions": vectors of numbers from -1 to 1. Actions that are one of a
    # finite number are "labels"; "coordinates": chains of points in space.
    codec: Literal[
        "subwords", "wordpiece", "words", "repeats", "trees", "bytes", "characters", "residues",
        "nucleotides", "classes", "labels", "values", "spans", "smiles", "notes", "tagged", "fen",
        "board", "moves", "huggingface", "patches", "tubelets", "latents", "series", "log_mel",
        "frames", "states", "actions", "coordinates",
    ] = "subwords"  # fmt: skip


@dataclass(frozen=True)
class SourceConfig(SideConfig):
    """How the source side becomes ids, or vectors."""

    # patches, tubelets: side of a patch in pixels
    patch_size: int = number(4, 1, 2**12, of="codecs")
    tubelet_frames: int = number(2, 1, 2**12, of="codecs")  # tubelets: frames of each
    # patches, tubelets: what a model reads. "standardised": each channel has mean 0 and standard
    # deviation 1 in training; "symmetric": bytes become values from -1 to 1, as diffusion models
    # have them.
    pixel_scale: Literal["standardised", "symmetric"] = value("standardised", of="codecs")
    # log_mel, whose defaults are Whisper's: samples per second, which all sounds must have.
    sample_rate: int = number(16_000, 1000, 10**6, of="codecs")
    n_fft: int = number(400, 2, 2**16, of="codecs")  # samples per frame
    hop_length: int = number(160, 1, 2**16, of="codecs")  # samples from one frame to the next
    # bands, whose corners are evenly spaced on the mel scale
    num_mels: int = number(80, 1, 2**12, of="codecs")

    def check_reads(self) -> None:
        check_source_reads(self)


@dataclass(frozen=True)
class TokenizerConfig(Section):
    """SentencePiece, trained on the training split when a run first starts; or other pieces."""

    # BPE merges, or a unigram model
    algorithm: Literal["bpe", "unigram"] = value("bpe", of="codecs")
    # pieces, including the 4 reserved ones; per side if not joint
    vocab_size: int = number(32000, 5, SIZE, of="codecs")
    joint: bool = True  # one vocabulary for both languages, for any codec
    # spell unknown characters as bytes; needs 260 pieces of its own
    byte_fallback: bool = value(False, of="codecs")
    # share of the characters that get pieces
    character_coverage: float = number(1.0, 0.9, 1, of="codecs")
    # Applied to characters before anything else, by SentencePiece's rule of that name; "_cf" also
    # folds case, "identity" changes nothing.
    normalization: Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"] = value(
        "nmt_nfkc", of="codecs"
    )
    # Lines sampled to train a model, joint or not; SentencePiece skips those above 4,192 bytes.
    max_lines: int = number(5_000_000, 101, 10**9, of="codecs")
    # Pieces that are never split or merged where they occur in a text: tags ("<2de>"),
    # placeholders. They count towards vocab_size.
    symbols: tuple[str, ...] = value((), of="codecs")
    # subwords: how UNK is written in texts, such as "[UNK]", which wordpiece and words always use.
    unk_surface: str = value(" ⁇ ", of="codecs")
    # wordpiece, words: ignore case and, in wordpiece, accents, as BERT's uncased models do.
    lowercase: bool = value(False, of="codecs")
    # The file of an existing SentencePiece model, used instead of training one: its pieces, in
    # their order, after the reserved ones, and its normalisation. `symbols` are added to them.
    model: str | None = value(None, of="codecs")

    def check_possible(self) -> None:
        check_tokenizer(self)

    def check_reads(self) -> None:
        check_tokenizer_reads(self)


@dataclass(frozen=True)
class DataConfig(Section):
    """Where pairs come from and how they become batches."""

    # "text": files of lines, or of rows with columns; "tfds": a data set of TensorFlow Datasets.
    # Generated: "spelled_numbers", numbers in words; "number_chats", conversations in which numbers
    # are read, written, added and compared, for chat models; "listops", nested lists of digits
    # under operators, and their value (Long Range Arena, arXiv:2011.04006); "copying", random
    # letters on both sides. "chess": positions of games, each with a best "move", e2e4, its
    # "squares", e2 e4, or the "value", as target_language says, judged by material after the best
    # reply; in the extra `chess`. "moving_digits": clips of `num_digits` drawn digits, each of
    # which moves 2 pixels a frame in one of 8 directions and leaves the picture on one side to
    # enter on the other; target_language says what of the digit of the largest value is the label,
    # its "direction", its "value", or a "text" of all.
    # "standard_library": the source code of Python's own library, without its tests: 11 million
    # characters, for language models (objective.document="file").
    # "chains": random chains of points a distance of 1 apart, which avoid themselves.
    # "arrays": NumPy files, for example of pictures, with a label for each entry; with an array
    # `offsets` entries may differ in length. "folders": picture files, in one folder per label;
    # "clips": folders of frames, or animated pictures, in one folder per label. "series": time
    # series as comma-separated values: a header, a date in the first column, then numbers. "wavs":
    # sound files, and what they say.
    # "trajectories": what an agent saw, did and was rewarded for, step by step: NumPy files with
    # the arrays of D4RL and Gymnasium, `observations`, `actions`, `rewards`, `terminals` and
    # `timeouts`, or JSON lines of one trajectory each. "environment": generated by an agent that
    # acts at random in `environment`.
    source: Literal[
        "text", "tfds", "spelled_numbers", "number_chats", "listops", "copying", "chess",
        "moving_digits",
        "standard_library", "chains", "arrays", "folders", "clips", "series", "wavs",
        "trajectories", "environment",
    ] = "text"  # fmt: skip
    # text, arrays, folders, clips, series, wavs: the folder of the files; tfds: its data_dir (None:
    # its own default).
    directory: str | None = value(None, may_change=True)
    # tfds: the data set, "wmt14_translate/de-en"; environment="gymnasium": "CartPole-v1"
    name: str = ""
    # source_language and target_language name the two sides. text: file extensions; tfds: feature
    # names; spelled_numbers: num2words languages; arrays: names of arrays in each file.
    source_language: str = "en"
    target_language: str = "de"
    # text: "SIDE=COLUMN", the columns of the "source" and the "target" side in files that have
    # columns; a side that is not named here has the column source_language or target_language. If
    # "source" is named several times, it has all these columns, in this order, with TABs between.
    # "translation.de" is the value of "de" in "translation", and in .csv and .tsv without a header
    # columns have numbers, from 1. Line breaks become spaces if there are two sides. folders, wavs:
    # the same for tar files, where endings are columns and "json.label" is that of the .json file;
    # by default a picture and "cls", or "wav" and "txt".
    columns: tuple[str, ...] = value((), of="sources")
    # train, validation, test: the parts of each split, concatenated in order. text: "train" reads
    # train.en and train.de (or .gz of both). Or one of these, relative to directory: a file, by its
    # ending .jsonl (also .ndjson and .json, an object a line), .csv, .tsv, .parquet or .arrow
    # (.feather), any other being plain text, each but the last two also .gz or .zst; a folder that
    # Hugging Face `datasets` saved; all files in a folder, "code/"; all that match a pattern,
    # "web/**/*.txt". Other sources: arrays: train.npz; folders: train/LABEL/FILE, or WebDataset's
    # tar files by name or pattern, "shards/*.tar", as for wavs; clips: train/LABEL/CLIP/FRAME, or
    # train/LABEL/CLIP.gif (or .webp); series: "NAME[FIRST:LAST]", those
    # rows of NAME.csv, counted from 0 and without LAST, all of which are predicted in validation
    # and test, since the rows read may precede FIRST; wavs: a folder, or train.zip; tfds: split
    # names; generated data: only the split's own name. wavs: PART[GROUP:VALUE] is the files whose
    # group GROUP of label_pattern is VALUE, PART[GROUP:!VALUE] all others: train[speaker:!anna].
    # text, arrays: PART[FIRST:LAST:STEP] is those rows of a part, from 0 and without LAST as in
    # Python, negative ones from the end, and PART[!FIRST:LAST:STEP] all others: train[::20] to
    # validate, and train[!::20] to train.
    train: tuple[str, ...] = ("train",)
    validation: tuple[str, ...] = ("validation",)
    test: tuple[str, ...] = value(("test",), may_change=True)
    # shown when the data is missing: the command that fetches it
    how_to_get: str = value("", may_change=True)
    # "PART=TEXT": put before each source line of a part, with a space between. It names a task
    # ("translate English to German:", Raffel et al. 2020, arXiv:1910.10683), or consists of tags in
    # tokenizer.symbols: the target language (Johnson et al. 2017, arXiv:1611.04558), or that the
    # source is a back-translation (Caswell et al. 2019, arXiv:1906.06442).
    prefixes: tuple[str, ...] = ()
    # How much of an epoch comes from each part of `train`. By default each item occurs once. An
    # epoch always has as many items as all parts together; the items of an over- or undersampled
    # part take turns, epoch after epoch. weights: "PART=NUMBER", relative shares of all parts.
    weights: tuple[str, ...] = ()
    # Alternatively, shares proportional to the items of a part, counted up to mixing_limit (None:
    # all), to the power of 1 / temperature (Raffel et al. 2020, section 3.5.2): 1 is proportional,
    # larger is more even.
    mixing_temperature: float = number(1.0, 0.1, 1000)
    mixing_limit: int | None = number(None, 1, 2**40)
    # wavs: what is said in a file. A regular expression for whole file names, whose group "label"
    # is it; "": it follows the file name and a TAB on a line of PART.tsv.
    label_pattern: str = value("", of="sources")
    # wavs, arrays: "LABEL=TEXT", the text for a label, one entry for each
    label_texts: tuple[str, ...] = value((), of="sources")
    # Generated data: examples for train, validation and test.
    num_examples: tuple[int, ...] = (50_000, 500, 500)
    # spelled_numbers, number_chats: numbers are below this
    max_number: int = number(1_000_000_000, 1, 10**18)
    # spelled_numbers: in this share each digit becomes 0 with probability 1/2, as people like them.
    round_numbers: float = rate(0.0, of="sources")
    # listops, copying: the least and the most symbols of a text; chains: points. The defaults of
    # this and the next two are those of Long Range Arena.
    example_lengths: tuple[int, ...] = value((501, 1999), of="sources")
    # listops: levels of nesting, counting digits
    list_depth: int = number(10, 2, 100, of="sources")
    # listops: most arguments of a list, which has at least 2
    list_arguments: int = number(10, 2, 100, of="sources")
    # Where eval.py lets a model act, and source="environment" an agent at random. "shortest_paths":
    # from a random node of a random directed graph of 20 to the last one in at most 10 steps, at a
    # reward of -1 for each (arXiv:2106.01345, section 3); "gymnasium": the environment `name` of
    # that library (extra `gymnasium`). FILE.py:NAME is called without arguments, and returns an
    # object with Gymnasium's `reset` and `step`.
    environment: Literal["none", "shortest_paths", "gymnasium"] = value("none", of="sources")
    # shortest_paths: of the graph; source="environment": of the agent too
    environment_seed: int = number(0, 0, 2**32 - 1, of="sources")
    # trajectories, environment: the most steps; generated trajectories are cut there, and longer
    # ones in files are errors.
    max_steps: int = number(1000, 1, SIZE, of="sources")
    # trajectories, environment: the share of trajectories, those with the highest returns, that
    # training reads; imitation of the best tenth is a baseline in the paper (section 5.1).
    best_share: float = above(1.0, 0, 1, of="sources")

    # folders, clips: rows and columns that each picture is resized and centre-cropped to; ():
    # unchanged. moving_digits: those of a frame; (): 32 x 32.
    image_size: tuple[int, ...] = value((), of="sources")
    # clips: frames that are read of each clip, evenly spaced; moving_digits: frames of a clip
    num_frames: int = number(8, 1, 2**12, of="sources")
    num_digits: int = number(1, 1, 5, of="sources")  # moving_digits: in a clip, of different values
    # Random changes to pictures in training, in this order: "crop", shifted by up to crop_padding
    # pixels; "flip", half of them mirrored left to right; "cutout", a square of cutout_size pixels
    # removed (arXiv:1708.04552). And to frames of sound (SpecAugment: Park et al. 2019,
    # arXiv:1904.08779), once for each time the word is listed: "frequency_mask", up to
    # frequency_mask_size adjacent bands become the sound's mean; "time_mask", up to time_mask_size
    # adjacent frames do, at most time_mask_share of all. And texts beside those of training:
    # "transpose", each piece of music moved by up to transpose_range semitones down and up, as far
    # as each voice stays in its range of the training text; "random_smiles", smiles_variants other
    # spellings of each source (Bjerrum 2017, arXiv:1703.07076), which the extra `smiles` writes.
    augment: tuple[
        Literal[
            "crop", "flip", "cutout", "frequency_mask", "time_mask", "transpose", "random_smiles"
        ],
        ...,
    ] = ()
    crop_padding: int = number(4, 1, 2**12, of="augmentations")
    cutout_size: int = number(8, 1, 2**12, of="augmentations")
    frequency_mask_size: int = number(27, 1, 2**12, of="augmentations")
    time_mask_size: int = number(100, 1, 2**16, of="augmentations")
    time_mask_share: float = above(1.0, 0, 1, of="augmentations")
    transpose_range: int = number(6, 1, 127, of="augmentations")
    smiles_variants: int = number(4, 1, 1000, of="augmentations")

    # A directory with what a teacher predicts for the training data, which the command
    # `transformer-jax teach` writes: its likeliest pieces wherever one is predicted. Training then
    # imitates it, see training.distillation_weight; validation measures the plain loss.
    teacher: str | None = None
    # BPE-dropout (Provilkov et al. 2020, arXiv:1910.13267, who use 0.1): the share of merges
    # skipped at random when training pairs are segmented; 0: none.
    subword_dropout: float = rate(0.0)
    # with subword_dropout: segmentations of each pair in an epoch
    segmentations: int = number(8, 1, 1000)

    # most pieces, with EOS, on a side of a training pair; longer are dropped
    max_length: int = number(256, 2, SIZE)
    # training pairs more uneven than this, in pieces, are dropped
    max_length_ratio: float = number(9.0, 1, SIZE)
    # translate: sources longer than max_length. "drop": training drops such pairs, translation
    # splits them; "cut": both truncate them, for texts whose class is written. In prefix_lm both
    # sides share max_length, so a source is cut at objective.window.
    long_sources: Literal["drop", "cut"] = "drop"
    # most positions on each side of a global batch, with padding
    tokens_per_batch: int = number(25_000, 1, 2**28)
    # "bucket": one pair a row, with pairs of similar length; "pack": several pairs a row, which do
    # not see one another.
    batching: Literal["bucket", "pack"] = "bucket"
    # bucket: static shapes, chosen from the data for least padding
    num_buckets: int = number(16, 1, 1000)
    # rows of a batch are a multiple of this; the mesh must divide it
    rows_divisible_by: int = number(8, 1, SIZE)

    def check_possible(self) -> None:
        check_data(self)

    def check_reads(self) -> None:
        check_data_reads(self)
        check_shares_read(self)

    def alone(self, split: str, part: str) -> "DataConfig":
        """Return the config of one part of a split, without fields that concern several."""
        return dataclasses.replace(self.only(split, (part,)), prefixes=())

    def only(self, split: str, parts: tuple[str, ...]) -> "DataConfig":
        """Return the config of some parts of a split, without their shares."""
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
        """Whether an epoch may have the items of some parts more or less often than once."""
        plain = self.mixing_temperature == 1 and self.mixing_limit is None
        return bool(self.weights) or not plain


@dataclass(frozen=True)
class ObjectiveConfig(Section):
    """What is predicted from what."""

    # "translate": the target side, piece by piece, from the source side.
    # "language_model": each piece of a text from those before it; the text is the target side, and
    # there is no source: with data.source="text" only the files PART.TARGET_LANGUAGE.
    # "prefix_lm": the target side from the source side, which precedes it in one sequence.
    # "chat": what the assistant says in conversations (supervised fine-tuning). With
    # data.source="text" a conversation is a row of a file with columns: "messages", each with a
    # "role" and a "content", and perhaps "tools"; or "prompt" and "completion"; data.columns names
    # other columns, "target" for messages, or "source" and "target" for prompts and completions.
    # "prefer": which of two answers is better; the better one is to become likelier, relative to
    # the model before this training, init.source. A row has "prompt", "chosen" and "rejected", or
    # "prompt", "completion" and "label", true if it is desirable; and "reference", see
    # `transformer-jax score --preferences`.
    # "reward": which of two answers is better, as the difference of a number for each: a reward
    # model (Ouyang et al. 2022, arXiv:2203.02155, section 3.5). Rows as for prefer, with pairs.
    # "reinforce": answers that earn a reward are to become likelier: for each prompt the model
    # writes several, which are compared with one another (GRPO: Shao et al. 2024,
    # arXiv:2402.03300). Conversations as for chat; their last answers are what is wanted.
    # "text_prefix_lm": the rest of each window of a text from its first part, a prefix read in both
    # directions; the split point is drawn anew each epoch. Texts as for language_model.
    # "permutation_lm": some pieces of a text, in a random order, each from all others but those
    # after it in that order (XLNet); texts as for language_model.
    # "bidirectional_lm": each piece from those before it, and from those after it (ELMo); texts
    # likewise.
    # "masked_lm": masked pieces of a text from all others (BERT); texts likewise.
    # "span_corruption": the missing spans of a text from what is left of it (T5).
    # "denoising": a text from a noisy version of it (BART); texts of both likewise.
    # "text_continuation": the rest of each window from its first part, as in text_prefix_lm.
    # "masked_lm_nsp": masked pieces of two segments of a text, and whether the second follows the
    # first or is from elsewhere (BERT 3.1); a line is a sentence, an empty one ends a document.
    # "tag": a label for each word, both separated by spaces: parts of speech, names.
    # "answer": the span of a text that answers a question (SQuAD). A source line is a question, a
    # TAB and the text; a target line how many characters precede the answer, a TAB and the answer.
    # "regress": the number on the target line from the source side.
    # "classify": the target line, one of few, from the source side. With tgt.codec="labels" or
    # "moves" it may name several classes, all of them right: the target is their distribution, in
    # which one given twice counts twice.
    # "classify_pairs": the same for two texts, separated by a TAB on the source line, as in natural
    # language inference.
    # "policy": the best moves in a chess position, as a distribution like that of several classes,
    # predicted by attention between the squares that a move leaves and goes to (Lc0's policy head).
    # "forecast": the next values of a time series, for each channel by itself; the series is the
    # target side, like the text of language_model.
    # "ctc": the target side, whose pieces come in the order of the source positions: each position
    # predicts a piece or none, and all ways to write the line are summed (Graves et al. 2006,
    # https://doi.org/10.1145/1143844.1143891). It is for sound. "ctc_attention": the target side as
    # in translate, and by the encoder as in ctc; the loss is (1 - ctc_weight) x the one and
    # ctc_weight x the other (Watanabe et al. 2017, https://doi.org/10.1109/JSTSP.2017.2763455).
    # "reconstruct": pictures, the target side, cut into src.patch_size patches, from their codes.
    # "diffusion": what noise hides in a picture, the source side, from the picture with noise, the
    # time, which says how much there is, and the target side, a class or a text that says what it
    # shows (Ho et al. 2020, arXiv:2006.11239; rectified flow: Liu et al. 2022, arXiv:2209.03003).
    # "decide": the action at each step of an agent, the target side, from the returns still to come
    # and the states so far, the source side, and the actions before it; to act, a return is asked
    # for (Chen et al. 2021, arXiv:2106.01345). "clone": the same without returns (behaviour
    # cloning).
    # "distances": those of all pairs of points of a chain, the target side, from some of them.
    name: Literal[
        "translate", "language_model", "prefix_lm", "chat", "prefer", "reward",
        "reinforce", "text_prefix_lm", "permutation_lm", "bidirectional_lm", "masked_lm",
        "masked_lm_nsp", "span_corruption",
        "denoising", "text_continuation", "tag", "answer", "regress", "classify", "classify_pairs",
        "forecast", "ctc", "ctc_attention", "reconstruct", "policy", "diffusion", "decide",
        "clone", "distances",
    ] = "translate"  # fmt: skip
    # For all but translate, ctc, ctc_attention and reconstruct: the most pieces read at a time.
    # Longer documents are cut into consecutive windows. Each but the first begins with the last
    # piece of the one before; in masked_lm each begins with BOS; in span_corruption and denoising
    # each ends with EOS, and is as long as it can be with neither side over the limit; in tag and
    # answer they consist of whole words. classify, classify_pairs and regress truncate. In forecast
    # a window begins at every row, in decide and clone at every step, and later ones are shorter.
    # In prefix_lm with data.long_sources="cut", the most pieces of a source, whatever its target,
    # whose length it would otherwise reveal.
    window: int = number(256, 1, SIZE, of="objectives")
    # What a document is, for objectives without a source side except masked_lm_nsp. "line": each
    # line, ended by EOS. "file": each part of the split, as it is on the disk, line breaks
    # included. "joined" (all of these but permutation_lm and bidirectional_lm): all lines
    # concatenated, with EOS between them, followed by BOS in language_model and text_prefix_lm.
    document: Literal["line", "file", "joined"] = value("line", of="objectives")
    # forecast: rows that are predicted after each window
    horizon: int = number(96, 1, SIZE, of="objectives")
    # forecast: whether each channel of a series is an example of its own, or all are read and
    # predicted together, as stem="variates" needs it
    channels: Literal["apart", "together"] = value("apart", of="objectives")
    # language_model: the share of training windows whose middle, the part between two random
    # characters, comes after the rest, so that the model learns to fill gaps; a quarter to nine
    # tenths leave the loss of other texts as it is (Bavarian et al. 2022, arXiv:2207.14255). Scores
    # are of texts as they are.
    fim_rate: float = number(0.0, 0, 1, of="objectives")
    # the share of these whose suffix comes first, with the prefix right before the middle
    fim_spm_rate: float = number(0.5, 0, 1, of="objectives")
    # chat: how a conversation becomes one text. "chatml", "llama3" and "zephyr" are known; the
    # first two add the named pieces that they need to a tokenizer that is trained, and "zephyr"
    # ends turns with EOS. "source": the template of init.source, of the work directory or of the
    # Hugging Face directory. Or a file with a template of Jinja, in the form of `transformers`.
    chat_template: str = value("chatml", of="objectives")
    # ctc_attention: the weight of CTC in the loss; decoding.ctc_weight is its weight in a search.
    ctc_weight: float = rate(0.3, of="objectives")
    # prefer: "dpo" (Rafailov et al. 2023, arXiv:2305.18290); "ipo", which asks for a fixed margin
    # (arXiv:2310.12036); "kto", for rows with a label (arXiv:2402.01306)
    preference_loss: Literal["dpo", "ipo", "kto"] = value("dpo", of="objectives")
    # prefer: how strongly the model is held to the reference: beta
    preference_beta: float = above(0.1, 0, 100, of="objectives")
    # reinforce: what an answer earns. "exact_match": 1 if it is the one wanted, up to spaces at its
    # ends; "contains": 1 if it has that one in it. A part of your own is a function of the messages
    # before the answer, dicts with "role" and "content", of the answer, and of the one wanted, that
    # returns a number, always the same one.
    reward: Literal["exact_match", "contains"] = value("exact_match", of="objectives")
    # the work directory of a reward model, which gives the reward instead
    reward_model: str | None = value(None, of="objectives")
    group_size: int = number(8, 2, 1024, of="objectives")  # answers that are compared
    # the most pieces of an answer, with the one that ends it; longer ones are cut off
    answer_length: int = number(64, 1, SIZE, of="objectives")
    # How answers count. "grpo": each the same, by the mean over its pieces, and rewards are divided
    # by their standard deviation in the group; so wrong answers had better be long. "dr_grpo": by
    # the sum, and they are not (Liu et al. 2025, arXiv:2503.20783). "dapo": each piece of a batch
    # the same (Yu et al. 2025, arXiv:2503.14476).
    policy_loss: Literal["grpo", "dr_grpo", "dapo"] = value("grpo", of="objectives")
    # How much less likely an update may make a piece than when it was written, as a share of its
    # probability, before its gradient is 0;
    clip_below: float = rate(0.2, of="objectives")
    # and how much more likely.
    clip_above: float = number(0.2, 0, 1000, of="objectives")
    # Weight of the divergence (KL) from the model before this training, init.source, a piece.
    kl_weight: float = number(0.0, 0, 100, of="objectives")
    # updates that are made with the answers to one set of prompts, before the model writes others
    rollout_updates: int = number(1, 1, 1000, of="objectives")
    # permutation_lm: one piece in this many is predicted, K in the paper (section 2.3).
    partial_prediction: int = number(6, 1, 1000, of="objectives")
    # masked_lm, masked_lm_nsp: the share of pieces that are predicted, at least one per window. Of
    # ten, eight are read as MASK, one as a random piece, one unchanged (Devlin et al. 2019).
    mask_rate: float = above(0.15, 0, 0.9, of="objectives")
    # for the same: a word is masked whole or not at all
    whole_words: bool = value(False, of="objectives")
    # span_corruption: the share of pieces removed, in spans, each of which is read as one sentinel
    # (Raffel et al. 2020, arXiv:1910.10683, section 3.1.4).
    noise_density: float = above(0.15, 0, 0.9, of="objectives")
    # span_corruption: named pieces, from <extra_id_0> on
    sentinels: int = number(100, 1, 2**15, of="objectives")
    # Pieces per span: in span_corruption the mean; in denoising Poisson's, so some are empty.
    mean_span_length: float = number(3.0, 1, 1000, of="objectives")
    # denoising: kinds of noise (Lewis et al. 2020, arXiv:1910.13461, section 2.2). The share of
    # pieces in spans, each of which is read as one MASK; an empty span inserts a MASK.
    text_infilling_rate: float = rate(0.3, of="objectives")
    # share of the other pieces that are read as MASK
    token_masking_rate: float = rate(0.0, of="objectives")
    # share of those that remain that are removed
    token_deletion_rate: float = rate(0.0, of="objectives")
    # The share of a window's sentences that change places; one ends with a line or a full stop.
    sentence_permutation_rate: float = number(1.0, 0, 1, of="objectives")
    # share of windows rotated to begin at a random piece
    document_rotation_rate: float = number(0.0, 0, 1, of="objectives")
    # diffusion: the picture x and the noise e that are mixed at a time t from 0 to 1.
    # "rectified_flow": (1 - t) x + t e; "linear": sqrt(a) x + sqrt(1 - a) e, with a the product of
    # 1 - beta over 1000 t steps, where beta rises linearly from 0.0001 to 0.02 (DDPM).
    noise_schedule: Literal["rectified_flow", "linear"] = value("rectified_flow", of="objectives")
    # What is predicted of the mixture: "velocity", its slope, e - x in rectified_flow and
    # sqrt(a) e - sqrt(1 - a) x in linear (Salimans and Ho 2022, arXiv:2202.00512); "epsilon", the
    # noise; or "sample", the picture.
    prediction: Literal["velocity", "epsilon", "sample"] = value("velocity", of="objectives")
    # How the times of training are drawn: "logit_normal", the sigmoid of a normal number, most
    # often near 1/2 (arXiv:2403.03206); or "uniform".
    times: Literal["logit_normal", "uniform"] = value("logit_normal", of="objectives")
    # The share of pictures trained without the target side, so that drawing can be guided by the
    # difference that it makes (Ho and Salimans 2022, arXiv:2207.12598).
    condition_dropout: float = rate(0.1, of="objectives")
    # distances: the share of the pairs whose distance is read, drawn anew each epoch
    known_share: float = rate(0.15, of="objectives")
    # distances: the standard deviation of the error with which one is read, in the data's unit
    distance_noise: float = number(0.1, 0, 1e6, of="objectives")
    # "PART=NAME": train a part of data.train on another objective than `name`, which is what the
    # model is for and what validation measures (multi-task training, Raffel et al. 2020, section
    # 3.5.2). With translate: span_corruption or denoising; with prefix_lm: language_model; with
    # span_corruption and denoising: the other one. Their texts are of the target language.
    parts: tuple[str, ...] = ()
    # If `name` is your own part: the built-in objective that it resembles in what it reads, in the
    # architecture it trains, and in how that is validated and used.
    like: str | None = None

    def check_possible(self) -> None:
        check_objective(self)

    def check_reads(self) -> None:
        check_objective_reads(self)

    def alone(self, name: str) -> "ObjectiveConfig":
        """Return the config of one of several objectives, without fields it does not read."""
        kind = self.kind if name == self.name else name
        unread: dict[str, Any] = {
            field: ObjectiveConfig.__dataclass_fields__[field].default
            for field, words in readers(OBJECTIVES).items()
            if kind not in words
        }
        like = self.like if name == self.name else None
        return dataclasses.replace(self, **unread, name=cast(Any, name), like=like, parts=())

    def of_parts(self, train: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        """Return the parts of `train` for each objective, by its name, this one's first."""
        named = dict(entry.partition("=")[::2] for entry in self.parts)
        names = [named.get(part, self.name) for part in train]
        return {
            name: tuple(part for part, other in zip(train, names, strict=True) if other == name)
            for name in (self.name, *sorted({*names} - {self.name}))
        }

    @property
    def prompts_begin(self) -> bool:
        """Whether a prompt is the beginning of a document, with the BOS that documents begin with.

        Where documents are files, nearly every training window begins in the middle of one, and so
        does a prompt: with BOS, which training hardly ever sees there, predictions are worse.
        """
        return self.document != "file"

    @property
    def kind(self) -> str:
        """The built-in objective that it is or resembles."""
        return self.like or self.name

    @property
    def record(self) -> Objective:
        """What is known about that one."""
        return OBJECTIVES[self.kind]

    @property
    def kinds(self) -> frozenset[str]:
        """Its kind, and the other objectives of parts of the training text."""
        return frozenset([self.kind, *(entry.partition("=")[2] for entry in self.parts)])

    @property
    def one_sided(self) -> bool:
        """Whether there is only a target side."""
        return self.record.one_sided

    @property
    def windowed(self) -> bool:
        """Whether `window` is the most that is read at a time."""
        return self.record.windowed

    def cut_at(self, data: DataConfig) -> int | None:
        """The most pieces of a source, EOS included, where long ones are truncated."""
        if data.long_sources == "drop":
            return None
        return self.window if self.record.one_row else data.max_length

    @property
    def lengths(self) -> tuple[int, int] | None:
        """The lengths of both sides of every example, where all are the same."""
        return (self.window, self.horizon) if self.record.forecasts else None

    @property
    def masked(self) -> bool:
        """Whether pieces are masked, and predicted at their positions."""
        return self.record.masks

    @property
    def labels(self) -> bool:
        """Whether the target side is not text, but says something about one."""
        return self.record.labels is not None

    @property
    def translates(self) -> bool:
        """Whether the target side is text written from the source side."""
        return self.record.translates

    @property
    def symbols(self) -> tuple[str, ...]:
        """The named pieces that it writes into texts."""
        removed = any("sentinels" in OBJECTIVES[kind].reads for kind in self.kinds)
        sentinels = self.sentinels * removed
        named = (OBJECTIVES[kind].symbols for kind in sorted(self.kinds))
        of_gaps = FIM_PIECES if self.fim_rate else ()
        template = CHAT_TEMPLATES.get(self.chat_template) if self.record.chats else None
        return (
            *(SENTINEL.format(i) for i in range(sentinels)), *chain.from_iterable(named), *of_gaps,
            *(template.symbols if template else ()),
        )  # fmt: skip

    @property
    def measured(self) -> "ObjectiveConfig":
        """The objective of scores, for which texts are left as they are."""
        return dataclasses.replace(self, fim_rate=0.0, fim_spm_rate=0.5) if self.fim_rate else self


@dataclass(frozen=True)
class OptimizerConfig(Section):
    """The optimizer and the learning rate. The first update is step 1."""

    # "adam": Kingma and Ba 2015, arXiv:1412.6980; with weight_decay it is AdamW.
    # "muon": the kernels of linear maps are updated by their orthogonalised momentum, so that no
    # direction dominates (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/); Adam
    # updates the rest: embeddings, biases, norms, and whatever is not a linear map of a layer's
    # input, such as a cell's map of its state.
    # "sgd": stochastic gradient descent with momentum, whose peaks are about 0.1 to 1.
    # "lion": the sign of a mean of gradients, in half of Adam's memory; a 3 to 10 times lower peak
    # and a higher weight_decay than Adam's suit it (Chen et al. 2023, arXiv:2302.06675).
    # "adafactor": Adam without the mean, and with one number for each row and each column of a
    # matrix in place of the squares, so almost without memory. Updates are relative to the size of
    # parameters, and the peak about 0.01 (Shazeer and Stern 2018, arXiv:1804.04235).
    # "ademamix": Adam with another, slower mean of gradients (Pagliardini et al. 2024,
    # arXiv:2409.03137).
    # "schedule_free": AdamW without momentum, whose steps are averaged, so that the rate need not
    # decay; validation and saved models have the mean, and schedule="constant" suits it (Defazio et
    # al. 2024, arXiv:2405.15682).
    # "shampoo": the mean gradient of a kernel, scaled on both sides by the inverse fourth root of
    # the mean of G G^T and of G^T G, with the norm of Adam's update (Gupta et al. 2018,
    # arXiv:1802.09568; Anil et al. 2020, arXiv:2002.09018). Adam updates the rest, as with Muon.
    # "soap": Adam in the eigenvectors of these two matrices (Vyas et al. 2024, arXiv:2409.11321);
    # its first update only finds them. Adam updates the rest.
    algorithm: Literal[
        "adam", "muon", "sgd", "lion", "adafactor", "ademamix", "schedule_free", "shampoo", "soap"
    ] = "adam"
    # muon, sgd: decay of the sum of past gradients
    momentum: float = rate(0.95, of="optimizers")
    # muon: root mean square of a kernel's update, in units of the learning rate; 0.2 is about that
    # of Adam's (Liu et al. 2025, arXiv:2502.16982).
    update_rms: float = above(0.2, 0, 100, of="optimizers")
    # muon: the polynomials that orthogonalise. "jordan": four times the same; singular values end
    # between 0.7 and 1.2. "polar_express": five, each the best after those before it; singular
    # values end nearer 1, from a smaller start (Amsel et al. 2025, arXiv:2505.16932).
    orthogonalization: Literal["jordan", "polar_express"] = value("jordan", of="optimizers")
    # All but sgd and adafactor: decay of the mean of past gradients. lion: its weight in an update;
    # schedule_free: that of the mean of the steps, in the place where gradients are taken.
    b1: float = rate(0.9, of="optimizers")
    # Decay of the mean of their squares, or of their products with one another (shampoo, soap);
    # lion: of the gradients' mean, for which its authors have 0.99.
    b2: float = rate(0.98, of="optimizers")
    # added to the root of the mean of squares
    epsilon: float = above(1e-9, 0, 1, of="optimizers")
    b3: float = rate(0.9999, of="optimizers")  # ademamix: decay of the slower mean
    # ademamix: its weight beside the usual mean
    slow_weight: float = number(5.0, 0, 1000, of="optimizers")
    # ademamix: updates over which b3 and slow_weight rise to these values; the paper has as many as
    # training.steps
    slow_warmup: int = number(100_000, 1, STEPS, of="optimizers")
    # shampoo, soap: updates after which roots or eigenvectors are computed again
    precondition_every: int = number(10, 1, STEPS, of="optimizers")
    # "paper": learning_rate x d_model^-0.5 x min(step^-0.5, step x warmup_steps^-1.5).
    # The others rise linearly to learning_rate in warmup_steps, then: "inverse_sqrt" decays with
    # step^-0.5; "linear" and "cosine" decay towards 0 after training.steps; "constant" stays.
    # "wsd": warm-up, stable, decay: stays, and decays linearly towards 0 in the last decay_share of
    # the steps, so that a run can go on from before the decay (Hu et al. 2024, arXiv:2404.06395;
    # Haegele et al. 2024, arXiv:2405.18392). "one_cycle" rises from learning_rate / 25 in
    # warmup_steps and falls to nearly 0, each as half a cosine (Smith and Topin 2017,
    # arXiv:1708.07120).
    schedule: Literal[
        "paper", "inverse_sqrt", "linear", "cosine", "constant", "wsd", "one_cycle"
    ] = "paper"
    decay_share: float = above(0.2, 0, 1, of="schedules")  # wsd
    learning_rate: float = above(1.0, 0, 100)  # a factor for "paper", else the peak
    warmup_steps: int = number(4000, 1, STEPS)  # updates over which the learning rate rises
    # largest norm of the gradient; None: no clipping
    clip_norm: float | None = above(None, 0, 10**9, ", or None for no clipping")
    # The share of kernels and embeddings, times the learning rate, that an update subtracts
    # (Loshchilov and Hutter 2019, arXiv:1711.05101); other parameters do not decay. 0: none.
    weight_decay: float = number(0.0, 0, 10)
    # Patterns (regular expressions for whole names, "encoder/.*") of parameters that keep their
    # initial values; the log of a start lists all names.
    frozen: tuple[str, ...] = ()
    # With model.lora_rank: parameters trained besides A and B: ".*/bias" (BitFit: Ben Zaken et al.
    # 2021, arXiv:2106.10199), ".*norm/.*", or a new head.
    unfrozen: tuple[str, ...] = ()
    # "PATTERN=FACTOR": scales the learning rate of parameters: ".*embedding/table=0.1". Factors of
    # several patterns multiply.
    rate_factors: tuple[str, ...] = ()
    # Each layer's learning rate is this many times that of the layer above it, lowest for the
    # embeddings (Clark et al. 2020, arXiv:2003.10555). 1: the same for all.
    layer_decay: float = above(1.0, 0, 1)

    def check_possible(self) -> None:
        check_optimizer(self)

    def check_reads(self) -> None:
        check_optimizer_read(self)

    @property
    def record(self) -> Optimizer:
        """What is known about the algorithm."""
        return optimizer_record(self.algorithm)

    @property
    def factors(self) -> list[tuple[str, float]]:
        """Patterns of `rate_factors`, each with its number.

        Raises:
          UserError: if an entry is not of that form.
        """
        pairs = []
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
            pairs.append((pattern, factor))
        return pairs


@dataclass(frozen=True)
class InitConfig(Section):
    """Where parameters start, if not at random: fine-tuning."""

    # A work directory, alone or with @CHECKPOINT (best, last, a step, average:N), or a Hugging Face
    # one: parameters of the same names are copied from it at the first start, not needed later.
    source: str | None = None
    # More of these, searched in order: what the earlier ones lack is taken from the next, such as a
    # decoder beside an encoder.
    also: tuple[str, ...] = ()
    # Patterns of the parameters that are taken, by their names here; (): only the tokenizer is.
    take: tuple[str, ...] = (".*",)
    # "THEIRS=OURS": name prefixes there and here: "encoder/=decoder/". If several match, the first
    # whose name here is not taken applies: both models of `also` may have "positions/". Parameters
    # with a rename precede those of their source that already have that name.
    rename: tuple[str, ...] = ()
    # Use its tokenizer. False: train one on the data here; embeddings then follow their pieces, and
    # those of new pieces start near the mean of all.
    tokenizer: bool = True

    def check_possible(self) -> None:
        check_init(self)

    def check_reads(self) -> None:
        check_init_reads(self)


@dataclass(frozen=True)
class TrainingConfig(Section):
    """How long to train, and on which loss."""

    steps: int = number(100_000, 1, STEPS, may_change=True)  # updates
    # Updates after each of which the schedule of the learning rate begins again, with its warm-up,
    # and ends at the next or at `steps`: to re-warm a run that continues (Gupta et al. 2023,
    # arXiv:2308.04014), set this to the number of updates it has made, and steps to more.
    restarts: tuple[int, ...] = value((), may_change=True)
    # Stop after this update, and save; the same command without it, or with a later one, goes on
    # as if the run had not stopped. The learning rate follows `steps`. None: do not.
    pause: int | None = number(None, 1, STEPS, ", or None for no pause", may_change=True)
    # stop after so many minutes of training, resumed ones included
    max_minutes: float | None = above(None, 0, 10**7, ", or None for no limit", may_change=True)
    label_smoothing: float = rate(0.1)  # epsilon (paper 5.4)
    # "tensor2tensor": epsilon over the V-1 other pieces, as the paper's code did;
    # "uniform": epsilon over all V, as torch and optax do.
    smoothing: Literal["tensor2tensor", "uniform"] = "tensor2tensor"
    # R-Drop's alpha: every row passes twice, and the two distributions are pulled together (Liang
    # et al. 2021, arXiv:2106.14448, who use 5 for translation); None: a row passes once.
    r_drop: float | None = above(None, 0, 1000, ", or None for a single pass")
    # With data.teacher: the loss is 1 - distillation_weight times the cross-entropy of the data's
    # pieces, plus distillation_weight T^2 KL(teacher, model), both with logits divided by the
    # temperature T (Hinton et al. 2015, arXiv:1503.02531).
    distillation_weight: float = number(0.5, 0, 1)
    # T; above 1, more of the teacher's unlikely pieces count
    distillation_temperature: float = above(1.0, 0, 100)
    # With model.multi_token: the weight of the mean of its losses beside the usual one. DeepSeek-V3
    # has 0.3, later 0.1; with as much as future_tokens all pieces count alike.
    multi_token_weight: float = above(0.3, 0, 1000)
    # Validate, keep and translate with a moving average of the parameters, of this decay (0.999);
    # less in the first steps: (1 + step) / (10 + step). None: with the parameters themselves.
    ema_decay: float | None = rate(None)
    # slices that a global batch is computed in, to save memory
    accumulation_steps: int = number(1, 1, SIZE)
    # Measure the noise scale of gradients by how those of the slices differ, so accumulation_steps
    # must be above 1: about the number of target tokens in a batch beyond which more of them save
    # few updates (McCandlish et al. 2018, arXiv:1812.06162). metrics.jsonl has it, and `plan
    # --noise-scale` says what it means for a batch.
    noise_scale: bool = False
    # Updates in one call of the compiled program. A call costs some milliseconds, which is more
    # than an accelerator takes for an update of a small model. All batches need one shape, by
    # data.batching="pack" or data.num_buckets=1.
    steps_per_execution: int = number(1, 1, STEPS, may_change=True)
    # Stop after this many validations without a new best; ties go to the lower loss.
    early_stopping: int | None = number(None, 1, STEPS, may_change=True)
    log_every: int = number(50, 1, STEPS, may_change=True)  # steps between rows of metrics.jsonl
    # Who is sent the rows of metrics.jsonl, besides: "tensorboard" writes tensorboard/; "wandb" is
    # Weights & Biases, "mlflow" MLflow, set up by their own environment variables, and also sent
    # the config and the report. A resumed run goes on in the same run there.
    trackers: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = value(
        ("tensorboard",), may_change=("tensorboard", "wandb", "mlflow")
    )
    # stop (code 70) after this many non-finite updates in a row
    max_bad_steps: int = number(10, 1, STEPS, may_change=True)
    # Report a step whose loss per token exceeds this many times the running mean of the steps
    # before it (decay 0.9), unless that is negative, as for densities; None: never.
    loss_spike: float | None = above(2.0, 1, 10**6, ", or None for no reports", may_change=True)

    @property
    def passes(self) -> int:
        """Passes of a row through the model in one step."""
        return 1 if self.r_drop is None else 2


@dataclass(frozen=True)
class CheckpointConfig(Section):
    """What is kept: the last `keep_last` checkpoints and the best one."""

    every_steps: int = number(1000, 1, STEPS, may_change=True)  # steps between saves
    # how many of the last checkpoints to keep, besides the best
    keep_last: int = number(5, 1, STEPS, may_change=True)
    # of the validation split; "reward": of greedy answers, with objective.name="reinforce"
    best_by: Literal["bleu", "loss", "accuracy", "wer", "reward"] = "bleu"
    # If a save fails, for example because the disk is full: "continue" and try again at the next
    # one, or "stop" (code 74). Earlier checkpoints stay in either case.
    on_failed_save: Literal["continue", "stop"] = value("continue", may_change=("continue", "stop"))


@dataclass(frozen=True)
class EvaluationConfig(Section):
    """Validation during training, and the scoring protocol."""

    # steps between validations; a multiple of checkpoint.every_steps
    every_steps: int = number(1000, 1, STEPS, may_change=True)
    # most validation sentences decoded greedily, spread; 0: only loss
    bleu_sentences: int = number(1000, 0, 10**9)
    # what eval.py scores by default: best, last, STEP or average:N
    checkpoint: str = value("best", may_change=True)
    # How sacrebleu tokenises for BLEU; "13a" is its default, for languages with spaces between
    # words; "none" is for tokenised text, "char" and "spm" for any language. "spm": sacrebleu's
    # SentencePiece model of FLORES-101, which it downloads.
    bleu_tokenize: Literal["13a", "none", "intl", "char", "zh", "ja-mecab", "ko-mecab", "spm"] = (
        "13a"
    )
    lowercase: bool = False  # score case-insensitively; TER always does, like sacrebleu
    # What eval.py computes for translations, in this order; validation uses BLEU, or WER, the word
    # error rate, for what is said in sound. CER: of characters. "labelled_F1": of the brackets of
    # trees (tgt.codec="trees"). ROUGE (Lin 2004): the mean F-measure of summaries, by n-grams, by
    # the longest common subsequence (L), and by that of each sentence (Lsum), a line or up to
    # "<n>"; needs the extra `rouge`.
    metrics: tuple[
        Literal[
            "BLEU", "chrF", "TER", "labelled_F1", "WER", "CER",
            "ROUGE-1", "ROUGE-2", "ROUGE-L", "ROUGE-Lsum",
        ], ...
    ] = value(
        ("BLEU", "chrF"),
        may_change=(
            "BLEU", "chrF", "TER", "labelled_F1", "WER", "CER",
            "ROUGE-1", "ROUGE-2", "ROUGE-L", "ROUGE-Lsum",
        ),
    )  # fmt: skip
    rouge_stemmer: bool = True  # ROUGE: of words without their English endings (Porter), as usual
    # diffusion: pictures that eval.py draws, each of what the split says of one of its own, and the
    # work directory of a classifier of such pictures that scores them; None: no such scores.
    drawn: int = number(1000, 1, 10**6, may_change=True)
    classifier: str | None = value(None, may_change=True)
    # decide, clone: episodes that eval.py plays in data.environment for each return it asks for
    episodes: int = number(100, 1, 10**6, may_change=True)
    # decide: these returns; (): ten from the lowest to the highest of training
    asked_returns: tuple[float, ...] = value((), may_change=True)
    # A language model is also scored from windows of objective.window pieces that overlap: each
    # ends this many pieces after the one before, and only these count, so that a piece has at least
    # objective.window - stride pieces before it, or all there are; None: no such scores.
    stride: int | None = number(None, 1, SIZE, may_change=True)
    # A language model is also scored while it learns from the text (dynamic evaluation:
    # arXiv:1709.07432): after each window, in order, its parameters take a step of this learning
    # rate, and go the share dynamic_decay of the way back; None: no such scores.
    dynamic_rate: float | None = above(None, 0, 1000, may_change=True)
    dynamic_decay: float = rate(0.0, may_change=True)
    # forecast: rows per season, such as a day of hours; the last one, repeated, is the baseline.
    season: int = number(24, 1, SIZE, may_change=True)

    def check_possible(self) -> None:
        check_evaluation(self)


@dataclass(frozen=True)
class DecodingConfig(Section):
    """Search for the best translation. Defaults are the paper's (section 6.1). CTC models do not
    search: they write the likeliest piece at each position.
    """

    # "beam": beam search, greedy if beam_size is 1; "sample": random hypotheses, see below.
    # Diffusion models draw pictures, from noise, by solving the equation that their prediction
    # defines: "euler", one prediction a step; "heun", two, of which the mean counts (Karras et al.
    # 2022, arXiv:2206.00364); or by its random counterpart, "ancestral", with new noise at each
    # step (Ho et al. 2020).
    search: Literal["beam", "sample", "euler", "heun", "ancestral"] = value(
        "beam", may_change=("beam", "sample", "euler", "heun", "ancestral")
    )
    # euler, heun, ancestral: steps from noise to picture
    sampling_steps: int = number(50, 1, 10_000, of="searches", may_change=True)
    # euler, heun, ancestral: the prediction is p + guidance (q - p), from q with the target side
    # and p without; 1: q alone (classifier-free guidance).
    guidance: float = number(1.0, 0, 1000, of="searches", may_change=True)
    # euler, heun, ancestral, with src.codec="latents": the work directory of the autoencoder whose
    # latents these are, which makes pictures of them.
    autoencoder: str | None = value(None, of="searches", may_change=True)
    beam_size: int = number(4, 1, 1000, of="searches", may_change=True)  # 1: greedy
    # score = log-probability / penalty; the length counts EOS and not BOS.
    # "gnmt": ((5 + length) / 6)^alpha; "power": length^alpha.
    length_penalty: Literal["gnmt", "power"] = value("gnmt", may_change=("gnmt", "power"))
    alpha: float = number(0.6, 0, MOST_ALPHA, may_change=True)
    # GNMT's beta: adds beta * sum of log min(attention a source piece has had, 1); 0: off.
    coverage_penalty: float = number(0.0, 0, 100, may_change=True)
    # "optimal": stop when no hypothesis can beat the best finished one any more; "width": stop when
    # beam_size hypotheses are finished, as CTranslate2 and transformers do.
    stop: Literal["optimal", "width"] = value("optimal", may_change=("optimal", "width"))
    # Longest output: max_length_ratio * source length + max_extra_length; shortest:
    # min_length_ratio * source length. In pieces, including EOS. `generate` has --max-tokens.
    max_length_ratio: float = number(1.0, 0, 100, may_change=True)
    max_extra_length: int = number(50, 0, 10000, may_change=True)
    min_length_ratio: float = number(0.0, 0, 100, may_change=True)
    # No n-gram of this size occurs twice in an output, not counting a prompt; 0: off.
    no_repeat_ngram: int = number(0, 0, 1000, may_change=True)
    # Logits of pieces that a prompt holds or that are written are divided by this if positive, else
    # multiplied (Keskar et al. 2019, arXiv:1909.05858); 1: off. Not in a beam search of several.
    repetition_penalty: float = number(1.0, 0.01, 100, may_change=True)
    forbidden: tuple[str, ...] = value((), may_change=True)  # pieces that are never written
    # A translation uses only this many pieces, the likeliest for its source by IBM Model 1, which
    # `transformer-jax shortlist --workdir=DIR` learns from the training texts: logits are computed
    # only for these (Jean et al. 2015, L'Hostis et al. 2016; a lexical shortlist). 0: all pieces.
    shortlist: int = number(0, 0, SIZE, may_change=True)
    # With objective.name="ctc_attention": hypotheses are scored by (1 - ctc_weight) x log p of the
    # decoder + ctc_weight x log p of CTC, piece by piece (Hori et al. 2017); 0: by the decoder.
    ctc_weight: float = number(0.0, 0, 1, may_change=True)
    # "tree": outputs are well-formed linearised trees with a leaf, XX, for each word of the source,
    # whatever the model predicts (tgt.codec="trees"); "none": no constraint.
    constraint: Literal["none", "tree"] = value("none", may_change=("none", "tree"))
    # with search="sample": texts for each source; euler, heun, ancestral: pictures for each text
    num_samples: int = number(1, 1, 10000, of="searches", may_change=True)
    # of sampling; below 1 favours more probable pieces
    temperature: float = number(1.0, 1e-6, 1000, of="searches", may_change=True)
    # sample among this many most probable pieces; 0: all
    top_k: int = number(0, 0, SIZE, of="searches", may_change=True)
    # sample among the fewest pieces with this much probability
    top_p: float = above(1.0, 0, 1, of="searches", may_change=True)
    # sample among the pieces with at least this share of the likeliest one's probability; 0: all
    # (Nguyen et al. 2024, arXiv:2407.01082)
    min_p: float = number(0.0, 0, 1, of="searches", may_change=True)
    # of sampling and of pictures; a line's samples depend on it and on the line's number
    seed: int = number(0, 0, 2**32 - 1, of="searches", may_change=True)
    # "none": best score first; "chrf", "bleu": minimum Bayes risk first, the hypothesis most like
    # the other beam_size or num_samples ones by that score (Eikema and Aziz 2020), "bleu" of single
    # sentences with tokenize=13a.
    rerank: Literal["none", "chrf", "bleu"] = value("none", may_change=("none", "chrf", "bleu"))
    # Speculative decoding, with greedy search or sampling: where draft tokens come from, several of
    # which the model verifies in one pass. The work directory of a smaller model with the same
    # tokenizer, or "ngram": what followed earlier occurrences of the last pieces in what was read
    # or written (Leviathan et al. 2022, Chen et al. 2023, Yang et al. 2023); or "future": what the
    # model itself predicts after the next piece, see model.multi_token. Texts are the model's own,
    # and samples have its distribution.
    draft: str | None = value(None, may_change=True)
    # tokens proposed in a pass; with "future", at most model.future_tokens
    draft_length: int = number(4, 1, 64, may_change=True)
    # For several models: average their probabilities, or their log-probabilities.
    ensemble: Literal["probabilities", "log_probabilities"] = value(
        "probabilities", may_change=("probabilities", "log_probabilities")
    )
    # Where a language model that continues prompts keeps keys and values: "contiguous", each row
    # has room for the longest text; "paged", in blocks that rows take as needed, shared by prompts
    # with the same beginning and by samples of one prompt (PagedAttention, Kwon et al. 2023): less
    # memory for more time. All blocks together hold tokens_per_batch positions.
    cache: Literal["contiguous", "paged"] = value("contiguous", may_change=("contiguous", "paged"))
    cache_block: int = number(16, 1, 4096, may_change=True)  # positions per block
    # most source positions times hypotheses at a time on a device
    tokens_per_batch: int = number(8192, 1, 2**22, may_change=True)
    # Of the matrix products of searches for texts: "model", that of model.compute_dtype; "auto", on
    # a CPU the faster one, bfloat16 if it has instructions for that and else float32, and elsewhere
    # the model's. Rounding differs, and so may a text now and then.
    compute_dtype: Literal["model", "auto", "float32", "bfloat16"] = value(
        "model", may_change=("model", "auto", "float32", "bfloat16")
    )

    def check_possible(self) -> None:
        check_decoding(self)

    def check_reads(self) -> None:
        check_decoding_reads(self)

    def check_fits(self, source_length: int, most: int | None = None) -> None:
        """Check that all hypotheses of a source of this many pieces can be held at a time.

        `most` is a limit of the length of an output that the model has.

        Raises:
          UserError: if they take too many positions; names the fields.
        """
        name = self.record.width
        longest = int(self.max_length_ratio * source_length) + self.max_extra_length
        longest = min(longest, most or longest)
        check(
            self.hypotheses * longest <= HELD_POSITIONS,
            f"{name}={self.hypotheses}: that many outputs of up to {longest} pieces, for a source "
            f"of {source_length}, are more than {HELD_POSITIONS} positions; lower it, "
            f"max_extra_length={self.max_extra_length} or max_length_ratio={self.max_length_ratio}",
        )

    @property
    def record(self) -> Search:
        """What is known about the search."""
        return SEARCHES[self.search]

    @property
    def hypotheses(self) -> int:
        """The most hypotheses that a search of one sentence returns."""
        return getattr(self, self.record.width)

    @property
    def draws(self) -> bool:
        """Whether texts are random."""
        return self.record.draws

    @property
    def competes(self) -> bool:
        """Whether there are several hypotheses of a sentence, chosen from one another."""
        return self.record.competes and self.hypotheses > 1

    @property
    def greedy(self) -> bool:
        """Whether the likeliest piece is written at each step."""
        return not self.draws and self.hypotheses == 1


@dataclass(frozen=True)
class MeshConfig(Section):
    """Devices along each axis of the mesh; -1 on one of them: all remaining devices.

    The sizes that an axis divides must be multiples of it.
    """

    data: int = value(-1, may_change=True)  # copies of the model, each on its share of the batch
    # splits the batch too; shards d_model of parameters and optimizer state
    fsdp: int = value(1, may_change=True)
    # shards num_heads, d_ff and the vocabulary, in parameters and products
    tensor: int = value(1, may_change=True)
    # splits the positions of each row. Attention reads the keys of all: with model.attention="ring"
    # they pass from device to device (arXiv:2310.01889), else each device gathers them.
    context: int = value(1, may_change=True)
    # splits them too, except within attention, where it splits num_heads instead (DeepSpeed
    # Ulysses, arXiv:2309.14509)
    ulysses: int = value(1, may_change=True)
    # splits the batch too; shards the experts of feed_forward_pattern="experts", to which positions
    # are sent (arXiv:2006.16668)
    expert: int = value(1, may_change=True)
    # splits the batch too, and d_model of parameters and optimizer state; in a stack, each device
    # applies some of them to the rows of all, in microbatches (GPipe, arXiv:1811.06965)
    stage: int = value(1, may_change=True)

    def check_possible(self) -> None:
        check_mesh(self)


@dataclass(frozen=True)
class ProfileConfig(Section):
    """Traces, for TensorBoard's profile plugin and https://ui.perfetto.dev."""

    # (first, last) step to trace, into profile/ of the work directory
    steps: tuple[int, ...] = value((), may_change=True)

    def check_possible(self) -> None:
        check_profile(self)


@dataclass(frozen=True)
class Experiment(Section):
    """Everything that defines one run."""

    seed: int = number(0, 0, 2**32 - 1)  # of initialisation, dropout and the order of the data
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

    def check_possible(self) -> None:
        check_experiment(self)

    def check_reads(self) -> None:
        check_experiment_reads(self)

    @property
    def measured(self) -> str:
        """What validation measures of written output, as `checkpoint.best_by` calls it."""
        if self.objective.record.samples:
            return "reward"
        return "wer" if self.objective.record.best_path or self._hears else "bleu"

    @property
    def verb(self) -> str | None:
        """What the model does with new input: as its objective's, but "transcribe" for sounds."""
        verb = self.objective.record.verb
        return "transcribe" if verb == "translate" and self._hears else verb

    @property
    def _hears(self) -> bool:
        return self.src.codec in CODECS and CODECS[self.src.codec].sound

    @property
    def codecs(self) -> tuple[str, str]:
        """The codecs of the source and the target side, the same if there is only one side."""
        return (self.tgt if self.objective.one_sided else self.src).codec, self.tgt.codec

    @property
    def translates_text(self) -> bool:
        """Whether the model searches for the pieces of a text, given those of another."""
        return self.objective.record.searches and self.codecs[0] not in VECTORS

"""The manual: every field of an experiment, its unit and its default, written once.

`Experiment()` is the paper's base model. How values are read, overridden and written is
`door.py`'s business. "Paper" is Vaswani et al. 2017, https://arxiv.org/abs/1706.03762.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Literal

from transformer_jax.errors import UserError


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise UserError(message)


def _rate(name: str, value: float) -> None:
    _check(0.0 <= value < 1.0, f"{name}={value}: must be at least 0 and below 1")


def _at_least(bound: int, **values: float | None) -> None:
    for name, value in values.items():
        _check(value is None or value >= bound, f"{name}={value}: must be at least {bound}")


def _check_steps(**values: int) -> None:
    for name, value in values.items():
        message = (
            f"{name}={value}: must be below 2^31, because steps are counted in int32; lower it"
        )
        _check(value < 2**31, message)


@dataclass(frozen=True)
class ModelConfig:
    """The encoder-decoder. Defaults are the paper's base model (section 3, Table 3)."""

    d_model: int = 512  # width of the residual stream
    d_ff: int = 2048  # width inside the feed-forward layers
    num_heads: int = 8  # attention heads
    head_dim: int | None = None  # size of one query and key head (d_k); None: d_model / num_heads
    v_head_dim: int | None = None  # size of one value head (d_v); None: the same as head_dim
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    dropout_rate: float = 0.1  # on each sub-layer's output and on embeddings (paper 5.4)
    attention_dropout_rate: float = 0.0  # on attention weights; the paper has none
    activation_dropout_rate: float = 0.0  # inside the feed-forward layers; the paper has none
    residual: Literal["post_norm", "pre_norm"] = "post_norm"  # where the norm stands
    norm: Literal["layer_norm"] = "layer_norm"
    norm_epsilon: float = 1e-6  # added to the variance; tensor2tensor's value
    activation: Literal["relu"] = "relu"
    # "dense": all pairs as written in the paper. "fused": jax.nn.dot_product_attention, which never
    # stores them; by cuDNN on a GPU in bfloat16, by XLA elsewhere, with a warning that says why.
    attention: Literal["dense", "fused"] = "dense"
    positions: Literal["sinusoidal", "sinusoidal_tensor2tensor", "learned"] = "sinusoidal"
    max_positions: int = 512  # rows of a learned position table; sinusoids have no limit
    # Which tables are one: "all" both embeddings and the pre-softmax matrix (paper 3.4),
    # "decoder" target embedding and pre-softmax, "none" three tables.
    tied_embeddings: Literal["all", "decoder", "none"] = "all"
    compute_dtype: Literal["float32", "bfloat16"] = "float32"  # of matrix products; params: float32
    # Speed and memory alone; parameters, checkpoints and results are the same.
    layer_loop: Literal["unrolled", "scan"] = "unrolled"  # scan: compiles one layer, runs slower
    # What the way back computes again, to save memory: "none"; "dots": all of a layer but its
    # products with parameters; "full": all of a layer from its input.
    remat: Literal["none", "dots", "full"] = "none"

    def __post_init__(self) -> None:
        _at_least(1, d_model=self.d_model, d_ff=self.d_ff, num_heads=self.num_heads)
        _at_least(1, head_dim=self.head_dim, v_head_dim=self.v_head_dim)
        _at_least(1, max_positions=self.max_positions)
        _at_least(1, num_encoder_layers=self.num_encoder_layers)
        _at_least(1, num_decoder_layers=self.num_decoder_layers)
        for name in ("dropout_rate", "attention_dropout_rate", "activation_dropout_rate"):
            _rate(name, getattr(self, name))
        _check(
            self.head_dim is not None or self.d_model % self.num_heads == 0,
            f"d_model={self.d_model} is no multiple of num_heads={self.num_heads}: "
            "choose another num_heads or set head_dim",
        )
        _check(
            self.positions == "learned" or self.d_model % 2 == 0,
            f"d_model={self.d_model} is odd, which positions={self.positions!r} cannot be: "
            "choose an even d_model or positions='learned'",
        )
        if self.attention == "fused":
            _check(
                self.attention_dropout_rate == 0,
                f"attention_dropout_rate={self.attention_dropout_rate}: attention='fused' has no "
                "dropout on its weights; set it to 0 or choose 'dense'",
            )
            _check(
                self.key_size == self.value_size,
                f"v_head_dim={self.value_size}: attention='fused' needs that of head_dim="
                f"{self.key_size}; make them equal or choose 'dense'",
            )

    @property
    def key_size(self) -> int:
        """d_k."""
        return self.head_dim or self.d_model // self.num_heads

    @property
    def value_size(self) -> int:
        """d_v."""
        return self.v_head_dim or self.key_size


@dataclass(frozen=True)
class TokenizerConfig:
    """SentencePiece, trained on the training split when a run first starts."""

    algorithm: Literal["bpe", "unigram"] = "bpe"
    vocab_size: int = 32000  # pieces, the 4 reserved ones included; per side if not joint
    joint: bool = True  # one vocabulary for both languages
    byte_fallback: bool = False  # spell unknown characters as bytes; needs 260 pieces of its own
    character_coverage: float = 1.0  # share of the characters that get pieces
    normalization: Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"] = "nmt_nfkc"
    max_lines: int = 5_000_000  # lines sampled for the training of a model, joint or not

    def __post_init__(self) -> None:
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
        _at_least(101, max_lines=self.max_lines)  # SentencePiece's own bound


@dataclass(frozen=True)
class DataConfig:
    """Where pairs come from and how they become batches."""

    source: Literal["text", "tfds", "spelled_numbers"] = "text"
    # text: the folder of the files; tfds: its data_dir (None: TFDS's own default place).
    directory: str | None = None
    name: str = ""  # tfds: the data set, "wmt14_translate/de-en"
    # text: file name endings; tfds: feature names; spelled_numbers: num2words languages.
    source_language: str = "en"
    target_language: str = "de"
    # Parts of a split, joined in order. text: "train" reads train.en and train.de (or .gz of both);
    # tfds: split names; spelled_numbers: the only part is the split's own name.
    train: tuple[str, ...] = ("train",)
    validation: tuple[str, ...] = ("validation",)
    test: tuple[str, ...] = ("test",)
    how_to_get: str = ""  # told when the data is missing: the command that fetches it
    num_examples: tuple[int, ...] = (50_000, 500, 500)  # spelled_numbers: train, validation, test
    max_number: int = 1_000_000_000  # spelled_numbers: numbers are below this

    # BPE-dropout (Provilkov et al. 2020, arXiv:1910.13267, whose value is 0.1): the share of merges
    # left out at random where training pairs are cut into pieces; 0: none.
    subword_dropout: float = 0.0
    segmentations: int = 8  # with subword_dropout: how often an epoch has each pair, cut anew

    max_length: int = 256  # longest side of a training pair, in pieces with EOS; longer are dropped
    max_length_ratio: float = 9.0  # training pairs more uneven than this, in pieces, are dropped
    tokens_per_batch: int = 25_000  # most positions on each side of one global batch, with padding
    batching: Literal["bucket", "pack"] = "bucket"
    num_buckets: int = 16  # bucket: static shapes; chosen from the data by least padding
    rows_divisible_by: int = 8  # rows of a batch are a multiple of this; so must a mesh allow

    def __post_init__(self) -> None:
        _rate("subword_dropout", self.subword_dropout)
        _at_least(1, segmentations=self.segmentations)
        _at_least(2, max_length=self.max_length)
        _at_least(1, max_length_ratio=self.max_length_ratio, num_buckets=self.num_buckets)
        _at_least(1, rows_divisible_by=self.rows_divisible_by)
        need = self.max_length * self.rows_divisible_by
        _check(
            self.tokens_per_batch >= need,
            f"tokens_per_batch={self.tokens_per_batch} is below max_length={self.max_length} x "
            f"rows_divisible_by={self.rows_divisible_by}: raise it to {need} or lower the others",
        )
        _check(bool(self.train), "train=(): names no part to train on")
        _check(
            len(self.num_examples) == 3 and min(self.num_examples) > 0,
            f"num_examples={self.num_examples}: must be three positive sizes",
        )
        _check(self.max_number <= 10**18, f"max_number={self.max_number}: must be at most 10^18")
        _check(
            self.source != "spelled_numbers" or sum(self.num_examples) <= self.max_number,
            f"num_examples={self.num_examples}: more than max_number={self.max_number} in all",
        )


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
    b1: float = 0.9
    b2: float = 0.98
    epsilon: float = 1e-9
    # "paper": learning_rate x d_model^-0.5 x min(step^-0.5, step x warmup_steps^-1.5).
    # The others rise linearly to learning_rate in warmup_steps, then: "inverse_sqrt" falls with
    # step^-0.5; "linear" and "cosine" fall towards 0 after training.steps; "constant" stays.
    schedule: Literal["paper", "inverse_sqrt", "linear", "cosine", "constant"] = "paper"
    learning_rate: float = 1.0  # a factor for "paper", else the peak
    warmup_steps: int = 4000
    clip_norm: float | None = None  # largest norm of the gradient; None: unclipped
    # The share of kernels and embeddings, times the learning rate, that an update takes away
    # (Loshchilov and Hutter 2019, arXiv:1711.05101); biases and norms stay. 0: none.
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _rate("momentum", self.momentum)
        _check(self.update_rms > 0, f"update_rms={self.update_rms}: must be above 0")
        _rate("b1", self.b1)
        _rate("b2", self.b2)
        _check(self.epsilon > 0, f"epsilon={self.epsilon}: must be above 0")
        _check(self.learning_rate > 0, f"learning_rate={self.learning_rate}: must be above 0")
        rate = f"learning_rate={self.learning_rate}: with schedule={self.schedule!r} it is"
        if self.schedule == "paper":
            _check(self.learning_rate >= 0.01, f"{rate} a factor, about 1; must be at least 0.01")
        else:
            _check(self.learning_rate < 0.1, f"{rate} the peak, about 0.001; must be below 0.1")
        _at_least(1, warmup_steps=self.warmup_steps)
        _check_steps(warmup_steps=self.warmup_steps)
        _at_least(0, weight_decay=self.weight_decay)
        _check(
            self.clip_norm is None or self.clip_norm > 0,
            f"clip_norm={self.clip_norm}: must be above 0, or None for no clipping",
        )


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
        _at_least(1, steps=self.steps, accumulation_steps=self.accumulation_steps)
        _check_steps(steps=self.steps)
        _at_least(1, log_every=self.log_every, max_bad_steps=self.max_bad_steps)
        _at_least(1, early_stopping=self.early_stopping)
        _rate("label_smoothing", self.label_smoothing)
        _rate("ema_decay", self.ema_decay or 0.0)
        _check(
            self.r_drop is None or self.r_drop > 0,
            f"r_drop={self.r_drop}: must be above 0, or None for a single pass",
        )
        _check(
            self.loss_spike is None or self.loss_spike > 1,
            f"loss_spike={self.loss_spike}: must be above 1, or None for no reports",
        )
        _check(
            self.max_minutes is None or self.max_minutes > 0,
            f"max_minutes={self.max_minutes}: must be above 0, or None for no limit",
        )

    @property
    def passes(self) -> int:
        """Of a row through the model, in one step."""
        return 1 if self.r_drop is None else 2


@dataclass(frozen=True)
class CheckpointConfig:
    """What is kept: the last `keep_last` checkpoints and the best one."""

    every_steps: int = 1000  # steps between saves
    keep_last: int = 5
    best_by: Literal["bleu", "loss"] = "bleu"  # of the validation split
    # When a save fails, for a full disk for example: "continue" and try again at the next one, or
    # "stop" (code 74). What was saved before stays in either case.
    on_failed_save: Literal["continue", "stop"] = "continue"

    def __post_init__(self) -> None:
        _at_least(1, every_steps=self.every_steps, keep_last=self.keep_last)


@dataclass(frozen=True)
class EvaluationConfig:
    """Validation while training, and the scoring protocol."""

    every_steps: int = 1000  # steps between validations; a multiple of checkpoint.every_steps
    bleu_sentences: int = 1000  # most validation sentences decoded greedily, spread; 0: loss alone
    checkpoint: str = "best"  # what eval.py scores by default: best, last, STEP or average:N
    bleu_tokenize: Literal["13a", "none", "intl", "char", "zh", "ja-mecab", "ko-mecab"] = "13a"
    lowercase: bool = False  # score case-insensitively

    def __post_init__(self) -> None:
        _at_least(1, every_steps=self.every_steps)
        _at_least(0, bleu_sentences=self.bleu_sentences)
        average_count(self.checkpoint)


@dataclass(frozen=True)
class DecodingConfig:
    """Search for the best translation. Defaults are the paper's (section 6.1)."""

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
    num_samples: int = 1  # with search="sample"
    temperature: float = 1.0  # of sampling; below 1: more probable pieces
    top_k: int = 0  # sample among so many most probable pieces; 0: all
    top_p: float = 1.0  # sample among the fewest pieces with so much probability
    seed: int = 0  # of sampling; a line's samples depend on it and on the line's number
    # "none": best score first; "chrf", "bleu": least Bayes risk first, that is the hypothesis most
    # like the other beam_size or num_samples ones by that score (Eikema and Aziz 2020), "bleu" of
    # single sentences with tokenize=13a.
    rerank: Literal["none", "chrf", "bleu"] = "none"
    # Of several models: the mean of their probabilities, or of their log-probabilities.
    ensemble: Literal["probabilities", "log_probabilities"] = "probabilities"
    tokens_per_batch: int = 8192  # most source positions times hypotheses at a time on a device

    def __post_init__(self) -> None:
        _at_least(1, beam_size=self.beam_size, num_samples=self.num_samples)
        _at_least(1, tokens_per_batch=self.tokens_per_batch)
        _at_least(0, max_extra_length=self.max_extra_length, seed=self.seed, top_k=self.top_k)
        _at_least(0, no_repeat_ngram=self.no_repeat_ngram)
        _check(self.alpha >= 0, f"alpha={self.alpha}: must be at least 0")
        _check(
            self.coverage_penalty >= 0,
            f"coverage_penalty={self.coverage_penalty}: must be at least 0",
        )
        _check(self.temperature > 0, f"temperature={self.temperature}: must be above 0")
        _check(0 < self.top_p <= 1, f"top_p={self.top_p}: must lie above 0 and at most at 1")
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
            _check(size == -1 or size >= 1, f"{name}={size}: must be positive, or -1")
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
            not self.steps or (len(self.steps) == 2 and 1 <= self.steps[0] <= self.steps[1]),
            f"steps={self.steps}: must be the first and the last step to trace, as in 10,15",
        )


@dataclass(frozen=True)
class Experiment:
    """Everything that defines one run."""

    seed: int = 0  # of initialisation, dropout and the order of the data
    model: ModelConfig = field(default_factory=ModelConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    profile: ProfileConfig = field(default_factory=ProfileConfig)

    def __post_init__(self) -> None:
        model, data, training = self.model, self.data, self.training
        _check(0 <= self.seed < 2**32, f"seed={self.seed}: must be at least 0 and below 2^32")
        _check(
            self.tokenizer.joint or model.tied_embeddings != "all",
            "tokenizer.joint=False: two vocabularies cannot share model.tied_embeddings='all'; "
            "choose 'decoder' or 'none'",
        )
        _check(
            model.positions != "learned" or model.max_positions >= data.max_length,
            f"model.max_positions={model.max_positions} is below data.max_length={data.max_length}"
            ": raise the one or lower the other",
        )
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
            self.checkpoint.best_by == "loss" or self.evaluation.bleu_sentences > 0,
            f"checkpoint.best_by='bleu' needs evaluation.bleu_sentences="
            f"{self.evaluation.bleu_sentences} above 0; raise it or choose 'loss'",
        )


def average_count(checkpoint: str) -> int | None:
    """Read a checkpoint name: N of "average:N", or None for best, last and a step.

    Raises:
      UserError: if it is none of these.
    """
    head, colon, tail = checkpoint.partition(":")
    if head == "average" and colon and tail.isdecimal() and int(tail) > 0:
        return int(tail)
    if checkpoint in ("best", "last") or checkpoint.isdecimal():
        return None
    raise UserError(f"checkpoint={checkpoint!r}: must be best, last, a step, or average:N")

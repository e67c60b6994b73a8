"""What a record says of an objective."""

from dataclasses import dataclass

from transformer_jax.config.choices.record import Record


@dataclass(frozen=True, kw_only=True)
class Objective(Record):
    """What is known about an objective. Its `check` is called with the whole experiment.

    architectures: those that it trains.
    text, vectors: what the target side has if there is no source side: a text whose pieces are
      predicted, or vectors of this codec; None: there are two sides.
    labels: the codec of the target side, if that is no text but says something about one.
    besides: the codecs that the target side may have besides those of texts.
    translates: whether the target side is a text written from the source side.
    lines: what each line of its files is, if not any text: "words" and as many labels, "texts" in
      pairs, "numbers", "questions" with a text and an answer, "conversations",
      "preferences" or "pairs" of answers, of which one is better.
    paired: whether a source line has two texts, neither of which can be read without the other.
    best_path: whether it writes the likeliest piece at each position, without a search.
    hybrid: whether CTC predicts what is written too, from the source side alone.
    prompt: what it reads of a prompt before it writes, if it takes prompts: the "beginning" of a
      text, a "source", a text with "gaps", or "messages" of a conversation.
    likelihood: whether it gives the probability of any text, piece after piece.
    senses: whether its source side may be vectors: pictures or sounds.
    reproduces: whether it writes what it reads, and what files say beside that is ignored.
    diffuses: whether it predicts what noise hides in values, which a search of values draws.
    samples: whether it learns from what the model itself writes, between updates.
    acts: whether it predicts the actions of an agent, which eval.py tries in an environment.
    symbols: the named pieces that it writes into texts.
    masks: whether pieces are masked, and predicted at their positions.
    prefix: whether a prefix of each row is read in both directions.
    segments: token types, if the model has any.
    joins: whether it can read all documents as one.
    mixes: whether its items record which part of the data they come from.
    chooses: whether it predicts pieces or classes; not numbers, spans or paths.
    beside: the objectives that parts of the training text may have besides it, with one model.
    foresees: whether it predicts each piece from those before it, so that later ones can be
      predicted as well.
    steady: whether an item predicts the same pieces in every epoch, so that a teacher's
      predictions of them can be kept.
    least: the shortest window, and what it has to hold.
    nats: whether its loss is a cross-entropy; not if it compares numbers.
    accuracy: whether validation measures the share of right predictions.

    What people read:
    title: the model in reports, "A classifier of {read}"; brief: the same in a notebook.
    method: what to call for a prediction, if not `translate` or `generate`.
    evaluated: the module of evaluation/ that scores it, and so the units of its scores.
    task: the Hugging Face Hub's name of what it does with text, if it has one.
    also: of a language model: what else its scores have: "backward", of the pieces before others;
      "pseudo", of pieces masked one at a time; "next_sentence".
    counted: of the pieces of a language model: which count in a score.
    predicts: of a language model that gives no probability of a text: what it does instead.
    """

    architectures: tuple[str, ...]
    text: bool = False
    vectors: str | None = None
    labels: str | None = None
    besides: tuple[str, ...] = ()
    translates: bool = False
    lines: str | None = None
    paired: bool = False
    best_path: bool = False
    hybrid: bool = False
    prompt: str | None = None
    likelihood: bool = False
    senses: bool = False
    reproduces: bool = False
    diffuses: bool = False
    samples: bool = False
    acts: bool = False
    symbols: tuple[str, ...] = ()
    masks: bool = False
    prefix: bool = False
    segments: int = 1
    joins: bool = False
    mixes: bool = True
    chooses: bool = True
    beside: tuple[str, ...] = ()
    foresees: bool = False
    steady: bool = False
    least: tuple[int, str] = (1, "")
    nats: bool = True
    accuracy: bool = False
    title: str
    brief: str | None = None
    method: str | None = None
    evaluated: str
    task: str | None = None
    also: str | None = None
    counted: str = "each once"
    predicts: str = "predicts no text"

    @property
    def one_sided(self) -> bool:
        """Whether there is only a target side."""
        return self.text or self.vectors is not None

    @property
    def searches(self) -> bool:
        """Whether it writes a translation piece by piece, which a search finds."""
        return self.translates and not self.best_path

    @property
    def one_row(self) -> bool:
        """Whether a row holds a source and its translation."""
        return self.translates and self.prefix

    @property
    def windowed(self) -> bool:
        """Whether `window` is the most that is read at a time."""
        return "window" in self.reads and not self.translates

    @property
    def verb(self) -> str | None:
        """What a model does with new input: `method`, "translate" or "generate"; None: nothing."""
        written = "generate" if self.prompt else None
        return self.method or ("translate" if self.translates else written)

    @property
    def forecasts(self) -> bool:
        """Whether it predicts `horizon` rows after each window of a series."""
        return "horizon" in self.reads

    @property
    def chats(self) -> bool:
        """Whether it reads conversations, and answers in them."""
        return self.prompt == "messages"

    @property
    def classifies(self) -> bool:
        """Whether it predicts classes."""
        return self.labels is not None and self.evaluated == "classes"

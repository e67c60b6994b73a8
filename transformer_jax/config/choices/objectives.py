"""Objectives: what is predicted from what, and what follows for data, models, scores and words."""

from dataclasses import dataclass
from typing import Any

from transformer_jax.config.bounds import check
from transformer_jax.config.choices.codecs import CODECS
from transformer_jax.config.choices.record import Record, with_

SENTINEL = "<extra_id_{}>"  # T5's name for the pieces that replace removed spans


@dataclass(frozen=True, kw_only=True)
class Objective(Record):
    """What is known about an objective. Its `check` is called with the whole experiment.

    architectures: those that it trains.
    text, vectors: what the target side has if there is no source side: a text whose pieces are
      predicted, or vectors of this codec; None: there are two sides.
    labels: the codec of the target side, if that is no text but says something about one.
    translates: whether the target side is a text written from the source side.
    lines: what each line of its files is, if not any text: "words" and as many labels, "texts" in
      pairs, "numbers", "questions" with a text and an answer.
    reproduces: whether it writes what it reads, and what files say beside that is ignored.
    symbols: the named pieces that it writes into texts.
    masks: whether pieces are masked, and predicted at their positions.
    prefix: whether a prefix of each row is read in both directions.
    segments: token types, if the model has any.
    joins: whether it can read all documents as one.
    mixes: whether its items record which part of the data they come from.
    chooses: whether it predicts pieces or classes; not numbers, spans or paths.
    beside: the objectives that parts of the training text may have besides it, with one model.
    least: the shortest window, and what it has to hold.
    nats: whether its loss is a cross-entropy; not if it compares numbers.
    accuracy: whether validation measures the share of right predictions.

    What people read:
    title: the model in reports, "A classifier of {read}"; brief: the same in a notebook.
    method: what to call for a prediction, if not `translate` or `generate`.
    evaluated: the module of evaluation/ that scores it, and so the units of its scores.
    counted: of the pieces of a language model: which count in a score.
    predicts: of a language model that gives no probability of a text: what it does instead.
    """

    architectures: tuple[str, ...]
    text: bool = False
    vectors: str | None = None
    labels: str | None = None
    translates: bool = False
    lines: str | None = None
    reproduces: bool = False
    symbols: tuple[str, ...] = ()
    masks: bool = False
    prefix: bool = False
    segments: int = 1
    joins: bool = False
    mixes: bool = True
    chooses: bool = True
    beside: tuple[str, ...] = ()
    least: tuple[int, str] = (1, "")
    nats: bool = True
    accuracy: bool = False
    title: str
    brief: str | None = None
    method: str | None = None
    evaluated: str
    counted: str = "each once"
    predicts: str = "predicts no text"

    @property
    def one_sided(self) -> bool:
        """Whether there is only a target side."""
        return self.text or self.vectors is not None

    @property
    def classifies(self) -> bool:
        """Whether it predicts classes."""
        return self.labels is not None and self.evaluated == "classes"


def _check_ctc(run: Any, field: str) -> None:
    name = f"objective.name={run.objective.name!r}"
    check(
        run.tgt.codec != "huggingface",
        f"tgt.codec={run.tgt.codec!r}: {name} uses PAD as its blank, which an imported "
        "tokenizer may lack; choose another codec",
    )
    check(
        run.data.batching != "pack",
        f"data.batching='pack': a row of {name} must hold one line; choose 'bucket'",
    )


def _check_policy(run: Any, field: str) -> None:
    check(
        run.src.codec == "board",
        f"src.codec={run.src.codec!r}: objective.name={run.objective.name!r} reads chess "
        "positions; choose 'board'",
    )


def check_word_labels(run: Any, field: str = "objective.name") -> None:
    """Reject what does not go with a label for each word of the source."""
    check(
        not run.data.prefixes,
        f"data.prefixes={run.data.prefixes}: objective.name={run.objective.name!r} with tgt.codec="
        f"{run.tgt.codec!r} labels each word of the source, and the words of a prefix have no "
        "labels; set it to ()",
    )


def _check_forecast(run: Any, field: str) -> None:
    """Reject windows that are not a whole number of patches, and rows with several windows."""
    model, window = run.model, run.objective.window
    check(
        window >= model.patch_length and (window - model.patch_length) % model.patch_stride == 0,
        f"objective.window={window}: is not model.patch_length={model.patch_length} plus a "
        f"multiple of model.patch_stride={model.patch_stride}, so patches would miss rows; "
        "change one of them",
    )
    check(
        model.patch_stride <= model.patch_length,
        f"model.patch_stride={model.patch_stride}: is above model.patch_length="
        f"{model.patch_length}, so the rows between patches would not be read; lower it",
    )
    check(
        run.data.batching == "bucket",
        f"data.batching={run.data.batching!r}: a row of objective.name='forecast' is a "
        "window; choose 'bucket'",
    )


def _check_reconstruct(run: Any, field: str) -> None:
    check(
        run.src.codec == "patches",
        f"src.codec={run.src.codec!r}: objective.name={run.objective.name!r} outputs "
        "what it reads; choose 'patches', as for tgt.codec",
    )
    check(
        run.evaluation.bleu_sentences == 0,
        f"evaluation.bleu_sentences={run.evaluation.bleu_sentences}: pictures have no BLEU; "
        "set it to 0, and checkpoint.best_by='loss'",
    )


_WINDOW = ("window", "document")
_PAIR = 5, "BOS and two segments of a piece and EOS"
_READERS = "encoder", "perceiver", "elmo", "decoder"
_CONTINUES = "predicts the rest of a text from its first part"
_REST = "in the rest of each window, after the cut of validation"
OBJECTIVES = {
    "translate": Objective(
        architectures=("encoder_decoder", "recurrent", "prefix_decoder"),
        translates=True,
        beside=("span_corruption", "denoising"),
        title="A translator",
        evaluated="run",
    ),
    "language_model": Objective(
        architectures=("decoder",),
        text=True,
        reads=_WINDOW,
        joins=True,
        title="A language model",
        evaluated="language",
    ),
    "prefix_lm": Objective(
        architectures=("decoder",),
        reads=("window",),
        translates=True,
        prefix=True,
        beside=("language_model",),
        title="A translator",
        evaluated="run",
    ),
    "text_prefix_lm": Objective(
        architectures=("decoder",),
        text=True,
        reads=_WINDOW,
        prefix=True,
        joins=True,
        title="A language model",
        evaluated="language",
        counted=_REST,
        predicts=_CONTINUES,
    ),
    "permutation_lm": Objective(
        architectures=("two_stream",),
        text=True,
        reads=(*_WINDOW, "partial_prediction"),
        least=(2, "a piece that is read and one that is predicted"),
        title="A language model",
        evaluated="language",
        counted="predicted in the orders of validation",
        predicts="predicts a part of the pieces in a random order",
    ),
    "bidirectional_lm": Objective(
        architectures=("elmo",),
        text=True,
        reads=_WINDOW,
        least=(2, "a piece that is read and one that is predicted"),
        title="A language model",
        evaluated="language",
        counted="each once, from those before it",
        predicts="predicts pieces from either side",
    ),
    "masked_lm": Objective(
        architectures=("encoder", "perceiver"),
        text=True,
        reads=(*_WINDOW, "mask_rate", "whole_words"),
        symbols=("<mask>",),
        masks=True,
        joins=True,
        least=(2, "BOS and a piece"),
        title="A masked language model",
        evaluated="language",
        counted="masked as in validation",
        predicts="predicts pieces from those on both sides",
    ),
    "masked_lm_nsp": Objective(
        architectures=("encoder",),
        text=True,
        reads=("window", "mask_rate", "whole_words"),
        symbols=("<mask>",),
        masks=True,
        segments=2,
        mixes=False,
        least=_PAIR,
        title="A masked language model",
        evaluated="language",
        counted="masked as in validation",
        predicts="predicts pieces from those on both sides",
    ),
    "span_corruption": Objective(
        architectures=("encoder_decoder",),
        text=True,
        reads=(*_WINDOW, "noise_density", "sentinels", "mean_span_length"),
        joins=True,
        beside=("denoising",),
        least=(3, "a piece, a sentinel and EOS"),
        title="A language model",
        evaluated="language",
        counted="in the spans that validation removes, with sentinels and EOS",
        predicts="predicts the spans that a text has lost",
    ),
    "denoising": Objective(
        architectures=("encoder_decoder",),
        text=True,
        reads=(
            *_WINDOW, "mean_span_length", "text_infilling_rate", "token_masking_rate",
            "token_deletion_rate", "sentence_permutation_rate", "document_rotation_rate",
        ),
        symbols=("<mask>",),
        joins=True,
        beside=("span_corruption",),
        least=(2, "a piece and EOS"),
        title="A language model",
        evaluated="language",
        counted="each once, in texts with the noise of validation",
        predicts="predicts a text from a noised version of it",
    ),
    "text_continuation": Objective(
        architectures=("encoder_decoder",),
        text=True,
        reads=_WINDOW,
        joins=True,
        least=(2, "a piece that is read and one that is written"),
        title="A language model",
        evaluated="language",
        counted=f"{_REST}, with EOS",
        predicts=_CONTINUES,
    ),
    "tag": Objective(
        architectures=("encoder", "elmo"),
        labels="labels",
        lines="words",
        reads=("window",),
        least=(3, "BOS, a piece and EOS"),
        accuracy=True,
        title="A word tagger",
        brief="tagger",
        method="tag",
        evaluated="tags",
        check=check_word_labels,
    ),
    "answer": Objective(
        architectures=("encoder",),
        labels="spans",
        lines="questions",
        reads=("window",),
        segments=2,
        mixes=False,
        chooses=False,
        least=_PAIR,
        accuracy=True,
        title="A question answering model",
        brief="reader",
        method="answer",
        evaluated="answers",
    ),
    "regress": Objective(
        architectures=_READERS,
        labels="values",
        lines="numbers",
        reads=("window",),
        chooses=False,
        least=(2, "BOS and a piece"),
        nats=False,
        title="A regression model of {read}",
        brief="regression",
        method="value",
        evaluated="values",
    ),
    "classify": Objective(
        architectures=_READERS,
        labels="classes",
        reads=("window",),
        least=(2, "BOS and a piece"),
        accuracy=True,
        title="A classifier of {read}",
        brief="classifier",
        method="classify",
        evaluated="classes",
    ),
    "classify_pairs": Objective(
        architectures=("encoder", "decomposable_attention"),
        labels="classes",
        lines="texts",
        reads=("window",),
        segments=2,
        least=_PAIR,
        accuracy=True,
        title="A classifier of pairs of texts",
        brief="classifier of pairs",
        method="classify",
        evaluated="classes",
    ),
    "forecast": Objective(
        architectures=("encoder",),
        vectors="series",
        reads=("window", "horizon"),
        mixes=False,
        chooses=False,
        nats=False,
        title="A forecaster of {read}",
        brief="forecaster",
        method="forecast",
        evaluated="forecasts",
        check=_check_forecast,
    ),
    "ctc": Objective(
        architectures=("encoder",),
        translates=True,
        chooses=False,
        title="A translator",
        evaluated="run",
        check=_check_ctc,
    ),
    "reconstruct": Objective(
        architectures=("autoencoder",),
        vectors="patches",
        reproduces=True,
        chooses=False,
        nats=False,
        title="An autoencoder of {read}",
        brief="autoencoder",
        method="picture_codes",
        evaluated="reconstructions",
        check=_check_reconstruct,
    ),
    "policy": Objective(
        architectures=("encoder",),
        labels="moves",
        reads=("window",),
        least=(78, "BOS and the 77 characters of a position"),
        accuracy=True,
        title="A chess player",
        brief="policy",
        method="classify",
        evaluated="classes",
        check=_check_policy,
    ),
}  # fmt: skip
OF_TEXT = with_(OBJECTIVES, text=True)
JOINS = with_(OBJECTIVES, joins=True)
LABELLING = tuple(word for word, record in OBJECTIVES.items() if record.labels)
COMBINED = tuple(word for word, record in OBJECTIVES.items() if record.beside)


def targets_of(kind: str) -> tuple[str, ...]:
    """Return the codecs that the target side of an objective may have, if it is not text."""
    labels = OBJECTIVES[kind].labels
    if labels is None:
        return ()
    others = with_(CODECS, classes=True) if labels == "classes" else ()
    return (labels, *(word for word in others if word != labels))

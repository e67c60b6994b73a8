"""Objectives: what is predicted from what, and what follows for data, models, scores and words."""

from typing import Any

from transformer_jax.config.bounds import check
from transformer_jax.config.choices.codecs import CODECS
from transformer_jax.config.choices.conversations import CONVERSATIONS
from transformer_jax.config.choices.objective import Objective
from transformer_jax.config.choices.pictures import check_diffusion, check_reconstruct
from transformer_jax.config.choices.record import with_
from transformer_jax.config.choices.series import check_actions, check_forecast
from transformer_jax.config.choices.texts import check_infilling, check_text


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


_WINDOW = ("window", "document")
_PAIR = 5, "BOS and two segments of a piece and EOS"
_READERS = "encoder", "perceiver", "factorised_encoder", "elmo", "decoder"
_CONTINUES = "predicts the rest of a text from its first part"
_REST = "in the rest of each window, after the cut of validation"
_OF_AGENTS: dict[str, Any] = {
    "architectures": ("decision_transformer",), "besides": ("labels", "actions"), "acts": True,
    "reads": ("window",), "mixes": False, "chooses": False, "nats": False, "method": "act",
    "evaluated": "acting", "task": "reinforcement-learning", "check": check_actions,
}  # fmt: skip
OBJECTIVES = {
    "translate": Objective(
        architectures=("encoder_decoder", "recurrent", "prefix_decoder"),
        translates=True,
        senses=True,
        beside=("span_corruption", "denoising"),
        steady=True,
        title="A translator",
        evaluated="run",
        task="translation",
    ),
    "language_model": Objective(
        architectures=("decoder",),
        text=True,
        reads=(*_WINDOW, "fim_rate", "fim_spm_rate"),
        check=check_infilling,
        prompt="beginning",
        likelihood=True,
        joins=True,
        foresees=True,
        steady=True,
        title="A language model",
        evaluated="language",
        task="text-generation",
    ),
    "prefix_lm": Objective(
        architectures=("decoder",),
        reads=("window",),
        translates=True,
        prompt="source",
        prefix=True,
        beside=("language_model",),
        steady=True,
        title="A translator",
        evaluated="run",
        task="translation",
    ),
    **CONVERSATIONS,
    "text_prefix_lm": Objective(
        architectures=("decoder",),
        text=True,
        reads=_WINDOW,
        prompt="beginning",
        prefix=True,
        joins=True,
        title="A language model",
        evaluated="language",
        task="text-generation",
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
        also="backward",
        counted="each once, from those before it",
        predicts="predicts pieces from either side",
    ),
    "masked_lm": Objective(
        architectures=("encoder", "perceiver"),
        text=True,
        reads=(*_WINDOW, "mask_rate", "whole_words"),
        also="pseudo",
        symbols=("<mask>",),
        masks=True,
        joins=True,
        least=(2, "BOS and a piece"),
        title="A masked language model",
        evaluated="language",
        task="fill-mask",
        counted="masked as in validation",
        predicts="predicts pieces from those on both sides",
    ),
    "masked_lm_nsp": Objective(
        architectures=("encoder",),
        text=True,
        reads=("window", "mask_rate", "whole_words"),
        also="next_sentence",
        symbols=("<mask>",),
        masks=True,
        segments=2,
        mixes=False,
        least=_PAIR,
        title="A masked language model",
        evaluated="language",
        task="fill-mask",
        counted="masked as in validation",
        predicts="predicts pieces from those on both sides",
    ),
    "span_corruption": Objective(
        architectures=("encoder_decoder",),
        text=True,
        reads=(*_WINDOW, "noise_density", "sentinels", "mean_span_length"),
        prompt="gaps",
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
        prompt="gaps",
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
        prompt="source",
        least=(2, "a piece that is read and one that is written"),
        title="A language model",
        evaluated="language",
        task="text-generation",
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
        task="token-classification",
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
        task="question-answering",
    ),
    "regress": Objective(
        architectures=_READERS,
        labels="values",
        lines="numbers",
        senses=True,
        check=check_text,
        reads=("window",),
        chooses=False,
        least=(2, "BOS and a piece"),
        nats=False,
        title="A regression model of {read}",
        brief="regression",
        method="value",
        evaluated="values",
        task="text-classification",
    ),
    "classify": Objective(
        architectures=_READERS,
        labels="classes",
        senses=True,
        check=check_text,
        reads=("window",),
        least=(2, "BOS and a piece"),
        accuracy=True,
        title="A classifier of {read}",
        brief="classifier",
        method="classify",
        evaluated="classes",
        task="text-classification",
    ),
    "classify_pairs": Objective(
        architectures=("encoder", "decomposable_attention"),
        labels="classes",
        lines="texts",
        paired=True,
        reads=("window",),
        segments=2,
        least=_PAIR,
        accuracy=True,
        title="A classifier of pairs of texts",
        brief="classifier of pairs",
        method="classify",
        evaluated="classes",
        task="text-classification",
    ),
    "forecast": Objective(
        architectures=("encoder", "dlinear"),
        vectors="series",
        reads=("window", "horizon", "channels"),
        mixes=False,
        chooses=False,
        nats=False,
        title="A forecaster of {read}",
        brief="forecaster",
        method="forecast",
        evaluated="forecasts",
        task="time-series-forecasting",
        check=check_forecast,
    ),
    "ctc": Objective(
        architectures=("encoder",),
        translates=True,
        best_path=True,
        senses=True,
        chooses=False,
        title="A translator",
        evaluated="run",
        task="translation",
        check=_check_ctc,
    ),
    "ctc_attention": Objective(
        architectures=("encoder_decoder",),
        translates=True,
        hybrid=True,
        senses=True,
        chooses=False,
        reads=("ctc_weight",),
        title="A translator",
        evaluated="run",
        task="translation",
        check=_check_ctc,
    ),
    "reconstruct": Objective(
        architectures=("autoencoder", "variational_autoencoder"),
        vectors="patches",
        reproduces=True,
        senses=True,
        chooses=False,
        nats=False,
        title="An autoencoder of {read}",
        brief="autoencoder",
        method="picture_codes",
        evaluated="reconstructions",
        check=check_reconstruct,
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
    "diffusion": Objective(
        architectures=("diffusion_transformer",),
        besides=("classes",),
        senses=True,
        diffuses=True,
        reads=("noise_schedule", "prediction", "times", "condition_dropout"),
        chooses=False,
        nats=False,
        title="A diffusion model of {read}",
        brief="diffusion model",
        method="draw",
        evaluated="drawn",
        check=check_diffusion,
    ),
    "decide": Objective(title="A Decision Transformer", brief="Decision Transformer", **_OF_AGENTS),
    "clone": Objective(title="A cloned policy", brief="cloned policy", **_OF_AGENTS),
    "distances": Objective(
        architectures=("evoformer",),
        vectors="coordinates",
        reproduces=True,
        reads=("known_share", "distance_noise"),
        mixes=False,
        chooses=False,
        title="A model of distances in {read}",
        brief="model of distances",
        method="distances",
        evaluated="distances",
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

"""ROUGE matches rouge-score, one summary at a time and in tests; lead baselines."""

import importlib.metadata
import sys

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from transformer_jax.base.errors import UserError
from transformer_jax.config import EvaluationConfig
from transformer_jax.evaluation import summaries
from transformer_jax.evaluation.metrics import METRICS, check, score, sentence_metric, unsuited
from transformer_jax.evaluation.sentences import sentence_scores
from transformer_jax.evaluation.summaries import TYPES, controls, lead
from transformer_jax.reports.compare import differences, paired_tests
from transformer_jax.reports.systems import System

NAMES = (*TYPES,)
REFERENCES = [
    "The cats were running. Police killed the gunman.",
    "",
    "...",
    "a a a b",
    "Storms close roads.",
    "One storm. Two dogs. <n> Three cats sat.",
    "Größe x",
    "the gunman police killed",
    "Year 1999",
]
SUMMARIES = [
    "The cat ran; police kill the gunman!",
    "something",
    "?!",
    "a a b b a a",
    "",
    "Three cats sat <n>One storm.",
    "Große x",
    "police killed the gunman",
    "year 1999 year 1999",
]


def direct(stemmer: bool) -> np.ndarray:
    """Return precision, recall and F from rouge-score itself [summaries types 3]."""
    scorer = RougeScorer([*TYPES.values()], use_stemmer=stemmer)
    texts = ([x.replace("<n>", "\n") for x in side] for side in (REFERENCES, SUMMARIES))
    return np.array([[*scorer.score(x, y).values()] for x, y in zip(*texts, strict=True)])


@pytest.mark.parametrize("stemmer", [True, False])
def test_scores_match_rouge_score(stemmer):
    """Of empty texts, punctuation, repeated words and several sentences; the sum is a mean."""
    config = EvaluationConfig(metrics=NAMES, rouge_stemmer=stemmer)
    expected = 100 * direct(stemmer)
    assert 0 < expected.mean() < 100
    found = score(SUMMARIES, REFERENCES, config, resamples=50)
    for i, one in enumerate(found):
        assert one.name == NAMES[i]
        precision, recall, f = expected[:, i].mean(0)
        assert one.value == pytest.approx(f)
        assert f"{precision:.1f}/{recall:.1f} (precision/recall" in one.details
        version = importlib.metadata.version("rouge-score")
        assert one.signature == (
            f"nrefs:1|case:lc|stemmer:{'porter' if stemmer else 'no'}|tok:ascii|sentences:lines|"
            f"version:rouge-score-{version}"
        )
        low, high = one.interval
        assert 0 <= low < high <= 100
        alone = sentence_metric(one.name, config)
        for j, pair in enumerate(zip(SUMMARIES, REFERENCES, strict=True)):
            assert alone.sentence_score(pair[0], [pair[1]]).score == pytest.approx(
                expected[j, i, 2]
            )
    rows = sentence_scores(SUMMARIES, REFERENCES, config)
    assert [[row[name] for name in NAMES] for row in rows] == np.round(expected[..., 2], 2).tolist()
    plain = sentence_scores(SUMMARIES, REFERENCES, EvaluationConfig())
    assert {*plain[0]} == {"BLEU", "chrF", "counts"}


def test_line_breaks_and_their_symbol_are_the_same():
    """Only ROUGE-Lsum looks at them, and the symbol is no word."""
    config = EvaluationConfig(metrics=NAMES)
    by_symbol = score(["b c <n> a"], ["a <n> b c"], config)
    by_break = score(["b c\na"], ["a\nb c"], config)
    assert [x.value for x in by_symbol] == [x.value for x in by_break]
    *_, longest, union = (x.value for x in by_symbol)
    assert (round(longest, 1), union) == (66.7, 100)


def test_paired_tests_resample_summaries():
    """The score of the units is that of the corpus; a system does not differ from itself."""
    config = EvaluationConfig(metrics=NAMES)
    better = [*SUMMARIES[:4], *REFERENCES[4:]] * 4
    systems = [
        System(name, said, "", config)
        for name, said in (("one", SUMMARIES * 4), ("same", SUMMARIES * 4), ("two", better))
    ]
    results = paired_tests(systems, REFERENCES * 4, NAMES, samples=100)
    for i, whole in enumerate(score(SUMMARIES, REFERENCES, config)):
        one, same, two = results[3 * i : 3 * i + 3]
        assert one.score == pytest.approx(whole.value)
        assert min(same.p_values.values()) == 1
        assert two.different
    first = differences(systems[0], systems[2], REFERENCES * 4, "ROUGE-1")[0]
    assert first.gain == 100
    assert first.reference == "Storms close roads."


def test_letters_that_do_not_count_are_warned_of():
    config = EvaluationConfig()
    german = ["Die Größe der Städte überrascht.", "Ein schöner Tag"]
    (line,) = unsuited(config, ["ROUGE-1", "ROUGE-L", "BLEU"], german)
    assert line.startswith("evaluation.metrics: ROUGE takes only a to z and digits")
    assert "'ö'" in line
    assert line.endswith("use chrF")
    (line,) = unsuited(config, ["ROUGE-2"], ["我喜欢苹果，不是香蕉！"])
    assert "100% of the letters" in line
    assert unsuited(config, NAMES, ["A café", "in a long English line " * 9, "1999", ""]) == []
    assert unsuited(config, NAMES, []) == []
    assert unsuited(config, ["BLEU"], german) == []


def test_a_missing_library_is_reported_early(monkeypatch):
    """And only if ROUGE is asked for; tables of metrics work without it."""
    summaries._scorer.cache_clear()
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    check(EvaluationConfig())
    assert METRICS["ROUGE-1"](EvaluationConfig()).name == "ROUGE-1"
    with pytest.raises(UserError, match="pip install rouge-score"):
        check(EvaluationConfig(metrics=("BLEU", "ROUGE-L")))


@pytest.mark.parametrize(
    ("document", "sentences"),
    [
        ('Mr. J. Smith paid $2.50. "Why?" he asked. It rained! It did.',
         ["Mr. J. Smith paid $2.50.", '"Why?" he asked.', "It rained!", "It did."]),
        ("a title <n> Then text. More\r\n\r\nlast", ["a title", "Then text.", "More", "last"]),
        ("他去了北京。今天回来。", ["他去了北京。", "今天回来。"]),
        ('He said "No." Then he left. (So he did.) The end', ['He said "No."', "Then he left.",
         "(So he did.)", "The end"]),
        ("  ", []), ("no end", ["no end"]),
    ],
)  # fmt: skip
def test_lead_is_the_first_sentences(document, sentences):
    for count in (1, 3, 9):
        assert lead(document, count) == "\n".join(sentences[:count])


def test_controls_are_scored_like_a_model():
    documents = ["Dogs bark. Cats sleep. Birds sing. Fish swim.", "Rain fell."]
    references = ["Dogs bark. <n> Birds sing.", "Rain fell."]
    config = EvaluationConfig(metrics=("BLEU", "ROUGE-1", "ROUGE-Lsum"))
    one, three = controls(documents, references, config)
    assert one == ("lead-1 (the first sentence of the document): ROUGE-1 = 83.3, ROUGE-Lsum = 83.3")
    assert three == (
        "lead-3 (the first 3 sentences of the document): ROUGE-1 = 90.0, ROUGE-Lsum = 90.0"
    )

"""Scores match those of sacrebleu."""

import re

import jiwer
import pytest
import sacrebleu

from transformer_jax.base.errors import UserError
from transformer_jax.config import EvaluationConfig
from transformer_jax.config.metrics import TRANSLATION
from transformer_jax.evaluation.metrics import METRICS, check, exact_match, score, unsuited
from transformer_jax.reports.units import units

REFERENCES = ["The cat sat on the mat, twice.", "It's raining cats & dogs!", "", "A Dog barks ."]
HYPOTHESES = ["the cat sat on a mat, twice.", "It's raining cats and dogs!", "x", "A dog barks ."]


def test_a_missing_tokenizer_is_reported_early(monkeypatch):
    """Before anything is translated, and with the way to install it."""

    def missing(config):
        raise RuntimeError("Please install MeCab")

    check(EvaluationConfig())
    monkeypatch.setitem(METRICS, "BLEU", missing)
    with pytest.raises(UserError, match=r"bleu_tokenize='ja-mecab': .*MeCab.*sacrebleu\[ja\]"):
        check(EvaluationConfig(bleu_tokenize="ja-mecab"))


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("tokenize", ["13a", "none", "char", "intl", "zh"])
def test_scores_match_sacrebleu(tokenize, lowercase):
    config = EvaluationConfig(bleu_tokenize=tokenize, lowercase=lowercase)
    bleu, chrf = score(HYPOTHESES, REFERENCES, config)
    expected = sacrebleu.corpus_bleu(
        HYPOTHESES, [REFERENCES], tokenize=tokenize, lowercase=lowercase, force=True
    )
    assert bleu.value == expected.score
    assert chrf.value == sacrebleu.CHRF(lowercase=lowercase).corpus_score(
        HYPOTHESES, [REFERENCES]
    ).score  # fmt: skip
    assert (bleu.name, chrf.name) == ("BLEU", "chrF")
    case = "lc" if lowercase else "mixed"
    assert bleu.signature.startswith(
        f"nrefs:1|case:{case}|eff:no|tok:{tokenize}|smooth:exp|version:"
    )
    assert chrf.signature.startswith(f"nrefs:1|case:{case}|eff:yes|nc:6|nw:0|space:no|version:")
    assert bleu.details == str(expected)


@pytest.mark.parametrize(
    ("name", "usual"), [("BLEU", sacrebleu.BLEU()), ("chrF", sacrebleu.CHRF()),
                        ("TER", sacrebleu.TER())],
)  # fmt: skip
def test_defaults_are_those_of_sacrebleu(name, usual):
    """Signatures too, in texts whose case differs."""
    shouted = [line.upper() for line in HYPOTHESES]
    (found,) = score(shouted, REFERENCES, EvaluationConfig(metrics=(name,)))
    assert found.value == usual.corpus_score(shouted, [REFERENCES]).score
    assert found.signature == str(usual.get_signature())


def test_case_and_tokenisation_affect_the_score():
    values = {
        (tokenize, lowercase): score(
            HYPOTHESES, REFERENCES, EvaluationConfig(bleu_tokenize=tokenize, lowercase=lowercase)
        )[0].value
        for tokenize in ("13a", "none")
        for lowercase in (False, True)
    }
    assert len(set(values.values())) == 4
    assert values["13a", True] > values["13a", False] > values["none", False]


def test_identical_texts_score_100():
    texts = ["one two three four five", "six seven eight nine ten"]
    assert [s.value for s in score(texts, texts, EvaluationConfig())] == pytest.approx([100, 100])
    assert exact_match(texts, texts) == 100


def test_exact_match():
    assert exact_match(["a", "b", "c", ""], ["a", "B", "d", ""]) == 50
    assert exact_match([], []) == 0


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("other", ["a b c. ", "  a  b c.", "a\u00a0b c.", "A b C."])
def test_exact_match_compares_what_scores_compare(other, lowercase):
    """What BLEU and chrF take for the same text: 100 % of one is 100 % of the others."""
    config = EvaluationConfig(lowercase=lowercase)
    perfect = all(s.value > 99.99 for s in score(["a b c."], [other], config))
    assert perfect == (other.lower() == other or lowercase)
    assert exact_match(["a b c."], [other], lowercase) == 100 * perfect
    row = {"hypothesis": "a b c.", "reference": other}
    assert units("translate", config)["exact_match"].of([row]) == [(perfect, 1)]


def test_line_counts_must_match():
    with pytest.raises(ValueError, match="1 hypotheses for 2 references"):
        score(["a"], ["a", "b"], EvaluationConfig())
    with pytest.raises(ValueError, match="longer"):
        exact_match(["a"], ["a", "b"])


def test_intervals_match_sacrebleu():
    """The score and its signature are the same with and without an interval."""
    hypotheses, references = HYPOTHESES[::2] * 5 + HYPOTHESES, REFERENCES[::2] * 5 + REFERENCES
    plain = score(hypotheses, references, EvaluationConfig())
    shown = score(hypotheses, references, EvaluationConfig(), resamples=200)
    bleu = sacrebleu.BLEU().corpus_score(hypotheses, [references], n_bootstrap=200)
    chrf = sacrebleu.CHRF().corpus_score(hypotheses, [references], n_bootstrap=200)
    for one, other, expected in zip(plain, shown, (bleu, chrf), strict=True):
        assert one.interval is None
        assert (other.value, other.signature) == (one.value, one.signature)
        assert other.details == str(expected)
        low, high = other.interval
        assert (low + high) / 2 == pytest.approx(expected._mean)
        assert (high - low) / 2 == pytest.approx(expected._ci)
        assert low < expected._mean < high


def test_resamples_without_a_match_have_an_interval():
    """Some resamples of a poor model have no correct character: their chrF is another kind of 0."""
    for hypotheses in (["xyz"] * 59 + ["abc"], ["xyz"] * 60):
        bleu, chrf = score(hypotheses, ["abc def"] * 60, EvaluationConfig(), resamples=100)
        for found in (bleu, chrf):
            low, high = found.interval
            assert low <= found.value <= high


def test_every_score_has_a_direction():
    """Whatever is measured can be ranked."""
    assert METRICS.keys() <= TRANSLATION.keys()
    ways = {name: metric.gain(2.0) > metric.gain(1.0) for name, metric in TRANSLATION.items()}
    rouge = (f"ROUGE-{kind}" for kind in ("1", "2", "L", "Lsum"))
    better = dict.fromkeys(("BLEU", "chrF", "labelled_F1", "exact_match", *rouge), True)
    assert ways == better | dict.fromkeys(("TER", "WER", "CER"), False)


def test_error_rates_match_counts_by_hand_and_jiwer():
    """Of the whole corpus; intervals, perfect scores and case are tested as for other metrics."""
    references = ["one two three", "four", "five six", "Seven", "eight nine ten"]
    hypotheses = ["one too three", "", "five  five six", "seven", "eight nine ten"]
    config = EvaluationConfig(metrics=("WER", "CER"))
    wer, cer = score(hypotheses, references, config, resamples=200)
    assert wer.value == pytest.approx(100 * 4 / 10)  # too, four, five, seven
    assert wer.value == pytest.approx(100 * jiwer.wer(references, hypotheses))
    assert "(2 substituted, 1 deleted, 1 inserted, of 10)" in wer.details
    assert wer.signature.startswith("nrefs:1|case:mixed|unit:words|version:jiwer-")
    lines = [" ".join(x.split()) for x in hypotheses]
    assert cer.value == pytest.approx(100 * jiwer.cer(references, lines))
    low, high = wer.interval
    assert 0 <= low < wer.value < high
    assert score(references, references, config)[0].value == 0
    folded = score(hypotheses, references, EvaluationConfig(metrics=("WER",), lowercase=True))
    assert folded[0].value == pytest.approx(30)
    assert score(["a b"], [""], config)[0].value == 200  # nothing was spoken: counted as one word
    assert not TRANSLATION["WER"].greater_is_better


CHINESE = ["我喜欢苹果，不是香蕉！", "他昨天去了北京，今天回来。", "这个问题很简单，大家都知道。"]
JAPANESE = ["私はりんごが好きです。", "彼は昨日東京に行きました。", "これはとても簡単な問題です。"]
THAI = ["ผมชอบแอปเปิ้ลไม่ใช่กล้วย", "เขาไปกรุงเทพเมื่อวานนี้"]


@pytest.mark.parametrize(
    ("lines", "tokenize", "first"),
    [
        (CHINESE, "13a", "'zh'"), (CHINESE, "intl", "'zh'"), (CHINESE, "none", "'zh'"),
        (JAPANESE, "13a", "'ja-mecab'"), (JAPANESE, "none", "'ja-mecab'"), (THAI, "13a", "'zh'"),
    ],
)  # fmt: skip
def test_a_tokenizer_that_does_not_suit_the_script_is_named(lines, tokenize, first):
    """What is wrong anywhere in a phrase makes the whole phrase wrong."""
    config = EvaluationConfig(bleu_tokenize=tokenize)
    nearly = [line[:-2] + line[-1] for line in lines]
    other = score(nearly, lines, EvaluationConfig(bleu_tokenize="char"))[0].value
    assert score(nearly, lines, config)[0].value < other / 3
    (line,) = unsuited(config, ["BLEU"], lines)
    assert line.startswith(f"evaluation.bleu_tokenize='{tokenize}': takes whole phrases")
    assert f"set it to {first}" in line
    assert "'char' or 'spm' for any language" in line
    for name in re.findall(r"'([\w-]+)'", line.partition("set it to")[2]):
        EvaluationConfig(bleu_tokenize=name)


def test_word_error_rates_of_text_without_spaces_are_warned_of():
    lines = unsuited(EvaluationConfig(bleu_tokenize="zh"), ["BLEU", "chrF", "TER", "WER"], CHINESE)
    assert {line.rpartition("; ")[2] for line in lines} == {"use CER", "use chrF"}
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("lines", "tokenize"),
    [
        (CHINESE, "zh"), (CHINESE, "char"), (JAPANESE, "char"),
        (["我 喜欢 苹果 ， 不 是 香蕉 ！"], "none"), (REFERENCES, "13a"), (REFERENCES, "none"),
        (["저는 사과를 좋아합니다.", "그는 어제 서울에 갔습니다."], "13a"), ([], "13a"),
        (["Donaudampfschifffahrtsgesellschaftskapitän " * 3], "13a"),
        (["Er sagte „你好“ zu ihr, und sie verstand es."], "13a"),
    ],
)  # fmt: skip
def test_suitable_tokenizers_are_not_warned_of(lines, tokenize):
    assert unsuited(EvaluationConfig(bleu_tokenize=tokenize), ["BLEU"], lines) == []


@pytest.mark.parametrize("tokenize", ["13a", "none", "char"])
def test_text_that_looks_tokenised_is_warned_of_unless_it_is_meant_to_be(tokenize, caplog):
    texts = ["a dog barks ."] * 100
    score(texts, texts, EvaluationConfig(bleu_tokenize=tokenize), resamples=2)
    said = [r.message for r in caplog.records if "tokenized period" in r.message]
    assert len(said) == (tokenize != "none")


def test_a_tokenizer_that_cannot_be_downloaded_is_reported_early(monkeypatch):
    def offline(config):
        raise OSError("no route to host")

    monkeypatch.setitem(METRICS, "BLEU", offline)
    with pytest.raises(UserError, match=r"bleu_tokenize='spm': .*download.*\(no route to host\)"):
        check(EvaluationConfig(bleu_tokenize="spm"))

"""HTML pages: no data becomes mark-up, only our scripts may run, and all stay small."""

import base64
import hashlib
import random
import re

import pytest
from written import HOSTILE

from transformer_jax.plots import page as pages
from transformer_jax.plots.page import MOST_BYTES, render, unpack

REPORT = {
    "title": HOSTILE[1], "made": "now", "split": "test", "runs": [], "sweep": None,
    "systems": [{"run": 0, "name": HOSTILE[0]}], "tests": [], "groups": {}, "sentences": [],
    "picked": {},
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def sentences(count: int, letters: int, pieces: int = 1) -> list[dict]:
    choose = random.Random(0)
    alphabet = [chr(c) for c in range(0x4E00, 0x4E00 + 5000)]

    def text() -> str:
        return "".join(choose.choices(alphabet, k=letters))

    return [
        {"line": i, "source": text(), "reference": text(),
         "systems": [{"hypothesis": text(), "attention": [text() for _ in range(pieces)]}]}
        for i in range(1, count + 1)
    ]  # fmt: skip


def test_data_does_not_become_mark_up():
    lines = [{"line": i, "source": line, "systems": []} for i, line in enumerate(HOSTILE, 1)]
    page = render({**REPORT, "sentences": lines})
    assert "harmed" not in re.sub(r"<title>.*?</title>", "", page)  # packed beyond recognition
    assert "<title>&lt;/script&gt;&lt;img " in page
    assert unpack(page) == {**REPORT, "sentences": lines, "left_out": 0}
    assert page.count("<script") == page.count("</script>") == 3


def test_the_policy_allows_only_these_scripts_and_no_network():
    page = render(REPORT)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    scripts = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    assert len(scripts) == 2
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert not re.search(r"(script|connect)-src[^;]*('unsafe-inline'|\*|http)", policy)
    markup = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r'<\w+[^>]*\s(src|href)="(?!data:|#)', markup)


def test_pages_stay_small():
    """Sentences that were not picked go first, then the attention of those that were."""
    picked = {"best": [0, 5], "worst": [1000], "random": []}
    page = render({**REPORT, "sentences": sentences(1001, 300), "picked": picked})
    assert len(page.encode()) <= MOST_BYTES
    shown = unpack(page)
    assert {1, 6, 1001} <= {s["line"] for s in shown["sentences"]}
    assert 100 < len(shown["sentences"]) == 1001 - shown["left_out"]
    all_picked = {"best": list(range(40)), "worst": [], "random": []}
    page = render({**REPORT, "sentences": sentences(40, 300, 200), "picked": all_picked})
    assert len(page.encode()) <= MOST_BYTES
    shown = unpack(page)
    assert len(shown["sentences"]) == 40
    assert 0 < sum("attention" in s["systems"][0] for s in shown["sentences"]) < 40


def test_the_library_is_bundled_once(monkeypatch):
    import vl_convert

    render(REPORT)
    monkeypatch.setattr(vl_convert, "javascript_bundle", None)
    assert "vegaEmbed" in pages._library()

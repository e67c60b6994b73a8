"""Reports in a browser: clicks, search, tooltips, narrow and wide windows, light and dark, and text
that would do harm if it were taken for mark-up.
"""

import contextlib
import json
import math
import shutil

import pytest
from written import EXPERIMENT, HOSTILE, PLAIN, predicted, scored, trained, with_field

from transformer_jax.plots.page import render
from transformer_jax.reports.report import gather
from transformer_jax.runs.workdir import WorkDir, read_rows

playwright = pytest.importorskip(
    "playwright.sync_api", reason="no playwright: pip install -e '.[browser]', and Chromium"
)
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
REFERENCES = [*PLAIN, *HOSTILE]
SOURCES = [*HOSTILE, *PLAIN]
EVIL = "<img src=x onerror=harmed=4>"  # a directory may have this name


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium; a machine without it skips, and says so."""
    if CHROMIUM is None:
        pytest.skip("no chromium on the PATH: reports were opened in no browser")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[WorkDir]:
    place = tmp_path_factory.mktemp("runs")
    one = trained(place / "one")
    other = trained(place / EVIL, with_field(EXPERIMENT, "data.name", HOSTILE[1]), factor=1.3)
    scored(one, SOURCES, REFERENCES, [line.replace("Hund", "Kater") for line in REFERENCES])
    scored(other, SOURCES, REFERENCES, [line[::-1] for line in REFERENCES])
    return [one, other]


@pytest.fixture(scope="module")
def report(runs, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(gather([(run, None) for run in runs])), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def sweep(tmp_path_factory) -> str:
    place = tmp_path_factory.mktemp("sweep")
    for d_ff in (32, 64, 128):
        experiment = with_field(EXPERIMENT, "model.d_ff", d_ff)
        trained(place / f"s/model.d_ff={d_ff}", experiment, factor=64 / d_ff)
    (place / "sweep.html").write_text(render(gather([(WorkDir(place / "s"), None)])))
    return (place / "sweep.html").as_uri()


@contextlib.contextmanager
def opened(browser, address: str, width: int = 1280, scheme: str = "light"):
    """Open a page, which must not fail, warn, access the network or execute what it shows."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    output: list[str] = []
    page.on("console", lambda message: output.append(message.text))
    page.on("pageerror", lambda error: output.append(str(error)))
    page.on("request", lambda request: output.append(request.url))
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    page.wait_for_selector("#curve-loss svg")
    yield page
    assert [
        line for line in output if line != address and not line.startswith(("data:", "blob:"))
    ] == []
    assert page.evaluate("typeof harmed") == "undefined"
    context.close()


def tooltip(page, mark) -> dict[str, str]:
    """Hover over the middle of a mark, and return its tooltip."""
    mark.scroll_into_view_if_needed()
    mark.hover(force=True)
    page.wait_for_selector("#vg-tooltip-element.visible")
    cells = page.locator("#vg-tooltip-element td").all_inner_texts()
    return dict(zip(cells[::2], cells[1::2], strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(browser, report, sweep, width, scheme):
    for address in (report, sweep):
        with opened(browser, address, width, scheme) as page:
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            back = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert back == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 22, 26)"}[scheme]
            ink = page.locator("#curve-loss svg text").first.get_attribute("fill")
            assert ink == {"light": "#16181d", "dark": "#eceef2"}[scheme]


def test_scores_come_first_and_provenance_is_folded_away(browser, report):
    with opened(browser, report) as page:
        order = page.evaluate("[...document.querySelectorAll('main > section')].map(s => s.id)")
        assert order.index("scores") < order.index("abstract")
        assert page.evaluate("document.querySelectorAll('.card > details:not([open])').length") == 2
        assert not page.locator(".card dl").first.is_visible()


def test_a_single_row_is_drawn_as_a_point(browser, tmp_path):
    """A line needs two. And in a narrow window, the legend of the times is not cut off."""
    (tmp_path / "page.html").write_text(
        render(gather([(trained(tmp_path / "one", steps=10), None)]))
    )
    with opened(browser, (tmp_path / "page.html").as_uri(), 390) as page:
        for name in ("loss", "learning_rate"):
            assert page.locator(f"#curve-{name} .mark-symbol path").count() == 1
        page.wait_for_selector("#phases svg")
        whole, legend = (page.locator(f"#phases {part}").first.bounding_box()
                         for part in ("svg", ".role-legend"))  # fmt: skip
        assert legend["x"] + legend["width"] <= whole["x"] + whole["width"]


def test_rounding_shows_no_negative_zero(browser, tmp_path):
    run = trained(tmp_path / "one")
    scored(run, PLAIN, PLAIN, PLAIN)
    file = run.eval / "test.best.json"
    result = json.loads(file.read_text())
    result["scores"]["BLEU"]["interval"] = [-0.004, 0.06]
    file.write_text(json.dumps(result))
    (tmp_path / "page.html").write_text(render(gather([(run, None)])))
    with opened(browser, (tmp_path / "page.html").as_uri()) as page:
        assert "0.0 to 0.1" in page.locator("#scores-table").inner_text()
        assert "-0.0" not in page.locator("main").inner_text()


def test_a_long_score_name_cuts_off_no_value(browser, tmp_path):
    """It includes settings of eval.py, and wraps where it has to."""
    run = trained(tmp_path / "one")
    scored(run, PLAIN, PLAIN, PLAIN, checkpoint="best,decoding.beam_size=1,decoding.alpha=1.0")
    (tmp_path / "page.html").write_text(render(gather([(run, None)])))
    with opened(browser, (tmp_path / "page.html").as_uri(), 390) as page:
        cut = "e => e.scrollWidth > e.clientWidth"
        assert not page.locator("#scores-table .scroll").evaluate(cut)


def test_a_narrow_window_cuts_off_nothing_without_a_cue(browser, report, sweep):
    """The header leaves the scores on the first screen; a row of scores is a block; what is wider
    than its container says so, and nothing else does.
    """
    cut = "e => e.scrollWidth > e.clientWidth + 1"
    cues = f"""[...document.querySelectorAll('.scroll, .chart.wide')]
        .filter(e => e.checkVisibility())
        .map(e => [({cut})(e), !e.previousElementSibling.hidden])"""
    for address in (report, sweep):
        for width in (390, 1280):
            with opened(browser, address, width) as page:
                assert page.evaluate("document.querySelector('main section').offsetTop") < 844
                page.wait_for_timeout(300)
                found = page.evaluate(cues)
                assert all(wide == output for wide, output in found)
                if (address, width) == (sweep, 390):
                    assert page.locator("#sweep-table").evaluate(cut)
                if address == report:
                    assert not page.locator("#scores-table .scroll").evaluate(cut)


def test_curves_can_be_toggled_and_show_their_values(browser, report, runs):
    losses = [[row["loss"] for row in read_rows(run.metrics) if "loss" in row] for run in runs]
    with opened(browser, report) as page:
        lines = page.locator("#curve-loss .mark-line path")
        assert lines.count() == 2
        dashes = {lines.nth(i).get_attribute("stroke-dasharray") for i in range(2)}
        assert len(dashes) == 2  # told apart without colour
        output = tooltip(page, page.locator("#curve-loss svg"))
        at = int(output["step"]) // 10 - 1
        for name, rows in zip(("one", EVIL), losses, strict=True):
            assert float(output[name]) == pytest.approx(rows[at], rel=1e-4)
        page.get_by_role("checkbox", name="one", exact=True).uncheck()
        playwright.expect(lines).to_have_count(1)
        assert "one" not in tooltip(page, page.locator("#curve-loss svg"))
        page.get_by_role("checkbox", name="logarithmic vertical axis").check()
        page.locator("#across").select_option("minutes")
        playwright.expect(page.locator("#curve-loss")).to_contain_text("minutes")


def test_sentences_can_be_sorted_and_searched(browser, report, runs):
    rows = read_rows(runs[0].eval / "test.best.jsonl", "line")
    worst = min(rows, key=lambda row: (row["chrF"], -len(row["reference"])))
    with opened(browser, report) as page:
        assert page.locator("article").count() == 8
        assert f"line {worst['line']} " in page.locator("article header").first.inner_text()
        page.get_by_role("button", name="Show more").click()
        assert page.locator("article").count() == len(rows)
        page.get_by_label("Search").fill("<SCRIPT>")
        assert page.locator("#found").inner_text() == "2 found"  # a source, and a reference
        page.get_by_label("Search").fill("Satz 7 vom Hund")
        assert page.locator("#found").inner_text() == "2 found"
        page.get_by_label("Search").fill("")
        page.locator("#order").select_option("file")
        assert page.locator("article header").first.inner_text().startswith("line 1 ")
        marks = page.locator("article").first.locator("dd").nth(2).locator("mark").all_inner_texts()
        assert marks == ["Kater"]
        lacks = page.locator("article").first.locator("mark.lack").all_inner_texts()
        assert lacks == ["Hund"]


def test_hostile_text_is_shown_as_text(browser, report):
    with opened(browser, report) as page:
        page.locator("#order").select_option("file")
        page.get_by_role("button", name="Show more").click()
        shown = page.locator("article dd:first-of-type").all_text_contents()
        for line in HOSTILE[:3]:
            assert line in shown
        assert page.locator("main img, main script").count() == 0
        assert page.locator("bdi", has_text=EVIL).count() > 0
        arabic = page.locator("article dd", has_text="هذه").first
        assert arabic.evaluate("e => getComputedStyle(e).direction") == "rtl"
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
        buttons = page.get_by_role("button", name="Attention").all()
        for button in buttons:
            button.click()  # the axes show pieces of all of them
        playwright.expect(page.locator(".attention svg")).to_have_count(len(buttons))


def test_attention_shows_its_weights(browser, report):
    with opened(browser, report) as page:
        button = page.get_by_role("button", name="Attention: one").first
        button.focus()
        page.keyboard.press("Enter")
        assert button.get_attribute("aria-expanded") == "true"
        cells = page.locator(".attention .mark-rect.role-mark path")
        cells.first.wait_for()
        assert cells.count() == 4
        output = tooltip(page, cells.nth(0))
        assert output["weight"] == "0.250"  # the last layer, whose heads are the same
        page.get_by_label("Decoder layer").first.select_option("0")
        page.get_by_label("head").first.select_option("0")
        page.mouse.move(0, 0)
        playwright.expect(page.locator("#vg-tooltip-element.visible")).to_have_count(0)
        playwright.expect(page.locator(".attention svg").first).not_to_contain_text(
            "0.7"
        )  # the legend
        output = tooltip(page, page.locator(".attention .mark-rect.role-mark path").nth(0))
        assert output["weight"] == "0.900"
        assert output["target"].startswith("▁")


def test_scores_groups_and_paired_tests_are_shown(browser, report, runs):
    written = json.loads((runs[0].eval / "test.best.json").read_text())
    with opened(browser, report) as page:
        table = page.locator("#scores-table tbody tr").first.inner_text()
        assert f"{written['scores']['BLEU']['value']:.1f}" in table
        points = page.locator("#where-length .mark-symbol path")
        points.first.wait_for()
        output = tooltip(page, points.first)
        assert output["run"] == "one"
        page.locator("#where-metric").select_option("length ratio")
        playwright.expect(page.locator("#where-charts small").first).to_have_text("length ratio")
        paired = page.locator("#tests").inner_text()
        assert "paired bootstrap, p = " in paired


def test_a_report_on_a_language_model_does_not_mention_translation(browser, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(render(gather([(predicted(tmp_path / "lm"), None)])), encoding="utf-8")
    with opened(browser, path.as_uri()) as page:
        whole = page.locator("main").inner_text()
        for text in (
            "Prediction quality", "A language model: a Transformer with 12,345 parameters.",
            "678 windows of 16 pieces of", "it has loss 1.835, perplexity 6.262, bits per",
        ):  # fmt: skip
            assert text in whole
        page.get_by_text("About these figures").click()
        assert "e to the power of the loss. " in page.locator("#scores-table").inner_text()
        shown = (
            page.locator("#scores").inner_text() + page.locator("#abstract p").first.inner_text()
        )
        for word in ("translat", "BLEU", "sentence", "esamples", "pairs", "_", "score it"):
            assert word not in shown


def test_the_keyboard_reaches_everything(browser, report):
    with opened(browser, report) as page:
        reached = []
        for _ in range(60):
            page.keyboard.press("Tab")
            now = "document.activeElement"
            reached.append(page.evaluate(f"{now}.id || {now}.textContent"))
        assert reached[0] == "Skip to the report"
        assert {"where-metric", "order", "search", "more", "across", "log-y"} <= set(reached)
        assert any(text.startswith("Model, machine, time") for text in reached)


def test_commands_can_be_copied(browser, report):
    with opened(browser, report) as page:
        with contextlib.suppress(Exception):  # without permission, it is selected instead
            page.context.grant_permissions(["clipboard-write"])
        page.locator(".card summary").first.click()
        page.get_by_role("button", name="Copy").first.click()
        status = page.locator(".card [role=status]").first
        status.filter(has_text="ed").wait_for()
        if "selected" in status.inner_text():
            assert page.evaluate("getSelection().toString()").startswith("python train.py")


def test_every_point_of_a_sweep_shows_its_time(browser, sweep):
    with opened(browser, sweep) as page:
        page.wait_for_selector("#phases svg")
        output = page.locator("#phases .mark-text.role-mark text").all_text_contents()
        assert output == ["109 s"] * 3  # 84 + 10.5 + 9 + 5.2
        assert "in 1.81 minutes, of which its steps" in page.locator(".card p").first.inner_text()


def test_a_sweep_can_be_sorted_and_inspected(browser, sweep):
    def column(page, number: int) -> list[str]:
        return page.locator(f"#sweep-table tbody td:nth-child({number})").all_inner_texts()

    with opened(browser, sweep) as page:
        page.wait_for_selector("#sweep-lines svg")
        assert column(page, 1) == ["128", "64", "32"]  # the best first
        page.locator("#sweep-table th button").first.click()
        assert column(page, 1) == ["32", "64", "128"]
        head = page.locator("#sweep-table th").first
        assert head.get_attribute("aria-sort") == "ascending"
        page.locator("#sweep-table th button").first.click()
        assert column(page, 1) == ["128", "64", "32"]
        lines = page.locator("#sweep-lines .mark-line path")
        assert lines.count() == 2 * 3  # one to see, one to hover over
        page.get_by_role("button", name="show").nth(1).click()
        assert "model.d_ff=64" in page.locator("#sweep-command").inner_text()
        playwright.expect(
            page.locator("#sweep-lines .mark-line path[stroke-width='5']")
        ).to_have_count(1)
        output = tooltip(page, page.locator("#sweep-lines .mark-symbol path").first)
        assert output["field"] == "model.d_ff"
        assert math.isfinite(float(output["validation BLEU"]))

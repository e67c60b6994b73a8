"""The site, built and opened from disk: no page is wider than its window or fetches anything from
elsewhere, and the search finds what is there.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="no MkDocs: pip install -e '.[site]'")
playwright = pytest.importorskip(
    "playwright.sync_api", reason="no playwright: pip install -e '.[browser]', and Chromium"
)
ROOT = Path(__file__).parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.e2e
KINDS = (
    "index", "docs/data", "docs/recipes", "docs/notebooks/gpt", "experiments/index",
    "experiments/multi30k", "results/index", "results/notes/variants", "reference/commands",
    "reference/choices", "reference/config/model", "reference/mixers",
)  # fmt: skip


@pytest.fixture(scope="module")
def site() -> str:
    """The address of the site, built as `make site` builds it."""
    for command in (
        [sys.executable, "docs/site/pages.py", "build"],
        [sys.executable, "-m", "mkdocs", "build", "--config-file=build/mkdocs.yml"],
    ):
        subprocess.run(command, cwd=ROOT, check=True)
    return (ROOT / "build/site").as_uri()


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium."""
    if CHROMIUM is None:
        pytest.skip("no chromium on the PATH: the site was opened in no browser")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_their_window_and_fetch_nothing(site, browser, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for name in KINDS:
        page.goto(f"{site}/{name}.html")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    assert {url.partition(":")[0] for url in asked} <= {"file", "data", "blob"}, asked
    page.close()


def test_the_search_works_from_disk(site, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 844})
    page.goto(f"{site}/index.html")
    page.wait_for_timeout(1000)  # for the index
    page.locator("input.md-search__input").press_sequentially("label_smoothing")
    # Of each page with results, the section that describes the field; results come as one types.
    found = page.locator(".md-search-result__link", has_text="label_smoothing").first
    found.wait_for(timeout=20_000)
    page.close()

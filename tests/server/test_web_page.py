"""The page in a browser: typing, pointing, keyboard only, narrow and wide, light and dark."""

import contextlib
import dataclasses
import shutil

import pytest
from server.conftest import SETTINGS, chatter, listening, service_of, translator, writer

from transformer_jax.server.tickets import Full

playwright = pytest.importorskip(
    "playwright.sync_api", reason="no playwright: pip install -e '.[browser]', and Chromium"
)
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
EVIL = "<img src=x onerror='window.harmed = 1'> <script>window.harmed = 2</script>"


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium; without one the tests are skipped, and say so."""
    if CHROMIUM is None:
        pytest.skip("no chromium on the PATH: the page was opened in no browser")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def translation(one_device):
    with listening(service_of(translator(), name=EVIL)) as found:
        yield found


@pytest.fixture(scope="module")
def generation(one_device):
    with listening(service_of(writer())) as found:
        yield found


@contextlib.contextmanager
def opened(browser, address: str, width: int = 1280, scheme: str = "light", expected=()):
    """Open the page; it must not fail, warn, contact other hosts or run what it shows."""
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    output: list[str] = []
    page.on("console", lambda message: output.append(message.text))
    page.on("pageerror", lambda error: output.append(str(error)))
    page.on("request", lambda request: output.append(request.url))
    page.goto(address)
    yield page
    allowed = (address, "data:")
    strange = [line for line in output if not line.startswith(allowed)]
    assert [line for line in strange if not any(part in line for part in expected)] == []
    assert page.evaluate("typeof harmed") == "undefined"
    context.close()


def ready(page) -> None:
    page.wait_for_selector("html[data-ready]")


def translated(page, text: str) -> None:
    """Enter a text, and wait for the translation."""
    page.locator("#source").fill(text)
    page.locator("#status", has_text=" s").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(browser, translation, generation, width, scheme):
    for address, _ in (translation, generation):
        with opened(browser, address, width, scheme) as page:
            ready(page)
            if address == translation[0]:
                translated(page, "a dog runs the men walk two dogs run\n" + "dog" * 60)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            back = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert back == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 22, 26)"}[scheme]


def test_translations_appear_while_typing(browser, translation):
    """They appear after a pause, not for each letter, and as text, whatever that looks like."""
    address, _ = translation
    lines = ["a dog runs", "", "two men walk"]
    with opened(browser, address) as page:
        ready(page)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.locator("#source").press_sequentially("a dog runs", delay=20)
        page.locator("#target .word").first.wait_for()
        assert len(asked) <= 2
        translated(page, "\n".join(lines))
        shown = page.locator("#target p").all_inner_texts()
        assert [line.strip() for line in shown] == [
            t.strip() for t in translator().translate(lines)
        ]
        translated(page, EVIL)
        assert page.locator("h1").inner_text() == EVIL
        page.locator("#clear").click()
        assert page.locator("#target").inner_text() == ""


def test_alternatives_and_alignments(browser, translation):
    """The line at the caret has its n-best list; words are highlighted with their source words."""
    (found,) = translator().translator(n_best=3).hypotheses(translator().params, ["a dog runs"])
    with opened(browser, translation[0]) as page:
        ready(page)
        translated(page, "a dog runs")
        buttons = page.locator("#list button span:first-child")
        assert buttons.all_inner_texts() == [t.text or "(nothing)" for t in found]
        page.locator("#list button").nth(1).click()
        assert page.locator("#target").inner_text().strip() == found[1].text.strip()
        assert page.locator("#list button").nth(1).get_attribute("aria-current") == "true"
        page.locator("#target .word").first.hover()
        assert page.locator(".word.linked").count() >= 1
        assert page.locator("#behind mark").count() >= 1
        mark, area = (page.evaluate(
            f"(({{fontSize, lineHeight, paddingLeft}}) => [fontSize, lineHeight, paddingLeft])"
            f"(getComputedStyle(document.querySelector('{which}')))"
        ) for which in ("#behind", "#source"))  # fmt: skip
        assert mark == area  # else the mark would miss its word


def test_keyboard_navigation(browser, translation):
    """Tab reaches everything; the arrow keys move from word to word."""
    with opened(browser, translation[0]) as page:
        ready(page)
        page.keyboard.type("a dog runs")  # the field has the focus
        page.locator("#list button").first.wait_for()
        seen = []
        for _ in range(6):
            page.keyboard.press("Tab")
            seen.append(
                page.evaluate("document.activeElement.id || document.activeElement.tagName")
            )
        assert seen == ["clear", "target", "copy", "BUTTON", "BUTTON", "BUTTON"]
        page.locator("#target").focus()
        page.keyboard.press("ArrowRight")
        assert page.locator(".word.linked").count() >= 1


def test_an_api_key_is_asked_for(browser, translation, monkeypatch):
    address, service = translation
    monkeypatch.setattr(service, "settings", dataclasses.replace(SETTINGS, key="sésame €"))
    with opened(browser, address, expected=["401"]) as page:
        page.locator("#key").fill("wrong")
        page.keyboard.press("Enter")
        page.locator("#status", has_text="not the key").wait_for()
        page.locator("#key").fill("sésame €")
        page.keyboard.press("Enter")
        ready(page)
        translated(page, "a dog")


def test_a_busy_server_is_reported_and_retried(browser, translation, monkeypatch):
    address, service = translation
    with opened(browser, address, expected=["429"]) as page:
        ready(page)

        def full(count: int) -> None:
            raise Full(1.0)

        with monkeypatch.context() as others:
            others.setattr(service.worker, "check", full)
            page.locator("#source").fill("a dog")
            page.locator("#status", has_text="Busy").wait_for()
        page.locator("#target .word").first.wait_for()


def test_generation_from_a_prompt(browser, generation):
    with opened(browser, generation[0], 390, expected=["400"]) as page:
        ready(page)
        page.locator("#prompt").fill("ab")
        page.locator("#temperature").fill("0")
        page.locator("#tokens").fill("9")
        page.keyboard.press("Control+Enter")
        page.locator("#status", has_text="tokens in").wait_for()
        text = writer().generate("ab", 9)
        assert page.locator("#text").inner_text() == text
        assert page.locator("#text .begun").inner_text() == "ab"
        page.locator("#prompt").fill("x" * 40)
        page.locator("#go").click()
        page.locator("#status.bad", has_text="shorten it").wait_for()


# --- conversation -------------------------------------------------------------------------------


def test_a_conversation_goes_on_until_a_new_one_begins(browser, one_device):
    """By the keyboard; the history counts, and a new conversation forgets it."""
    trained = chatter()
    service = service_of(trained, max_tokens=3)
    with listening(service) as (address, _), opened(browser, address) as page:
        ready(page)
        talk: list[dict[str, str]] = []
        for text in ("a", "b"):
            talk.append({"role": "user", "content": text})
            page.locator("#message").fill(text)
            page.keyboard.press("Enter")
            page.locator("#status", has_text=" s").wait_for()
            talk.append({"role": "assistant", "content": trained.chat(talk, 3)})
            said = page.locator("#messages .assistant").all_inner_texts()
            assert said == [message["content"] for message in talk[1::2]]
        page.locator("#anew").click()
        page.locator("#message").fill("a")
        page.locator("#send").click()
        page.locator("#status", has_text=" s").wait_for()
        assert page.locator("#messages .assistant").all_inner_texts() == [talk[1]["content"]]

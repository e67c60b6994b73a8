"""Run other servers' own tests against a server of ours.

    transformer-jax serve --workdir=runs/words --name=Qwen/Qwen3-0.6B &
    python benchmarks/peers/suites.py --server=http://127.0.0.1:8000 --vllm=test_completion.py

`--vllm` takes vLLM's tests/entrypoints/openai/completion/test_completion.py, for a language model
that is served under the name that the file asks for; `--libretranslate` LibreTranslate's folder
libretranslate/tests/test_api, for a translator. Neither is part of this repository. What fails is
listed with the reason; the exit code is pytest's. Needs the extra `bench`.
"""

import argparse
import asyncio
import functools
import inspect
import sys
import types
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, ClassVar

import httpx
import openai
import pytest

LOOP = asyncio.new_event_loop()  # of fixtures and tests
_RUNNING: list[AsyncGenerator] = []


class Answer:
    """An answer, as Flask's test client gives it."""

    def __init__(self, answer: httpx.Response) -> None:
        self.status_code, self.data = answer.status_code, answer.content
        self._answer = answer

    @property
    def json(self) -> Any:
        """The body, read."""
        return self._answer.json()


class Remote:
    """A running server in the place of the application that LibreTranslate's tests make."""

    def __init__(self, server: str) -> None:
        self._server = server.rstrip("/")

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """Run a test that is a coroutine."""
        if not inspect.iscoroutinefunction(pyfuncitem.obj):
            return None
        names = inspect.signature(pyfuncitem.obj).parameters
        LOOP.run_until_complete(
            pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
        )
        return True

    @pytest.fixture
    def client(self) -> "Remote":
        """The client that tests call."""
        return self

    def get(self, path: str) -> Answer:
        """GET a path."""
        return Answer(httpx.get(self._server + path, timeout=60))

    def post(self, path: str, **body: Any) -> Answer:
        """POST `data`, the fields of a form, or `json` to a path."""
        return Answer(httpx.post(self._server + path, timeout=60, **body))


class RemoteOpenAIServer(AbstractContextManager):
    """A running server in the place of the one that vLLM's tests start."""

    server = ""

    def __init__(self, model: str, arguments: list[str]) -> None:
        self.model = model

    def __exit__(self, *error: object) -> None:
        pass

    def get_async_client(self) -> openai.AsyncOpenAI:
        """Return OpenAI's client, which does not try again."""
        return openai.AsyncOpenAI(base_url=f"{self.server}/v1", api_key="none", max_retries=0)


class Tokenizer:
    """Texts of tokens, by the server."""

    def __init__(self, tokenizer_name: str) -> None:
        self.name = tokenizer_name

    def decode(self, tokens: list[int]) -> str:
        """Return the text of tokens, as a completion repeats it."""
        client = openai.OpenAI(base_url=f"{RemoteOpenAIServer.server}/v1", api_key="none")
        made = client.completions.create(model=self.name, prompt=tokens, echo=True, max_tokens=0)
        return made.choices[0].text


def fixture(make: Callable[..., AsyncGenerator]) -> Any:
    """Return a fixture with the value that an asynchronous one yields."""

    @functools.wraps(make)
    def made(*arguments: Any, **named: Any) -> Any:
        running = make(*arguments, **named)
        _RUNNING.append(running)  # what it yields is closed once nobody holds it
        return LOOP.run_until_complete(anext(running))

    return pytest.fixture(made)


class TheirModules(MetaPathFinder, Loader):
    """What tests import of the server they are written for: some parts have a place here, and what
    uses any other fails.
    """

    _PARTS: ClassVar[dict[str, dict[str, Any]]] = {
        "pytest_asyncio": {"fixture": fixture},
        "tests": {},
        "tests.utils": {"RemoteOpenAIServer": RemoteOpenAIServer},
        "vllm.tokenizers": {"get_tokenizer": Tokenizer},
    }

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """See MetaPathFinder."""
        ours = fullname in self._PARTS or fullname.partition(".")[0] == "vllm"
        return ModuleSpec(fullname, self, is_package=True) if ours else None

    def exec_module(self, module: types.ModuleType) -> None:
        """See Loader."""
        vars(module).update(self._PARTS.get(module.__name__, {}))
        if module.__name__ not in self._PARTS:
            vars(module)["__getattr__"] = lambda name: None


def main() -> int:
    """Run the tests, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--server", required=True, metavar="URL")
    parser.add_argument("--vllm", type=Path, metavar="FILE")
    parser.add_argument("--libretranslate", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    tests = [str(path) for path in (arguments.vllm, arguments.libretranslate) if path]
    if not tests:
        parser.error("--vllm=FILE or --libretranslate=FOLDER: say whose tests to run")
    RemoteOpenAIServer.server = arguments.server.rstrip("/")
    sys.meta_path.insert(0, TheirModules())
    # Neither our own settings of pytest nor a conftest that imports their application.
    own = [
        "-c",
        "/dev/null",
        "--noconftest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:anyio",
        "-W",
        "ignore",
        "--tb=line",
    ]
    return pytest.main([*own, *tests], plugins=[Remote(arguments.server)])


if __name__ == "__main__":
    sys.exit(main())

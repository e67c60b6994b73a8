"""transformer-jax chat --workdir=DIR [--system=TEXT]"""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import CHECKPOINTS, WORKDIRS, Parser
from transformer_jax.cli.generate import add_sampling, sampling_of
from transformer_jax.cli.model import adjusted, load_adjusted, prepare_process
from transformer_jax.config.choices.searches import GREEDY, ONE, check_search
from transformer_jax.data.conversations import options_of
from transformer_jax.runs.workdir import WorkDir

_NEW = "/new"
_HELP = f"""\
Talk to a chat model, or to an imported language model that has a chat template: each line is a
message, and its answer is shown as it is written. {_NEW} begins another conversation; the end of
the input, Ctrl-D, ends.

Where a conversation becomes longer than the model was trained on, its oldest messages are left
out, but for --system.

Answers are greedy, or random with an option of sampling. The fields of decoding can be changed."""


def main(argv: Sequence[str]) -> int:
    """Talk, and return the exit code."""
    parser = Parser(_HELP)
    add = parser.add_argument
    add("--workdir", required=True, action="append", help=WORKDIRS)
    add("--checkpoint", help=CHECKPOINTS)
    add("--system", metavar="TEXT", help="a message that every conversation begins with")
    add("--chat-template-kwargs", metavar="JSON",
        help='options of the chat template, as {"enable_thinking": false}')  # fmt: skip
    add("--max-tokens", type=int, metavar="N", help="at most N pieces in an answer; default: 256")
    add("--sample", action="store_true", help="random answers")
    add_sampling(parser, several=False)
    arguments, overrides = parser.read(argv)
    kwargs = _options(arguments.chat_template_kwargs)
    greedy = [(f"decoding.{name}", str(value)) for name, value in (ONE | GREEDY).items()]
    options = [*greedy, *overrides, *sampling_of(arguments)]
    experiment = adjusted(WorkDir(arguments.workdir[0]).experiment(), options)
    check_search(experiment.decoding.search, dict(overrides))
    prepare_process()
    checkpoint = arguments.checkpoint or experiment.evaluation.checkpoint
    trained = load_adjusted(arguments.workdir, checkpoint, experiment)
    generator = trained.chat_generator(experiment.decoding)
    chat = Chat(trained, generator, arguments.system, kwargs)
    for line in _lines():
        if line.strip() == _NEW:
            chat.begin()
            continue
        if not line.strip():
            continue
        for part in chat.answer(line, arguments.max_tokens):
            print(part, end="", flush=True)
        print(flush=True)
    return 0


class Chat:
    """A conversation with a model."""

    def __init__(
        self, trained: Any, generator: Any, system: str | None, options: Any = None
    ) -> None:
        self._trained, self._generator = trained, generator
        self._first = [] if system is None else [{"role": "system", "content": system}]
        self._options = options  # of the chat template
        self._number = 0  # of answers, on which samples depend
        self.begin()

    def begin(self) -> None:
        """Forget all messages but the system's."""
        self.messages: list[dict[str, str]] = []

    def answer(self, text: str, max_tokens: int | None) -> Iterator[str]:
        """Yield the answer to a message, in parts."""
        self.messages.append({"role": "user", "content": text})
        self._number += 1
        read = self._read()
        window = self._trained.experiment.objective.window
        while len(read) > window and len(self.messages) > 1:
            self.messages = self.messages[2:]  # a question and its answer
            read = self._read()
        parts = self._generator.stream(self._trained.params, read, max_tokens, self._number)
        said = []
        for part in parts:
            said.append(part)
            yield part
        self.messages.append({"role": "assistant", "content": "".join(said)})

    def _read(self) -> list[int]:
        messages = [*self._first, *self.messages]
        return self._generator.reader.asked(messages, options=self._options)


def _options(text: str | None) -> Any:
    """Return options of a chat template, which are written as JSON."""
    try:
        options = None if text is None else json.loads(text)
    except ValueError:
        raise UserError(
            f'--chat-template-kwargs: is {text!r:.40}, not JSON as {{"enable_thinking": false}}'
        ) from None
    return options_of(options, "--chat-template-kwargs")


def _lines() -> Iterator[str]:
    """Yield what is typed, or the lines of standard input."""
    if sys.stdin.isatty():
        from transformer_jax.cli.lines import typed

        yield from typed()
    else:
        yield from (line.removesuffix("\n") for line in sys.stdin)

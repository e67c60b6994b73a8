"""Chat templates: how a conversation becomes one text, and its pieces.

A template is Jinja's, in the form of Hugging Face `transformers`: it gets `messages`, `tools`,
`add_generation_prompt`, `bos_token`, `eos_token` and its own options, and may mark what the
assistant says with `{% generation %}`. Templates of others run in Jinja's sandbox.
"""

import datetime as dt
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from transformer_jax.base.errors import UserError
from transformer_jax.config.choices.chat import CHAT_TEMPLATES
from transformer_jax.data.codecs.chat_pieces import (
    Named,
    Rendered,
    encoded,
    last_named,
    marked_to_end,
    to_end,
)
from transformer_jax.data.codecs.codec import SPECIAL, SPELLED, Codec, hashed
from transformer_jax.data.conversations import (
    MARKS,
    Conversation,
    Message,
    conversation_of,
    conversations_in,
)

FILE = "chat_template.jinja"  # in a work directory, as in the directories of `transformers`
SOURCES = {
    # OpenAI's, as in Qwen 2.
    "chatml": (
        "{% for message in messages %}"
        "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    ),
    "llama3": (
        "{{ bos_token }}{% for message in messages %}"
        "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' "
        "+ message['content'] | trim + '<|eot_id|>' }}"
        "{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
    ),
    "zephyr": (
        "{% for message in messages %}"
        "{{ '<|' + message['role'] + '|>\\n' + message['content'] + eos_token + '\\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
    ),
}  # fmt: skip
# Around what a template marks, and around a content's number.
_BEGIN, _END, _OPEN, _CLOSE = MARKS
_HELD = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
_THOUGHTS = "reasoning_content", "thinking", "reasoning"  # the names that datasets have for them
_PROBE = Conversation([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])


class _Generation(Extension):
    """`{% generation %}`, around what is predicted."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's form)

    def parse(self, parser: Any) -> nodes.Node:
        """Mark the body."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        marked = self.call_method("_marked")
        return nodes.CallBlock(marked, [], [], body).set_lineno(line)

    def _marked(self, caller: Any) -> str:
        return f"{_BEGIN}{caller()}{_END}"


class ChatTemplate:
    """A chat template, given its source."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._pieces: tuple[Codec, Named] | None = None  # the last codec's
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Generation, "jinja2.ext.loopcontrols"],
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _today}
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise UserError(f"not a chat template of Jinja: {error}") from None

    @classmethod
    def named(cls, name: str) -> "ChatTemplate":
        """Return a built-in template, or that in a file.

        Raises:
          UserError: if there is no such file, or it is no template.
        """
        if name in CHAT_TEMPLATES:
            return cls(SOURCES[name])
        try:
            return cls(Path(name).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, UserError) as error:
            raise UserError(f"config.objective.chat_template={name!r}: {error}") from None

    @classmethod
    def beside(cls, directory: Path) -> "ChatTemplate | None":
        """Return the template in a directory, if there is one: in a file of its own, or in
        tokenizer_config.json.

        Raises:
          UserError: if it is none.
        """
        path = directory / FILE
        if not path.is_file():
            path = directory / "tokenizer_config.json"
            if not path.is_file():
                return None
        try:
            text = path.read_text(encoding="utf-8")
            if path.name != FILE:
                written = json.loads(text).get("chat_template")
                if isinstance(written, list):  # several, with names
                    written = {x["name"]: x["template"] for x in written}.get("default")
                if not isinstance(written, str):
                    return None
                text = written
            return cls(text)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, UserError) as error:
            raise UserError(f"{path}: {error}") from None

    @property
    def digest(self) -> str:
        """A hash of the source."""
        return hashed(self.source.encode())

    def render(
        self, conversation: Conversation, codec: Codec | None, begin_answer: bool = False
    ) -> str:
        """Return a conversation as text; with `begin_answer`, up to where an answer begins.

        Raises:
          UserError: if the template refuses it.
        """
        return _unmarked(self._marked(conversation, codec, begin_answer))

    def _marked(
        self, conversation: Conversation, codec: Codec | None, begin_answer: bool = False
    ) -> str:
        tokens = {f"{name}_token": _spelled(codec, name) for name in ("bos", "eos", "pad", "unk")}
        try:
            return self._template.render(
                messages=[self._known(message) for message in conversation.messages],
                tools=conversation.tools, documents=None, add_generation_prompt=begin_answer,
                **{name: text for name, text in tokens.items() if text}
                | dict(conversation.options or {}),
            )  # fmt: skip
        except UserError as error:
            raise UserError(f"the chat template refuses the conversation: {error}") from None
        except (TemplateError, TypeError, LookupError, AttributeError) as error:
            raise UserError(f"the chat template fails: {error}") from None

    def _known(self, message: Message) -> Message:
        """Return a message with the names that templates know: of its thoughts, as in
        `transformers`, and of a developer, who is the system in most.
        """
        thoughts = [message[name] for name in _THOUGHTS if message.get(name) is not None]
        if thoughts:
            message = {"thinking": thoughts[0], **message, "reasoning_content": thoughts[0]}
        if message["role"] == "developer" and "developer" not in self.source:
            message = {**message, "role": "system"}
        return message

    def rendered(self, conversation: Conversation, codec: Codec) -> Rendered:
        """Return a conversation as text, with what is predicted of it: what the template marks, or
        else each answer, from where its prompt ends to the piece that ends it.

        Raises:
          UserError: if the template refuses it, or writes answers that no prompt leads to.
        """
        marked = self._marked(conversation, codec)
        text, named = _unmarked(marked), self._named(codec)
        spans: Iterable[tuple[int, int]] = self._answers(conversation, codec, text, named)
        if _BEGIN in marked:
            spans = [marked_to_end(text, *span, named) for span in _marked_spans(marked)]
        answers = [(begin, end) for begin, end in spans if begin < end]
        return Rendered(text, answers, self._contents(conversation, codec, text, named))

    def _named(self, codec: Codec) -> Named:
        """Return the named pieces of a codec, with what ends answers among those of control."""
        if self._pieces is None or self._pieces[0] is not codec:
            named = Named.of(codec)
            ends = last_named(self.render(_PROBE, codec), named.pattern)
            self._pieces = codec, named.with_control(ends)
        return self._pieces[1]

    def _answers(
        self, conversation: Conversation, codec: Codec, text: str, named: Named
    ) -> Iterator[tuple[int, int]]:
        """Yield where answers are: behind their prompts, or, where a template writes the last one
        in another way than those before it, as thoughts in some, where their contents are.
        """
        messages = conversation.messages
        spans: list[tuple[int, int]] | None = None
        for place, message in enumerate(messages):
            if message["role"] != "assistant" or not place:
                continue
            some = [conversation._replace(messages=messages[:end]) for end in (place, place + 1)]
            before = self.render(some[0], codec, begin_answer=True)
            whole = self.render(some[1], codec)
            if text.startswith(before) and text.startswith(whole):
                yield to_end(text, len(before), len(whole), named)
                continue
            spans = spans or self._places(conversation, codec, text)
            if spans is None:
                raise UserError(
                    f"messages[{place}]: the chat template does not write this answer as it is, "
                    "behind its prompt; mark answers in the template with {% generation %} and "
                    "{% endgeneration %}"
                )
            begin, end = spans[place]
            match = named.control.search(text, end)
            following = [x for x, _ in spans if x > end]
            near = match is not None and match.start() < min(following, default=len(text))
            yield begin, match.end() if match is not None and near else end

    def _places(
        self, conversation: Conversation, codec: Codec, text: str, begin_answer: bool = False
    ) -> list[tuple[int, int]] | None:
        """Return where the content of each message is, or None if the template changes them."""
        messages = conversation.messages
        contents = [message["content"] for message in messages]
        held = [
            message | {"content": f"{_OPEN}{place}{_CLOSE}"}
            for place, message in enumerate(messages)
        ]
        parts = _HELD.split(self.render(conversation._replace(messages=held), codec, begin_answer))
        if not text.startswith(parts[0]):
            return None
        end = len(parts[0])
        spans: dict[int, tuple[int, int]] = {}
        for number, behind in zip(parts[1::2], parts[2::2], strict=True):
            begin, content = end, contents[int(number)]
            ends = [begin + len(x) for x in _trimmed(content) if text.startswith(x + behind, begin)]
            if not ends:
                return None
            spans[int(number)] = begin, ends[0]
            end = ends[0] + len(behind)
        whole = end == len(text) and len(spans) == len(messages)
        return [spans[place] for place in range(len(messages))] if whole else None

    def _contents(
        self, conversation: Conversation, codec: Codec, text: str, named: Named,
        begin_answer: bool = False,
    ) -> list[tuple[int, int]]:  # fmt: skip
        """Return where the contents are, if one is spelled like a piece of control."""
        contents = [message["content"] for message in conversation.messages]
        wrong = [content for content in contents if named.control.search(content)]
        if not wrong:
            return []
        spans = self._places(conversation, codec, text, begin_answer)
        if spans is None:
            raise UserError(
                f"the text {wrong[0][:40]!r} has a piece of the chat template, which changes what "
                "it writes of texts; remove the piece from the text"
            )
        return spans

    def encode(self, codec: Codec, texts: Sequence[str]) -> list[list[int]]:
        """Return the pieces of conversations as JSON; one that is predicted, with number i, is
        stored as ~i, which is negative.

        Raises:
          UserError: see `rendered`.
        """
        return self.encoded(codec, [conversation_of(text) for text in texts])

    def encoded(self, codec: Codec, talks: Sequence[Conversation]) -> list[list[int]]:
        """Return the pieces of conversations; see `encode`."""
        rendered = [self.rendered(talk, codec) for talk in talks]
        return encoded(codec, rendered, self._named(codec))

    def prompt(
        self, codec: Codec, messages: Sequence[Message], tools: Sequence[Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> list[int]:  # fmt: skip
        """Return the pieces that an answer to messages follows.

        Raises:
          UserError: if the template refuses them, or changes a text that is spelled like its own
            pieces.
        """
        conversation = Conversation(list(messages), list(tools) if tools else None, options)
        text, named = self.render(conversation, codec, begin_answer=True), self._named(codec)
        contents = self._contents(conversation, codec, text, named, begin_answer=True)
        # Answers before it, if the template keeps them: their pieces begin where they began then.
        try:
            whole = self.rendered(conversation, codec)
        except UserError:
            whole = Rendered("", [], [])
        answers = whole.answers if text.startswith(whole.text) else []
        (ids,) = encoded(codec, [Rendered(text, answers, contents)], named, at_end=True)
        return [~piece if piece < 0 else piece for piece in ids]

    def learned(self, texts: Sequence[str], symbols: Sequence[str]) -> list[str]:
        """Return the texts that a tokenizer learns from: conversations without named pieces."""
        named = re.compile("|".join(map(re.escape, (*SPELLED, *symbols))))
        talks = (talk for text in texts for talk in conversations_in(text))
        rendered = (self.render(talk, None) for talk in talks)
        return [run for text in rendered for run in named.split(text) if run]

    def end(self, codec: Codec) -> int:
        """Return the piece that ends an answer.

        Raises:
          UserError: if the template ends answers with none of the codec's named pieces.
        """
        whole, named = self.rendered(_PROBE, codec), self._named(codec)
        begin, end = whole.answers[-1] if whole.answers else (0, 0)
        name = last_named(whole.text[begin:end], named.control)
        if name is None:
            raise UserError(
                f"the chat template ends an answer with {whole.text[begin + 1 :]!r}, which is no "
                "piece of the tokenizer; add the piece to tokenizer.symbols, or choose "
                "objective.chat_template='zephyr', which ends answers with EOS"
            )
        return named.ids[name]


def _trimmed(content: str) -> Iterator[str]:
    """Yield a content and what templates trim it to."""
    yield content
    for characters in (None, "\n"):
        yield from (f(characters) for f in (content.strip, content.lstrip, content.rstrip))


def _unmarked(text: str) -> str:
    return text.replace(_BEGIN, "").replace(_END, "")


def _marked_spans(marked: str) -> list[tuple[int, int]]:
    """Return where what a template marks is in the text without the marks; marks that touch are
    one.
    """
    spans: list[tuple[int, int]] = []
    length = 0
    for number, part in enumerate(re.split(f"[{_BEGIN}{_END}]", marked)):
        if number % 2 and part:
            touches = spans and spans[-1][1] == length
            spans.append((spans.pop()[0] if touches else length, length + len(part)))
        length += len(part)
    return spans


def _spelled(codec: Codec | None, name: str) -> str:
    """Return how a template spells a special piece, "" if there is none."""
    if codec is None:
        return dict(zip(SPECIAL, SPELLED, strict=True))[name]
    number = codec.special.get(name)
    return "" if number is None else codec.pieces([number])[0]


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None,
    separators: tuple[str, str] | None = None, sort_keys: bool = False,
) -> str:  # fmt: skip
    """Return JSON, with the options and the order of them that templates know."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> None:
    raise UserError(message)


def _today(form: str) -> str:
    return dt.datetime.now().strftime(form)

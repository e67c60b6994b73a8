"""Conversations: messages with roles, as JSON."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from transformer_jax.base.errors import UserError

# Noncharacters, which templates are marked with.
MARKS = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3"
ROLES = "system", "developer", "user", "assistant", "tool"
_SHARED = {  # ShareGPT's name of who speaks: the role
    "human": "user", "gpt": "assistant", "observation": "tool", **{role: role for role in ROLES},
}  # fmt: skip
_FORMS = (
    '{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}, '
    '{"prompt": "...", "completion": "..."}, {"conversations": [{"from": "human", "value": "..."}, '
    '{"from": "gpt", "value": "..."}]} or {"instruction": "...", "input": "", "output": "..."}'
)
Message = dict[str, Any]
# What a template gets besides its options.
_ITS_OWN = "messages", "tools", "documents", "add_generation_prompt"


class Conversation(NamedTuple):
    """Messages in their order, each with a "role" and a "content", the tools on offer, and options
    of the chat template, such as Qwen 3's "enable_thinking".
    """

    messages: list[Message]
    tools: list[Any] | None = None
    options: Mapping[str, Any] | None = None


def conversation_of(text: str) -> Conversation:
    """Return the conversation that a JSON text holds: a list of messages; an object with
    "messages"; one with "prompt" and "completion", each a text or a list of messages; ShareGPT's
    "conversations", with "from" and "value"; or Alpaca's "instruction", "input", which is a line
    below it, and "output". The last two may have "system". Each may have "tools" and
    "chat_template_kwargs", the template's options, as in TRL.

    Raises:
      UserError: if it holds none; says what is wrong.
    """
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        raise UserError(f"is not JSON, but {text[:40]!r}; write {_FORMS}") from None
    if isinstance(row, list):
        return Conversation(messages_of(row))
    if not isinstance(row, Mapping):
        raise UserError(f"is {row!r:.40}, no conversation; write {_FORMS}")
    messages = _messages_in(row)
    if messages is None:
        raise UserError(f"has {', '.join(map(repr, row)) or 'nothing'}; write {_FORMS}")
    return Conversation(
        messages, _tools(row.get("tools")), options_of(row.get("chat_template_kwargs"))
    )


def _messages_in(row: Mapping[str, Any]) -> list[Message] | None:
    """Return the messages of a row, in the form that it has; None if it has none of these."""
    if "messages" in row:
        return messages_of(row["messages"])
    if {"prompt", "completion"} <= row.keys():
        return [*_before(row), *spoken(row["completion"], "assistant", "completion")]
    if "conversations" in row:
        return _before(row)
    if {"instruction", "output"} <= row.keys():
        return [*_before(row), *spoken(_text(row, "output"), "assistant", "output")]
    return None


def _before(row: Mapping[str, Any]) -> list[Message]:
    """Return the messages of a row but for an answer of its own key; [] if it has none of these."""
    if "prompt" in row:
        return spoken(row["prompt"], "user", "prompt")
    first = spoken(row["system"], "system", "system") if row.get("system") else []
    if "conversations" in row:
        return [*first, *messages_of(row["conversations"], "conversations")]
    if "instruction" in row:
        asked = _text(row, "instruction"), _text(row, "input") if row.get("input") else ""
        return [*first, *spoken("\n".join(filter(None, asked)), "user", "instruction")]
    return []


def _text(row: Mapping[str, Any], name: str) -> str:
    if not isinstance(row[name], str):
        raise UserError(f"{name}: is {row[name]!r:.40}, not text")
    return row[name]


def asked_in(text: str, number: int = -1) -> tuple[Conversation, str]:
    """Return the messages before an answer of the conversation that a JSON text holds, and the
    answer; `number` counts answers from 0, the last is -1.
    """
    messages, tools, options = conversation_of(text)
    answers = [place for place, one in enumerate(messages) if one["role"] == "assistant"]
    place = answers[number]
    return Conversation(messages[:place], tools, options), messages[place]["content"]


def spoken(value: Any, role: str, name: str) -> list[Message]:
    """Return a text as a message of a role, a message as a list, or a list of messages as it is.

    Raises:
      UserError: if it is none of these; calls it `name`.
    """
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    return messages_of([value] if isinstance(value, Mapping) else value, name)


def messages_of(value: Any, name: str = "messages") -> list[Message]:
    """Return messages, with the parts of a content that has several as one text.

    Raises:
      UserError: if they are malformed; names the message.
    """
    if not isinstance(value, list) or not value:
        raise UserError(f"{name}: is {value!r:.40}, not a list of messages; write {_FORMS}")
    return [_message(one, f"{name}[{place}]") for place, one in enumerate(value)]


def _message(value: Any, name: str) -> Message:
    if isinstance(value, Mapping) and {"from", "value"} <= value.keys():
        others = {key: one for key, one in value.items() if key not in ("from", "value")}
        role = value["from"]
        role = _SHARED.get(role, role) if isinstance(role, str) else role
        value = {"role": role, "content": value["value"], **others}
    if not isinstance(value, Mapping) or not isinstance(value.get("role"), str):
        raise UserError(
            f'{name}: is {value!r:.60}, no message; write {{"role": "user", "content": "..."}}'
        )
    if value["role"] not in ROLES:
        raise UserError(
            f"{name}.role: is {value['role']!r:.40}; must be {', '.join(map(repr, ROLES))}"
        )
    content = value.get("content")
    if content is None and value.get("tool_calls"):
        content = ""
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        if not all(isinstance(part, str) for part in parts):
            raise UserError(f"{name}.content: has parts that are not text; leave them out")
        content = "".join(filter(None, parts))
    if not isinstance(content, str):
        raise UserError(f"{name}.content: is {content!r:.40}, not text")
    if not {*MARKS}.isdisjoint(content):
        raise UserError(f"{name}.content: has one of U+FDD0 to U+FDD3, which are no characters; "
                        "remove it")  # fmt: skip
    return {**value, "content": content}


def _tools(value: Any) -> list[Any] | None:
    if value is None or isinstance(value, list):
        return value or None
    raise UserError(f"tools: is {value!r:.40}, not a list")


def options_of(value: Any, name: str = "chat_template_kwargs") -> Mapping[str, Any] | None:
    """Return options of a chat template.

    Raises:
      UserError: if they are no object, or name what a template gets anyway.
    """
    if value is not None and not isinstance(value, Mapping):
        raise UserError(f'{name}: is {value!r:.40}, not an object, as {{"enable_thinking": false}}')
    for option in value or ():
        if option in _ITS_OWN:
            raise UserError(f"{name}: has {option!r}, which is no option of a template; remove it")
    return value or None


def check_conversations(texts: Sequence[str], place: Callable[[int], str]) -> None:
    """Check that each text holds a conversation with something to predict; `place` names one by
    its number, from 1.

    Raises:
      UserError: if one does not.
    """
    for number, text in enumerate(texts, 1):
        try:
            messages = conversation_of(text).messages
            if not any(message["role"] == "assistant" for message in messages):
                raise UserError(
                    "no message has the role 'assistant', so that nothing is predicted; add an "
                    "answer, or remove the conversation"
                )
        except UserError as error:
            raise UserError(f"{place(number)}: {error}") from None


def conversations_in(text: str) -> list[Conversation]:
    """Return the conversation that a JSON text holds, or both that it compares."""
    row = json.loads(text)
    if isinstance(row, Mapping) and "one" in row:
        return [*Compared.of(text)[:2]]
    return [conversation_of(text)]


class Compared(NamedTuple):
    """Two conversations that are compared: with the better and the worse answer; or, if only
    `desirable` is known of one answer, with it and with the answer to another prompt.
    """

    one: Conversation
    other: Conversation
    # Log-probabilities (nats) of both answers under the reference model; None: not known yet.
    reference: tuple[float, float] | None = None
    desirable: bool | None = None

    def as_json(self) -> str:
        """Return it as JSON, which `of` reads."""
        row = {
            "one": self.one, "other": self.other,
            "reference": self.reference, "desirable": self.desirable,
        }  # fmt: skip
        return json.dumps(row, ensure_ascii=False)

    @classmethod
    def of(cls, text: str) -> "Compared":
        """Return what JSON says, as `as_json` writes it."""
        row = json.loads(text)
        one, other = Conversation(*row["one"]), Conversation(*row["other"])
        return cls(one, other, _reference(row["reference"]), row["desirable"])


_PREFERENCES = (
    '{"prompt": "...", "chosen": "...", "rejected": "..."} '
    'or {"prompt": "...", "completion": "...", "label": true}'
)


def compared(texts: Sequence[str], place: Callable[[int], str]) -> list[Compared]:
    """Return what rows of preferences compare: JSON objects with "prompt", "chosen" and "rejected",
    or with "prompt", "completion" and "label", whether the completion is desirable. Each is a text,
    a message, or a list of messages, which may begin with those of the prompt. In place of a
    prompt, there may be ShareGPT's "conversations" or Alpaca's "instruction" and "input"; besides,
    "tools" and "chat_template_kwargs", as in `conversation_of`. "reference" has the
    log-probabilities of both answers. `place` names a row by its number, from 1.

    Raises:
      UserError: if a row is malformed; names it.
    """
    rows: list[Compared] = []
    labelled: list[tuple[Conversation, list[Message], bool, Any]] = []
    for number, text in enumerate(texts, 1):
        try:
            row = json.loads(text)
            if not isinstance(row, Mapping):
                raise UserError(f"is {row!r:.40}, not an object; write {_PREFERENCES}")
            before = Conversation(
                _before(row), _tools(row.get("tools")), options_of(row.get("chat_template_kwargs"))
            )
            if {"chosen", "rejected"} <= row.keys():
                one, other = (spoken(row[x], "assistant", x) for x in ("chosen", "rejected"))
                rows.append(
                    Compared(
                        _answered(before, one, "chosen"), _answered(before, other, "rejected"),
                        _reference(row.get("reference")),
                    )
                )  # fmt: skip
            elif {"prompt", "completion", "label"} <= row.keys():
                if not isinstance(row["label"], bool):
                    raise UserError(f"label: is {row['label']!r:.40}; must be true or false")
                said = spoken(row["completion"], "assistant", "completion")
                _answered(before, said, "completion")
                labelled.append((before, said, row["label"], _reference(row.get("reference"))))
            else:
                raise UserError(f"has {', '.join(map(repr, row)) or 'nothing'}; write "
                                f"{_PREFERENCES}")  # fmt: skip
            if rows and labelled:
                raise UserError("has a label, and other rows have a worse answer; use one form")
        except UserError as error:
            raise UserError(f"{place(number)}: {error}") from None
    for number, (before, said, label, reference) in enumerate(labelled):
        _, others, *_ = labelled[(number + 1) % len(labelled)]
        right = _answered(before, said, "completion")
        wrong = _answered(before, others[-1:], "completion")
        rows.append(Compared(right, wrong, reference, label))
    return rows


def _answered(before: Conversation, said: list[Message], name: str) -> Conversation:
    asked = before.messages
    if said[-1]["role"] != "assistant" or len(asked) + len(said) < 2:
        raise UserError(f"{name}: must be an answer of the assistant to a message before it")
    if asked and said[0]["role"] != "assistant":  # with the messages before the answer
        if asked[-1]["content"] not in [message["content"] for message in said[:-1]]:
            raise UserError(
                f"{name}: begins with {said[0]['role']!r} and has not the prompt; give the answer "
                "alone, or the whole conversation"
            )
        asked = []
    return before._replace(messages=[*asked, *said])


def _reference(value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    numbers = isinstance(value, list) and [isinstance(x, int | float) for x in value]
    if numbers != [True, True]:
        raise UserError(f"reference: is {value!r:.60}, not the log-probabilities of two answers")
    return float(value[0]), float(value[1])

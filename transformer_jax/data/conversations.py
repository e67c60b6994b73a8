"""Conversations: messages with roles, as JSON."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from transformer_jax.base.errors import UserError

ROLES = "system", "user", "assistant", "tool"
_FORMS = (
    '{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]} '
    'or {"prompt": "...", "completion": "..."}'
)
Message = dict[str, Any]


class Conversation(NamedTuple):
    """Messages in their order, each with a "role" and a "content", and the tools on offer."""

    messages: list[Message]
    tools: list[Any] | None = None


def conversation_of(text: str) -> Conversation:
    """Return the conversation that a JSON text holds: a list of messages; an object with
    "messages" and perhaps "tools"; or one with "prompt" and "completion", each a text or a list of
    messages.

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
    if "messages" in row:
        return Conversation(messages_of(row["messages"]), _tools(row.get("tools")))
    if "prompt" in row and "completion" in row:
        before = spoken(row["prompt"], "user", "prompt")
        return Conversation(
            [*before, *spoken(row["completion"], "assistant", "completion")],
            _tools(row.get("tools")),
        )
    raise UserError(f"has {', '.join(map(repr, row)) or 'nothing'}; write {_FORMS}")


def spoken(value: Any, role: str, name: str) -> list[Message]:
    """Return a text as a message of a role, or a list of messages as it is.

    Raises:
      UserError: if it is neither; calls it `name`.
    """
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    return messages_of(value, name)


def messages_of(value: Any, name: str = "messages") -> list[Message]:
    """Return messages, with the parts of a content that has several as one text.

    Raises:
      UserError: if they are malformed; names the message.
    """
    if not isinstance(value, list) or not value:
        raise UserError(f"{name}: is {value!r:.40}, not a list of messages; write {_FORMS}")
    return [_message(one, f"{name}[{place}]") for place, one in enumerate(value)]


def _message(value: Any, name: str) -> Message:
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
    return {**value, "content": content}


def _tools(value: Any) -> list[Any] | None:
    if value is None or isinstance(value, list):
        return value or None
    raise UserError(f"tools: is {value!r:.40}, not a list")


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

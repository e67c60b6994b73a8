"""Conversations over HTTP are answered as `chat` answers them, whole or streamed."""

import pytest
from decoding.test_generate import CODEC
from server.conftest import chatter, writer
from server.test_openai import events

from transformer_jax.base.errors import UserError
from transformer_jax.cli.chat import Chat, main

TALK = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"},
        {"role": "user", "content": "de"}]  # fmt: skip
GREEDY = {"model": "tiny", "temperature": 0, "max_tokens": 7}
PATH = "/v1/chat/completions"


def asked(client, **fields):
    answer = client.post(PATH, json=GREEDY | {"messages": TALK} | fields)
    assert answer.status_code == 200, answer.text
    return answer


def test_conversations_are_answered(chatting):
    wanted = chatter().chat(TALK, 7)
    found = asked(chatting).json()
    (choice,) = found["choices"]
    assert choice["message"] == {"role": "assistant", "content": wanted, "refusal": None}
    assert choice["finish_reason"] == "length"
    assert (found["object"], found["id"][:9]) == ("chat.completion", "chatcmpl-")
    assert found["usage"] == {
        "prompt_tokens": len("uab.ac.ude.a"), "completion_tokens": 7, "total_tokens": 12 + 7,
    }  # fmt: skip
    assert chatter().chat(TALK[2:], 7) != wanted  # the history counts


def test_chat_reads_what_its_template_writes():
    trained = chatter()
    read = trained.chat_generator().reader.asked(TALK)
    assert "".join(CODEC.pieces(read)) == "uab</s>ac</s>ude</s>a"
    assert trained.generate("de", 7) == trained.chat(TALK[2:], 7)  # a prompt is a message
    plain = writer().generator().generate(writer().params, [read], 7)[0][0].ids
    answer = trained.generator().generate(trained.params, [read], 7)[0][0]
    assert answer.ids == plain
    assert answer.text == CODEC.decode(plain)


def test_streams_hold_the_same_answer(chatting):
    wanted = chatter().chat(TALK, 7)
    *parts, usage, end = events(
        asked(chatting, stream=True, stream_options={"include_usage": True})
    )
    first, last = parts[0], parts[-1]
    assert first["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(part["choices"][0]["delta"].get("content", "") for part in parts) == wanted
    assert {part["object"] for part in parts} == {"chat.completion.chunk"}
    assert [last["choices"][0]["finish_reason"], usage["choices"], end] == ["length", [], None]
    assert usage["usage"]["completion_tokens"] == 7


def test_several_answers_are_drawn(chatting):
    found = asked(chatting, temperature=1.0, n=3, seed=4).json()["choices"]
    again = asked(chatting, temperature=1.0, n=3, seed=4).json()["choices"]
    assert found == again
    assert [choice["index"] for choice in found] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in found}) > 1


def test_parts_of_contents_and_developers_are_understood(chatting):
    parts = [{"role": "user", "content": [{"type": "text", "text": "d"},
                                          {"type": "text", "text": "e"}]}]  # fmt: skip
    same = asked(chatting, messages=TALK[2:]).json()["choices"]
    assert asked(chatting, messages=parts).json()["choices"] == same
    system, developer = (
        asked(chatting, messages=[{"role": role, "content": "b"}, *TALK[2:]]).json()["choices"]
        for role in ("system", "developer")
    )
    assert system == developer
    assert system != same


WRONG = {
    "messages": [
        {"messages": []}, {"messages": [{"role": "me", "content": "a"}]},
        {"messages": [{"role": "user"}]}, {"chat_template_kwargs": {"tools": []}},
        {"messages": [{"role": "user", "content": "a" * 30}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
    ],
    "tools": [{"tools": [{"type": "function"}]}],
    "tool_choice": [{"tool_choice": "required"}],
    "response_format": [{"response_format": {"type": "json_object"}}],
    "logprobs": [{"logprobs": True}],
    "frequency_penalty": [{"frequency_penalty": 1}],
    "model": [{"model": "other"}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("param", "fields"), [(param, x) for param, several in WRONG.items() for x in several]
)
def test_malformed_conversations_are_refused_in_the_protocol(param, fields, chatting):
    answer = chatting.post(PATH, json=GREEDY | {"messages": TALK} | fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (404 if param == "model" else 400, param)
    assert error["type"] == "invalid_request_error"


def test_prompts_of_completions_are_read_as_they_are(chatting):
    """Without the template: as the language model that it is."""
    body = {"model": "tiny", "prompt": "uab", "max_tokens": 5, "temperature": 0}
    found = chatting.post("/v1/completions", json=body).json()["choices"][0]["text"]
    (ids,) = CODEC.encode(["uab"], eos=False)
    trained = chatter()
    assert found == trained.generator().generate(trained.params, [ids], 5)[0][0].text


def test_tokens_of_conversations(chatting):
    body = {"messages": TALK, "return_token_strs": True}
    found = chatting.post("/tokenize", json=body).json()
    assert "".join(found["token_strs"]) == "uab</s>ac</s>ude</s>a"
    assert chatting.post("/tokenize", json={"messages": 3}).json()["error"]["param"] == "messages"


def test_options_of_the_template_reach_it(chatting):
    options = {"chat_template_kwargs": {"think": "de"}}
    found = chatting.post("/tokenize", json={"messages": TALK[2:], "return_token_strs": True} |
                          options).json()  # fmt: skip
    assert "".join(found["token_strs"]) == "ude</s>ade"
    (answer,) = asked(chatting, messages=TALK[2:], **options).json()["choices"]
    assert answer["message"]["content"] == chatter().chat(TALK[2:], 7, **options)
    assert answer != asked(chatting, messages=TALK[2:]).json()["choices"][0]
    for wrong, words in (("{", "not JSON"), ("3", "not an object"), ('{"tools": 1}', "no option")):
        with pytest.raises(UserError, match=f"--chat-template-kwargs: .*{words}"):
            main(["--workdir=none", f"--chat-template-kwargs={wrong}"])


def test_the_page_knows_chat_models(chatting):
    assert chatting.get("/api/model").json()["chats"]
    assert 'id="chat"' in chatting.get("/").text


def test_a_terminal_keeps_the_history_and_leaves_out_what_is_too_long():
    """The window is 8 pieces, so that each question is asked alone, behind the system's message."""
    trained = chatter()
    talk = Chat(trained, trained.chat_generator(), "s")
    said = ["".join(talk.answer(text, 3)) for text in ("ab", "c")]
    system = {"role": "system", "content": "s"}
    for text, answer in zip(("ab", "c"), said, strict=True):
        assert answer == trained.chat([system, {"role": "user", "content": text}], 3)
    assert [message["content"] for message in talk.messages] == ["c", said[1]]
    short = Chat(trained, trained.chat_generator(), None)
    first = "".join(short.answer("", 1))
    whole = [{"role": "user", "content": ""}, {"role": "assistant", "content": first},
             {"role": "user", "content": ""}]  # fmt: skip
    read = trained.chat_generator().reader.asked(whole)
    assert len(read) <= 8
    assert "".join(short.answer("", 1)) == trained.chat(whole, 1)
    short.begin()
    assert short.messages == []

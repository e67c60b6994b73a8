"""Third-party clients, unmodified, against our server."""

import pytest
from server.conftest import chatter, listening, service_of, translator, writer


@pytest.mark.oracle
def test_libretranslatepy():
    from urllib.error import HTTPError

    from libretranslatepy import LibreTranslateAPI

    with listening(service_of(translator(), key="secret")) as (address, _):
        client = LibreTranslateAPI(address, api_key="secret")
        for line in ("a dog runs", "two men", ""):
            assert client.translate(line, "en", "de") == translator().translate(line)
        assert client.languages()[0]["code"] == "en"
        assert client.detect("a dog")[0]["language"] == "en"
        with pytest.raises(HTTPError, match="401"):
            LibreTranslateAPI(address).translate("a dog", "en", "de")
        with pytest.raises(HTTPError, match="400"):
            client.translate("a dog", "en", "fr")


@pytest.mark.oracle
def test_openai():
    openai = pytest.importorskip("openai")
    with listening(service_of(writer(), key="secret")) as (address, _):
        client = openai.OpenAI(base_url=f"{address}v1", api_key="secret", max_retries=0)
        assert [model.id for model in client.models.list()] == ["tiny"]
        assert client.models.retrieve("tiny").id == "tiny"
        asked = {"model": "tiny", "prompt": "ab", "max_tokens": 9, "temperature": 0}
        wanted = writer().generate("ab", 9).removeprefix("ab")
        found = client.completions.create(**asked)
        assert (found.choices[0].text, found.choices[0].finish_reason) == (wanted, "length")
        assert found.usage.completion_tokens == 9
        parts = list(
            client.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        )
        assert "".join(c.text for part in parts for c in part.choices) == wanted
        assert parts[-1].usage.total_tokens == found.usage.total_tokens
        whole = client.completions.create(**asked, logprobs=2, echo=True).choices[0]
        said, (score,) = whole.logprobs, writer().score([whole.text])
        window = writer().experiment.objective.window  # in which a score sees what comes before
        assert said.token_logprobs[1 : window + 1] == pytest.approx(
            score.log_probs[:window], abs=1e-5
        )
        assert "".join(said.tokens[1:]) == whole.text == "ab" + wanted
        assert said.text_offset == [0, *range(11)]
        parts = client.completions.create(**asked, logprobs=2, echo=True, stream=True)
        streamed = [x for part in parts for x in part.choices[0].logprobs.token_logprobs]
        assert streamed[1:] == pytest.approx(said.token_logprobs[1:], abs=1e-5)
        tokens = client.completions.create(**asked | {"prompt": [[1, 4, 5]]})
        assert tokens.choices[0].text == wanted
        with pytest.raises(openai.BadRequestError, match="logprobs") as error:
            client.completions.create(**asked, logprobs=21)
        assert (error.value.param, error.value.code) == ("logprobs", "unsupported_parameter")
        messages = [{"role": "user", "content": "a"}]
        with pytest.raises(openai.BadRequestError, match="no chat template"):
            client.chat.completions.create(model="tiny", messages=messages)
        with pytest.raises(openai.NotFoundError):
            client.completions.create(**asked | {"model": "other"})
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{address}v1", api_key="no").models.list()


@pytest.mark.oracle
def test_openai_chats():
    openai = pytest.importorskip("openai")
    with listening(service_of(chatter(), key="secret")) as (address, _):
        client = openai.OpenAI(base_url=f"{address}v1", api_key="secret", max_retries=0)
        asked = {"model": "tiny", "messages": [{"role": "user", "content": "ab"}], "temperature": 0}
        wanted = chatter().chat(asked["messages"], 7)
        found = client.chat.completions.create(**asked, max_completion_tokens=7)
        assert (found.choices[0].message.content, found.choices[0].message.role) == (
            wanted, "assistant",
        )  # fmt: skip
        parts = [*client.chat.completions.create(**asked, max_tokens=7, stream=True)]
        assert "".join(part.choices[0].delta.content or "" for part in parts) == wanted
        assert (parts[0].choices[0].delta.role, parts[-1].choices[0].finish_reason) == (
            "assistant", "length",
        )  # fmt: skip
        for fields, param in (
            ({"messages": [{"role": "me", "content": "a"}]}, "messages"),
            ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ):
            with pytest.raises(openai.BadRequestError) as error:
                client.chat.completions.create(**asked | fields)
            assert error.value.param == param

"""Third-party clients, unmodified, against our server."""

import pytest
from server.conftest import listening, service_of, translator, writer


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
        with pytest.raises(openai.BadRequestError, match="logprobs"):
            client.completions.create(**asked, logprobs=2)
        with pytest.raises(openai.NotFoundError):
            client.completions.create(**asked | {"model": "other"})
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{address}v1", api_key="no").models.list()

"""Keywords that change single decoding fields choose the search that they belong to."""

import dataclasses

import pytest
from server.conftest import translator, writer

from transformer_jax.base.errors import UserError
from transformer_jax.config import DecodingConfig
from transformer_jax.config.choices.searches import SAMPLING, check_search

DRAWN = {"num_samples": 1, "temperature": 0.8, "top_k": 3, "top_p": 0.7, "min_p": 0.1, "seed": 1}
BASES = {search: DecodingConfig(search=search, beam_size=4, num_samples=2)
         for search in ("beam", "sample")}  # fmt: skip


class Asked(Exception):
    """A search was asked for, with these settings."""


def settings(verb: str, base: DecodingConfig, monkeypatch, **fields) -> DecodingConfig:
    """Return the settings that a method searches with; nothing is searched."""
    model = translator() if verb == "translate" else writer()
    model.experiment = dataclasses.replace(model.experiment, decoding=base)
    name = "translator" if verb == "translate" else "generator"

    def asked(config, *_, **__):
        raise Asked(config)

    monkeypatch.setattr(model, name, asked)
    with pytest.raises(Asked) as found:
        getattr(model, verb)("a", **fields)
    return found.value.args[0]


@pytest.mark.parametrize("verb", ["translate", "generate", "stream"])
def test_keywords_of_a_search_ask_for_it(verb, monkeypatch):
    """Whatever the search of the run is; other fields leave it as it is."""
    assert set(SAMPLING) == set(DRAWN)
    for search, base in BASES.items():
        for name, value in DRAWN.items():
            found = settings(verb, base, monkeypatch, **{name: value})
            assert (found.search, getattr(found, name)) == ("sample", value)
            assert found.hypotheses == (1 if verb == "stream" or name == "num_samples" else 2)
        for width in (1, 3):
            found = settings(verb, base, monkeypatch, beam_size=width)
            assert (found.search, found.beam_size) == ("beam", width)
        found = settings(verb, base, monkeypatch, alpha=0.3)
        assert found.search == search
        assert found.hypotheses == (1 if verb == "stream" else base.hypotheses)
        given = settings("translate", BASES["beam"], monkeypatch, decoding=base, seed=2)
        assert given == dataclasses.replace(base, search="sample", seed=2)


@pytest.mark.parametrize("verb", ["translate", "generate", "stream"])
def test_keywords_that_contradict_each_other_are_refused(verb):
    model = translator() if verb == "translate" else writer()
    wrong = [({"search": "beam", name: value}, f"^{name}={value}: has no effect with search='beam'")
             for name, value in DRAWN.items()]  # fmt: skip
    wrong += [({"beam_size": 2, name: value}, f"^beam_size=2: has no effect with {name}={value}; ")
              for name, value in DRAWN.items()]  # fmt: skip
    wrong.append(({"search": "sample", "beam_size": 1}, "^beam_size=1: has no effect with search="))
    for fields, message in wrong:
        with pytest.raises(UserError, match=message):
            getattr(model, verb)("a", **fields)


def test_fields_of_another_search_are_refused_on_the_command_line():
    for search, others in (("beam", SAMPLING), ("sample", ["beam_size"])):
        for name in (*SAMPLING, "beam_size", "alpha"):
            fields = {"data.seed": "1", "decoding.alpha": "1", f"decoding.{name}": "2"}
            if name in others:
                with pytest.raises(UserError, match=f"^--config.decoding.{name}=2: has no effect "):
                    check_search(search, fields)
            else:
                check_search(search, fields)

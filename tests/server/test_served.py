"""Preparing a model to be served."""

import pytest
from server.conftest import SETTINGS, translator

from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.batching.rows import Sentence
from transformer_jax.decoding.text import live
from transformer_jax.decoding.text.live import LivePlan
from transformer_jax.decoding.text.searching import Draft
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.server.model import Served


@pytest.mark.thorough
def test_a_draft_model_does_not_change_translations(one_device, monkeypatch):
    """Compared with `translate`, which takes another path to its search."""
    trained = translator()
    drafted = DecodingConfig(beam_size=1, draft="runs/small", draft_length=2)
    (expected,) = trained.translate(["the cat"], DecodingConfig(beam_size=1))
    draft = Draft(trained.model, trained.params)
    monkeypatch.setattr(trained._beside, "draft", lambda *_: draft)
    served = Served(trained, drafted, SETTINGS)
    asking = served.translation(["the cat"], 1, "", 1)
    stream, found = served.streams[asking.kind], []
    while not found:
        waiting = [] if stream.numbers else enumerate(asking.sentences)
        found += stream.turn(waiting)
    ((_, tokens, scores),) = found
    assert served.translator(1).translations(tokens, scores)[0].text == expected


def test_shorter_sources_leave_more_positions_for_the_output(monkeypatch):
    """A source and its output share 10 positions."""
    asked = []
    monkeypatch.setattr(live, "live_shapes", lambda *given: asked.append(given))
    monkeypatch.setattr(live, "_plan", lambda *_: object.__new__(LivePlan))
    left = lambda self, ids, *_: Sentence(ids, 10 - len(ids))  # noqa: E731
    monkeypatch.setattr(Translator, "sentence", left)
    served = translator().translator()
    live.live_translation(served, None, 2)
    assert asked == [(served.longest, 9, 2, served.positions)]

"""Texts longer than the positions of a model: it reads their last half again, and goes on."""

import dataclasses

import numpy as np
import pytest
from decoding.test_generate import (
    CODEC,
    FILES,
    GREEDY,
    LINES,
    MODEL,
    PROMPTS,
    SAMPLES,
    generator,
    log_softmax,
    logits,
    made,
    prompts_of,
)

from transformer_jax.base.vocabulary import BOS, EOS, PAD

LENGTH = 45  # pieces: the window slides twice
ENDLESS = dataclasses.replace(GREEDY, forbidden=("</s>",))


def by_hand(objective) -> list[tuple[list[int], float]]:
    """Return the most likely pieces after each prompt and their log-probability, each by a pass
    over all that its window holds. With BOS, if texts begin with it; files do not.
    """
    texts, _ = prompts_of(objective)
    windows, written = [list(text) for text in texts], [([], 0.0) for _ in texts]
    for _ in range(LENGTH):
        for i, window in enumerate(windows):
            if len(window) > MODEL.max_positions:
                start = [BOS] * (objective == LINES)
                half = MODEL.max_positions // 2
                windows[i] = [*start, *[*texts[i], *written[i][0]][-(half - len(start)) :]]
        passes = logits(objective, windows, [0] * len(windows))
        for i, (window, row) in enumerate(zip(windows, passes, strict=True)):
            ids, total = written[i]
            allowed, raw = row[len(window) - 1].copy(), log_softmax(row[len(window) - 1])
            allowed[[PAD, BOS, EOS]] = -np.inf
            window.append(int(allowed.argmax()))
            written[i] = [*ids, window[-1]], total + raw[window[-1]]
    return written


@pytest.mark.one_in(2)
@pytest.mark.parametrize("objective", [LINES, FILES], ids=["lines", "files"])
def test_greedy_text_goes_on_beyond_the_window(objective):
    """Each piece is the likeliest after what its window holds; by default, too."""
    writer, params = generator(objective, ENDLESS), made(objective)[1]
    found = writer.generate(params, PROMPTS, LENGTH)
    for (one,), prompt, (ids, total) in zip(found, PROMPTS, by_hand(objective), strict=True):
        assert one.ids == ids
        assert one.text == prompt + CODEC.decode(ids)
        assert one.log_prob == pytest.approx(total, abs=1e-3)
        assert one.score == pytest.approx(total / ((5 + LENGTH) / 6) ** ENDLESS.alpha, abs=1e-3)
    assert writer._wanted(1, 3, None) == 256


@pytest.mark.thorough
def test_samples_beyond_the_window_depend_only_on_the_prompt_and_its_number():
    """Streamed or whole, alone or beside others."""
    params = made(FILES)[1]
    sampler = generator(FILES, dataclasses.replace(SAMPLES, num_samples=1))
    texts = [text for (text,) in sampler.generate(params, PROMPTS, LENGTH)]
    for text in texts:
        assert len(text.ids) == LENGTH
        parts = [tuple(text.ids[at : at + 12]) for at in range(LENGTH - 12)]
        assert len({*parts}) == len(parts)  # no window repeats another's draws
    streamed = list(sampler.stream(params, PROMPTS[1], LENGTH, 2))
    assert "".join(streamed) == texts[1].text
    assert len(streamed) == 1 + LENGTH


@pytest.mark.thorough
def test_a_text_that_ends_in_a_window_is_not_continued():
    """By EOS, in any window; the samples of a prompt differ in all of them."""
    params = made(LINES)[1]
    sampler = generator(LINES, dataclasses.replace(SAMPLES, num_samples=20), 20)
    (texts,) = sampler.generate(params, ["ab"], LENGTH)
    ended = [text.ids for text in texts if EOS in text.ids]
    assert len({len(ids) > MODEL.max_positions for ids in ended}) == 2  # early and late ones
    assert all(ids.index(EOS) == len(ids) - 1 for ids in ended)
    others = [text.ids for text in texts if EOS not in text.ids]
    assert {len(ids) for ids in others} <= {LENGTH}
    behind = [tuple(ids[MODEL.max_positions :][:8]) for ids in (*ended, *others)]
    long = [ids for ids in behind if len(ids) == 8]
    assert len({*long}) == len(long) > 1

"""Acting: a model chooses the actions of an agent, asked for a return."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float, Int
from transformer_jax.base.errors import UserError
from transformer_jax.config import DecodingConfig
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.data.codecs.actions import Actions
from transformer_jax.data.codecs.states import States
from transformer_jax.data.environments import Environment
from transformer_jax.data.random import Draw, uniform
from transformer_jax.data.sources.trajectories import History
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.models.model import Model

_ROWS = 512  # episodes at a time
_ACTION = 91  # a purpose of random numbers


class Played(NamedTuple):
    """One episode."""

    asked: float
    achieved: float
    steps: int
    success: bool | None  # None: the environment does not say
    first: Any  # observation


def action_logits(
    loaded: Loaded, histories: Sequence[History], rows: int | None = None
) -> Float[np.ndarray, "n A"]:
    """Return the logits of the next action of each episode, or a continuous action itself, from -1
    to 1. Of each episode the last `window` steps are read. `rows` is the number of rows to compute.

    Raises:
      UserError: if the model does not act, an episode is longer than it has time steps for, or its
        states or actions are not such as those of training.
    """
    states, actions = loaded.codecs
    if not isinstance(states, States):
        raise loaded.refusal("does not act; train one with objective.name='decide'")
    most, window = loaded.model.config.max_positions, loaded.objective.window
    batch = _blank(rows or len(histories), window, states, actions)
    lasts = np.zeros(len(batch[0].seg), np.int32)
    for row, one in enumerate(histories):
        _fill(batch, row, one, (states, actions), window, most)
        lasts[row] = min(len(one.states), window) - 1
    logits = _said(loaded.model, loaded.params, Batch(*batch, {}), lasts)
    return np.asarray(logits)[: len(histories)]


def next_actions(
    loaded: Loaded, histories: Sequence[History], decoding: DecodingConfig, rows: int | None = None
) -> list[Any]:
    """Return the next action of each episode: a number, or a vector [A] from -1 to 1. Of discrete
    ones the likeliest, or with `decoding.search="sample"` a random one at its temperature.

    Raises:
      UserError: see `action_logits`.
    """
    logits, actions = action_logits(loaded, histories, rows), loaded.codecs.tgt
    if isinstance(actions, Actions):
        return list(logits)
    if decoding.draws:
        logits = logits / decoding.temperature + _gumbel(histories, decoding.seed, logits.shape[1])
    return [int(name) for name in actions.pieces(logits.argmax(1))]


def _blank(rows: int, window: int, states: States, actions: Any) -> tuple[Side, Side]:
    """Return empty sides."""
    pos, seg = (np.zeros((rows, window), np.int32) for _ in range(2))
    read = np.zeros((rows, window, states.size), np.float32)
    done = np.zeros((rows, window), np.int32)
    if isinstance(actions, Actions):
        done = np.zeros((rows, window, actions.size), np.float32)
    return Side(read, pos, seg), Side(done, pos, seg)


def _fill(
    batch: tuple[Side, Side], row: int, one: History, codecs: Any, window: int, most: int
) -> None:
    """Write the last steps of an episode into a row; the newest action is not known."""
    states, actions = codecs
    src, tgt = batch
    total = len(one.states)
    if total > most:
        raise UserError(
            f"step {total}: config.model.max_positions={most} is all the time steps that the model "
            "knows; end the episode before"
        )
    times = np.arange(max(0, total - window), total)
    came = np.concatenate([[0.0], np.cumsum(one.rewards)])[times]
    seen = np.array([np.asarray(one.states[i], np.float64).reshape(-1) for i in times])
    whole = all(isinstance(one.states[i], int | np.integer) for i in times)
    states.check(seen, whole, f"episode {one.number + 1}")
    vectors = states.vectors(times, one.asked - came, seen)
    count = len(times)
    src.inputs[row, :count] = states.reader()(vectors, np.array([count]), np.zeros(1), Draw())
    src.pos[row, :count], src.seg[row, :count] = np.arange(count), 1
    for place, time in enumerate(times[:-1]):
        action = one.actions[time]
        done = action if isinstance(actions, Actions) else actions.piece_id(str(action))
        tgt.inputs[row, place] = done


def _gumbel(histories: Sequence[History], seed: int, count: int) -> np.ndarray:
    """Return a Gumbel number for each action: the largest sum with logits is a sample."""
    episode = np.array([[one.number] for one in histories])
    step = np.array([[len(one.states)] for one in histories])
    drawn = uniform(seed, episode, step, _ACTION, np.arange(count)[None])
    return -np.log(-np.log(np.maximum(drawn, 1e-300)) + 1e-300)


@functools.partial(jax.jit, static_argnums=0)
def _said(model: Model, params: Any, batch: Batch, lasts: Int[Array, "B"]) -> Float[Array, "B A"]:
    (output,) = model.outputs(params, batch, None).values()
    places = jnp.asarray(lasts).reshape(-1, 1, 1)
    return jnp.take_along_axis(output.logits(), places, 1)[:, 0]


Choose = Callable[[list[History]], list[Any]]


def episodes(
    make: Callable[[], Environment],
    asked: Sequence[float | None],
    seeds: Sequence[int],
    choose: Choose,
    most: int,
) -> list[Played]:
    """Return episodes of an agent that `choose`s the actions of all of them at a time, each in an
    environment of its own: episode i begins from seeds[i], and is asked for the return asked[i],
    None being the best that there is. They end after `most` steps at the latest.
    """
    places = [make() for _ in seeds]
    firsts = [one.reset(seed=seed)[0] for one, seed in zip(places, seeds, strict=True)]
    histories = [
        History(place.best(first) if wish is None else wish, [first], number=number)  # type: ignore[attr-defined]
        for number, (place, first, wish) in enumerate(zip(places, firsts, asked, strict=True))
    ]
    success: list[bool | None] = [None] * len(places)
    going = list(range(len(places)))
    while going:
        actions = choose([histories[i] for i in going])
        still = []
        for i, action in zip(going, actions, strict=True):
            observation, reward, ended, cut, known = places[i].step(action)
            one = histories[i]
            one.actions.append(action)
            one.rewards.append(float(reward))
            success[i] = known.get("is_success", success[i])
            if not (ended or cut) and len(one.rewards) < most:
                one.states.append(observation)
                still.append(i)
        going = still
    return [
        Played(one.asked, sum(one.rewards), len(one.rewards), well, first)
        for one, well, first in zip(histories, success, firsts, strict=True)
    ]


def act(
    loaded: Loaded,
    make: Callable[[], Environment],
    asked: Sequence[float | None],
    seeds: Sequence[int],
    decoding: DecodingConfig,
) -> list[Played]:
    """Return episodes of the model in an environment; see `episodes`.

    Raises:
      UserError: see `action_logits`.
    """
    most, found = loaded.model.config.max_positions, []
    rows = min(_ROWS, len(seeds))
    for start in range(0, len(seeds), rows):
        part = slice(start, start + rows)

        def choose(histories: list[History], start: int = start) -> list[Any]:
            moved = [_renumbered(one, start) for one in histories]
            return next_actions(loaded, moved, decoding, rows)

        found += episodes(make, asked[part], seeds[part], choose, most)
    return found


def _renumbered(one: History, start: int) -> History:
    return History(one.asked, one.states, one.actions, one.rewards, one.number + start)

"""Evaluation of agents, by letting them act."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from transformer_jax.api import TrainedEnsemble, TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.data import sources
from transformer_jax.data.codecs.states import States
from transformer_jax.data.environments import Environment, opened, random_action
from transformer_jax.data.sources import Corpus
from transformer_jax.data.sources.spelled_numbers import SPLITS
from transformer_jax.data.sources.trajectories import History
from transformer_jax.decoding.acting import Played, act, episodes
from transformer_jax.evaluation.metrics import interval
from transformer_jax.evaluation.run import Evaluation, digest
from transformer_jax.evaluation.values import correlation
from transformer_jax.plots import picture, returns

_ASKED = 10  # returns asked for by default


def evaluate(trained: TrainedModel, corpus: Corpus, split: str, checkpoint: str) -> Evaluation:
    """Return what an agent achieves in `data.environment` over `evaluation.episodes` episodes.

    "return": the mean when it is asked for the best: the highest return that the environment says
    there is from where an episode begins, or else the highest of training; "success", the share (%)
    of episodes that succeed, if the environment says so; "return_correlation" of what it is asked
    for and achieves, over episodes for each of `evaluation.asked_returns`. Details have the same
    for each of them and for simple agents: one that acts at random, as the data were generated;
    with discrete states one that does what was followed by the highest return in training from the
    same state; and the optimum, if the environment knows it. Episodes depend on the split and their
    number alone.

    Raises:
      UserError: if the model is an ensemble, or there is no environment.
    """
    if isinstance(trained, TrainedEnsemble):
        raise UserError("an ensemble does not act: load one checkpoint of one --workdir")
    experiment = trained.experiment
    data, config = experiment.data, experiment.evaluation
    place, seeds = opened(data), _seeds(split, config.episodes)
    best, groups = _asked(trained, hasattr(place, "best"), seeds)
    scores, lines = _scores(best, "asked for the best" if groups else "the model")
    optimum = _optimum(place, best)
    asked, achieved = (
        np.array([getattr(x, name) for group in groups.values() for x in group])
        for name in ("asked", "achieved")
    )
    if len(groups) > 1 and not np.isnan(related := correlation(asked, achieved)):
        scores["return_correlation"] = {"value": related, "signature": ""}
        lines.append(f"correlation of returns asked for and achieved = {related:.3f}")
    lines += [_line(f"asked for {wish:.4g}", group) for wish, group in groups.items()]
    lines += [_line(*one) for one in _controls(trained, seeds)]
    if optimum is not None:
        lines.append(f"the optimum: return {optimum:.3f}")
    rows = [_row(x, True, optimum) for x in best]
    rows += [_row(x, False, optimum) for group in groups.values() for x in group]
    rows = [{"line": number, **row} for number, row in enumerate(rows, 1)]
    if groups:
        rows[0] |= {
            "picture": picture.as_uri(returns.draw(asked, achieved, optimum)),
            "caption": f"{config.episodes} episodes for each return asked for",
        }
    where = f"{data.environment} {data.name} {data.environment_seed}"
    result = {
        "split": split, "checkpoint": checkpoint, "steps": trained.steps,
        "sentences": len(best), "scores": scores, "details": lines,
        "decoding": asdict(experiment.decoding), "evaluation": asdict(config),
        "references": digest([where, *map(str, seeds)]),
    }  # fmt: skip
    extent = f"{config.episodes} episodes in {data.name or data.environment}"
    return Evaluation(result, None, rows, extent)


def _seeds(split: str, count: int) -> range:
    """Return the seeds of the episodes of a split."""
    first = SPLITS.index(split) * 10**6
    return range(first, first + count)


def _asked(
    trained: TrainedModel, known: bool, seeds: Sequence[int]
) -> tuple[list[Played], dict[float, list[Played]]]:
    """Return episodes asked for the best, which the environment knows or else is the highest return
    asked for; and of each return that is asked for, none of a clone.
    """
    experiment, codec = trained.experiment, trained.tokenizers.src
    assert isinstance(codec, States)
    wishes = experiment.evaluation.asked_returns or np.linspace(*codec.returns, _ASKED).tolist()

    def acted(wish: float | None) -> list[Played]:
        make, wanted = partial(opened, experiment.data), [wish] * len(seeds)
        return act(trained.loaded, make, wanted, seeds, experiment.decoding)

    top = None if known else max(wishes)
    best = acted(top)
    if "action" not in trained.loaded.task.predicts:
        return best, {}
    return best, {wish: best if wish == top else acted(wish) for wish in wishes}


def _optimum(place: Environment, played: Sequence[Played]) -> float | None:
    """Return the mean of the highest returns that there are, if the environment knows them."""
    best = getattr(place, "best", None)
    return None if best is None else float(np.mean([best(x.first) for x in played]))


def _scores(played: Sequence[Played], how: str) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the scores of episodes, and the lines that say them."""
    values = np.array([x.achieved for x in played])
    mean, half = float(values.mean()), returns.half_interval(values)
    scores: dict[str, dict[str, Any]] = {
        "return": {"value": mean, "signature": "", "interval": [mean - half, mean + half]}
    }
    if played[0].success is not None:
        right = sum(bool(x.success) for x in played)
        low, high = (100 * end for end in interval(right, len(played)))
        value = 100 * right / len(played)
        scores["success"] = {"value": value, "signature": "", "interval": [low, high]}
    return scores, [_line(how, played)]


def _line(who: str, played: Sequence[Played]) -> str:
    values = np.array([x.achieved for x in played])
    steps = float(np.mean([x.steps for x in played]))
    line = f"{who}: return {values.mean():.3f} +- {returns.half_interval(values):.3f}"
    if played[0].success is not None:
        well = [x for x in played if x.success]
        low, high = (100 * end for end in interval(len(well), len(played)))
        line += f", success {100 * len(well) / len(played):.1f} % ({low:.1f} to {high:.1f})"
        steps = float(np.mean([x.steps for x in well])) if well else float("nan")
        return f"{line}, in {steps:.2f} steps" if well else line
    return f"{line}, {steps:.1f} steps"


def _row(played: Played, for_best: bool, optimum: float | None) -> dict[str, Any]:
    row = {"asked": played.asked, "for_best": for_best, "return": played.achieved}
    row["steps"] = played.steps
    if played.success is not None:
        row["success"] = bool(played.success)
    return row if optimum is None else row | {"optimum": optimum}


def _controls(trained: TrainedModel, seeds: Sequence[int]) -> list[tuple[str, list[Played]]]:
    """Return the episodes of simple agents, by their names."""
    experiment = trained.experiment
    data, most = experiment.data, experiment.model.max_positions

    make = partial(opened, data)

    def played(choose: Callable[[History], Any]) -> list[Played]:
        wishes = [0.0] * len(seeds)
        return episodes(make, wishes, seeds, lambda some: [choose(one) for one in some], most)

    generators = [np.random.default_rng([data.environment_seed, seed]) for seed in seeds]
    places = [make() for _ in seeds]  # which may behave in another way in each episode

    def at_random(one: History) -> Any:
        return random_action(places[one.number], one.states[-1], generators[one.number])

    found = [("at random", played(at_random))]
    table = best_followed(sources.load(data, "train", experiment.objective))
    if table:
        anything = next(iter(table.values()))
        choose = lambda one: table.get(int(one.states[-1]), anything)  # noqa: E731
        found.append(("a table of what was followed by the highest return", played(choose)))
    return found


def best_followed(corpus: Corpus) -> dict[int, int]:
    """Return for each state the action that was followed by the highest return in any trajectory
    that ended by itself: of others not all of the return is known. Nothing if states or actions are
    not discrete.
    """
    table: dict[int, tuple[float, int]] = {}
    for steps, actions in zip(corpus.src, corpus.tgt, strict=True):
        if not steps.discrete or not isinstance(actions, str):
            return {}
        if not steps.ended:
            continue
        ahead = np.cumsum(np.asarray(steps[::-1, 0]))[::-1]
        for state, gain, action in zip(steps[:, 1], ahead, actions.split(), strict=True):
            if gain > table.get(int(state), (-np.inf, 0))[0]:
                table[int(state)] = float(gain), int(action)
    return {state: action for state, (_, action) in table.items()}

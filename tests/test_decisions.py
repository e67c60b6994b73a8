"""An agent, from trajectories to episodes: training, acting, scores, and other environments."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
from itself import scores_tested
from starts import start_at_random
from tiny import RUN, random_params

import transformer_jax
from transformer_jax import admit
from transformer_jax.api import TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.cli import evaluate
from transformer_jax.cli.main import dispatch
from transformer_jax.config import (
    DataConfig,
    DecodingConfig,
    ModelConfig,
    ObjectiveConfig,
    SideConfig,
    SourceConfig,
    TokenizerConfig,
)
from transformer_jax.data import sources
from transformer_jax.data.codecs.pair import train_pair
from transformer_jax.data.environments import ShortestPaths, opened
from transformer_jax.data.sources.trajectories import History
from transformer_jax.decoding import acting
from transformer_jax.evaluation import acting as scoring
from transformer_jax.experiments import train
from transformer_jax.models.build import build_for
from transformer_jax.reports.report import gather
from transformer_jax.runs.workdir import WorkDir

MODEL = ModelConfig(
    architecture="decision_transformer", stem="trajectory", d_model=8, d_ff=12, num_heads=2,
    num_decoder_layers=1, positions="learned", max_positions=10, residual="pre_norm",
    input_norm=True, dropout_rate=0.1,
)  # fmt: skip
DATA = DataConfig(
    source="environment", environment="shortest_paths", max_steps=10, num_examples=(60, 6, 6),
    max_length=4, tokens_per_batch=64, num_buckets=1,
)  # fmt: skip
PATHS = dataclasses.replace(
    RUN, model=MODEL, objective=ObjectiveConfig("decide", window=4), src=SourceConfig("states"),
    tgt=SideConfig("labels"), data=DATA, tokenizer=TokenizerConfig(joint=False),
    training=dataclasses.replace(RUN.training, steps=4, label_smoothing=0.0),
    checkpoint=dataclasses.replace(RUN.checkpoint, every_steps=2),
    evaluation=dataclasses.replace(
        RUN.evaluation, every_steps=4, episodes=6, asked_returns=(-5.0, -2.0)
    ),
)  # fmt: skip
OWN = '''
import numpy as np

class Line:
    """Two numbers to bring to zero, by two numbers that are added."""

    def reset(self, *, seed):
        self.place, self.steps = np.random.default_rng(seed).normal(size=2), 0
        return self.place.astype(np.float32), {}

    def step(self, action):
        assert np.shape(action) == (2,)
        self.place, self.steps = self.place + action, self.steps + 1
        return self.place.astype(np.float32), -float(np.abs(self.place).sum()), False, False, {}

    def behaviour(self, observation, generator):
        return generator.uniform(-1, 1, 2)
'''


def untrained(experiment) -> TrainedModel:
    """Return a model with random parameters, and the codecs of its training data."""
    corpus = sources.load(experiment.data, "train", experiment.objective)
    pair = train_pair(experiment.tokenizer, corpus.src, corpus.tgt, experiment.codecs)
    model = build_for(experiment, *pair.sizes)
    return TrainedModel(experiment, model, random_params(model), pair, [1])


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a folder with the work directory of an agent, trained for four steps."""
    place = tmp_path_factory.mktemp("decisions")
    with pytest.MonkeyPatch.context() as patch:
        start_at_random(patch)
        train.run_experiment(PATHS, WorkDir(place / "run"))
    return place


@pytest.fixture(scope="module")
def model(home):
    return transformer_jax.load(home / "run")


@pytest.mark.thorough
def test_a_resumed_run_equals_an_uninterrupted_one(home, model, monkeypatch):
    start_at_random(monkeypatch)
    workdir = WorkDir(home / "twice")
    for steps in (2, 4):
        training = dataclasses.replace(PATHS.training, steps=steps)
        train.run_experiment(dataclasses.replace(PATHS, training=training), workdir)
    again = transformer_jax.load(workdir.path, "last").params
    whole = transformer_jax.load(home / "run", "last").params
    import jax

    assert all(map(np.array_equal, *map(jax.tree.leaves, (again, whole))))
    assert again["positions"]["table"].shape == (10, 8)


@pytest.mark.thorough
def test_episodes_are_scored_beside_those_of_simple_agents(home, capsys):
    """And a report has the picture, which `plot` also draws."""
    assert evaluate.main([f"--workdir={home}/run"]) == 0
    said = capsys.readouterr().out
    for words in ("asked for the best: return", "asked for -5: return", "at random: return",
                  "a table of what", "the optimum: return", "6 episodes"):  # fmt: skip
        assert words in said
    result = json.loads((home / "run/eval/test.best.json").read_text())
    rows = [*map(json.loads, (home / "run/eval/test.best.jsonl").read_text().splitlines())]
    assert len(rows) == 3 * 6
    best = [row for row in rows if row["for_best"]]
    assert result["scores"]["return"]["value"] == np.mean([row["return"] for row in best])
    assert all(row["asked"] >= row["return"] or row["success"] for row in best)
    assert all(row["return"] == -row["steps"] for row in rows)
    assert scores_tested(home / "run", "test") == {"return", "success"}
    assert '"picture"' in json.dumps(gather([(WorkDir(home / "run"), None)]))
    picture = home / "returns.svg"
    argv = ["plot", "returns", f"--workdir={home}/run", f"--output={picture}"]
    assert dispatch(argv) == 0
    assert "return asked for" in picture.read_text()
    with pytest.raises(UserError, match=r"run eval\.py, with --split=validation"):
        dispatch([*argv, "--split=validation"])


def test_an_agent_acts_after_a_history(home, model, capsys):
    """The same from Python, and from a file on the command line."""
    history = {"observations": [3, 5], "actions": [5], "rewards": [-1], "asked": -4}
    action = model.act(history)
    assert model.act([history, {"observations": [3], "asked": -2}])[0] == action
    assert action in range(20)
    assert len({model.act(history, search="sample", seed=i) for i in range(20)}) > 1
    assert len(set(model.act([history] * 20, search="sample"))) > 1
    (home / "now.json").write_text(json.dumps(history))
    argv = ["predict", f"--workdir={home}/run", f"{home}/now.json", "--format=jsonl"]
    assert dispatch(argv) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["action"], 0 < row["probability"] < 1) == (action, True)
    for wrong, said in (
        ({"observations": [1], "actions": [1]}, "1 observations, 1 actions, 0 rewards"),
        ([3], "no history"),
        ({"observations": [30]}, "state of step 0 is 30"),
        ({"observations": [1.5]}, "its states are vectors of 1 numbers"),
        ({"observations": [0] * 11, "actions": [1] * 10, "rewards": [0] * 10},
         "step 11: config.model.max_positions=10"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=said):
            model.act([wrong])


def test_what_is_asked_for_is_lowered_by_what_came(model, monkeypatch):
    """And an episode is read through a window of its last steps."""
    read = []
    said = acting._said

    def spy(network, params, batch, lasts):
        read.append(batch)
        return said(network, params, batch, lasts)

    monkeypatch.setattr(acting, "_said", spy)
    states = [int(x) for x in np.arange(6)]
    history = History(-2.0, states, [1, 2, 3, 4, 5], [-1.0, 0, 3, -1, -1])
    acting.next_actions(model.loaded, [history], DecodingConfig(), rows=2)
    src, tgt = read[0].src, read[0].tgt
    codec = model.tokenizers.src
    np.testing.assert_array_equal(src.inputs[0, :, 0], [2, 3, 4, 5])
    np.testing.assert_allclose(src.inputs[0, :, 1] * codec.return_scale, [-1, -4, -3, -2])
    np.testing.assert_array_equal(src.inputs[0, :, 2:].argmax(-1), [2, 3, 4, 5])
    names = model.tokenizers.tgt.pieces(tgt.inputs[0, :3])
    assert names == ["3", "4", "5"]
    assert not src.seg[1].any()


def test_an_episode_does_not_depend_on_those_beside_it(model):
    def played(count):
        make = lambda: opened(DATA)  # noqa: E731
        sample = DecodingConfig(search="sample", seed=3)
        return acting.act(model.loaded, make, [None] * count, range(count), sample)

    assert played(5)[:2] == played(2)


def test_a_shortest_path_is_the_best_that_there_is():
    graph = ShortestPaths(0)

    def choose(histories):
        """Go to the neighbour that is closest to the goal."""
        nodes = [one.states[-1] for one in histories]
        return [
            min(np.flatnonzero(graph.edges[node]), key=lambda x: graph.distances[x])
            for node in nodes
        ]

    played = acting.episodes(lambda: ShortestPaths(0), [None] * 30, range(30), choose, 10)
    assert all(x.success and x.achieved == x.asked == graph.best(x.first) for x in played)


def test_the_table_of_what_was_followed_by_the_highest_return():
    """Of trajectories that ended by themselves: of others the return is not known."""
    from transformer_jax.data.sources.trajectories import Steps

    def steps(states, ended):
        return Steps.of(-np.ones(len(states)), np.array(states), ended)

    src = [steps([0, 1, 2], True), steps([1], True), steps([0], False)]
    table = scoring.best_followed(sources.Corpus(src, ["1 2 7", "3", "9"], ""))
    assert table == {0: 1, 1: 3, 2: 7}
    vectors = [Steps.of(np.ones(1), np.ones((1, 2)))]
    assert scoring.best_followed(sources.Corpus(vectors, ["1"], "")) == {}


def test_a_clone_is_scored_without_being_asked_for_returns(capsys):
    clone = untrained(dataclasses.replace(PATHS, objective=ObjectiveConfig("clone", window=4)))
    evaluation = scoring.evaluate(clone, None, "test", "last")
    assert len(evaluation.rows) == 6
    assert "picture" not in evaluation.rows[0]
    assert evaluation.result["scores"].keys() == {"return", "success"}
    assert evaluation.result["details"][0].startswith("the model: return")


def continuous(**data):
    return dataclasses.replace(
        PATHS, model=dataclasses.replace(MODEL, actions="continuous"), tgt=SideConfig("actions"),
        data=dataclasses.replace(DATA, **data),
    )  # fmt: skip


@pytest.mark.thorough
def test_an_environment_of_ones_own_with_continuous_actions(tmp_path):
    """It is trained on, too: labels are vectors."""
    place = tmp_path / "line.py"
    place.write_text(OWN)
    admit(place)
    experiment = continuous(environment=f"{place}:Line")
    agent = untrained(experiment)
    result = scoring.evaluate(agent, None, "test", "last").result
    assert "success" not in result["scores"]
    assert [line for line in result["details"] if line.startswith("at random: return -")]
    assert agent.act({"observations": [[0.5, 1.0]]}).shape == (2,)
    (row,) = agent.predictions([History(0.0, [[0.5, 1.0]])])
    assert len(row["action"]) == 2
    brief = dataclasses.replace(experiment.training, steps=2)
    train.run_experiment(
        dataclasses.replace(
            experiment, training=brief,
            evaluation=dataclasses.replace(experiment.evaluation, every_steps=2),
        ), WorkDir(tmp_path / "run"),
    )  # fmt: skip
    rows = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    assert all(0 < row["loss"] < 2 for row in rows if "loss" in row)


@pytest.mark.parametrize(
    ("name", "act"),
    [("CartPole-v1", "labels"), pytest.param("Pendulum-v1", "actions", marks=pytest.mark.thorough)],
)
def test_environments_of_gymnasium(name, act):
    """Discrete actions, and continuous ones brought to their bounds."""
    pytest.importorskip("gymnasium")
    data = {"environment": "gymnasium", "name": name, "num_examples": (8, 2, 2)}
    experiment = continuous(**data)
    if act == "labels":
        experiment = dataclasses.replace(PATHS, data=dataclasses.replace(DATA, **data))
    agent = untrained(experiment)
    evaluation = scoring.evaluate(agent, None, "test", "last")
    assert all(0 < row["steps"] <= 10 for row in evaluation.rows)
    assert evaluation.result["scores"]["return"]["value"] != 0
    same = scoring.evaluate(agent, None, "test", "last")
    assert same.rows[1:] == evaluation.rows[1:]


def test_unknown_environments_of_gymnasium_are_named():
    pytest.importorskip("gymnasium")
    for name, said in (("", "as in CartPole-v1"), ("NoSuchThing-v0", "NoSuchThing")):
        with pytest.raises(UserError, match=rf"config\.data\.name='{name}'.*{said}"):
            opened(dataclasses.replace(DATA, environment="gymnasium", name=name))


def test_trajectories_that_people_collect_with_gymnasium(tmp_path):
    """In NumPy files, by the loop that its documentation shows."""
    gymnasium = pytest.importorskip("gymnasium")
    environment = gymnasium.make("CartPole-v1", max_episode_steps=12)
    environment.action_space.seed(0)
    rows, seen, over = [], environment.reset(seed=0)[0], False
    for _ in range(60):
        action = environment.action_space.sample()
        after, reward, terminated, truncated, _ = environment.step(action)
        rows.append((seen, action, reward, terminated, truncated))
        over = terminated or truncated
        seen = environment.reset()[0] if over else after
    while not (rows[-1][3] or rows[-1][4]):
        rows.pop()  # a trajectory without an end
    names = "observations", "actions", "rewards", "terminals", "timeouts"
    arrays = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
    np.savez(tmp_path / "train.npz", **arrays)
    data = DataConfig(source="trajectories", directory=str(tmp_path), max_steps=12)
    corpus = sources.load(data, "train", ObjectiveConfig("decide"))
    assert sum(map(len, corpus.src)) == len(rows)
    assert {steps.ended for steps in corpus.src} == {True, False}
    assert {*" ".join(corpus.tgt).split()} == {"0", "1"}


def test_the_environment_in_the_docs(tmp_path):
    text = (Path(__file__).parents[1] / "docs/modalities.md").read_text(encoding="utf-8")
    place = tmp_path / "mine.py"
    place.write_text(re.search(r"```python\n(class Corridor:.*?)```", text, re.DOTALL)[1])
    admit(place)
    data = dataclasses.replace(DATA, environment=f"{place}:Corridor")
    on = acting.episodes(
        lambda: opened(data), [None] * 5, range(5), lambda some: [1] * len(some), 9
    )
    assert all(x.success and x.achieved == x.asked == x.first - 5 for x in on)
    corpus = sources.load(data, "train", ObjectiveConfig("decide"))
    assert {*" ".join(corpus.tgt).split()} == {"0", "1"}

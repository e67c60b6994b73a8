"""Trajectories: files and generated ones, their codecs, windows, and which input is rejected."""

import dataclasses
import itertools
import json

import numpy as np
import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ObjectiveConfig, SourceConfig
from transformer_jax.data import environments
from transformer_jax.data.batches.batch import Ragged, one_per_row
from transformer_jax.data.codecs import actions as of_actions
from transformer_jax.data.codecs import states as of_states
from transformer_jax.data.codecs.codec import encoded
from transformer_jax.data.environments import ShortestPaths, opened
from transformer_jax.data.objectives.deciding import Clone, Decide
from transformer_jax.data.sources import trajectories
from transformer_jax.data.sources.corpus import load
from transformer_jax.data.sources.trajectories import Steps
from transformer_jax.data.store.token_store import TokenStore

OBJECTIVE = ObjectiveConfig("decide", window=3)
RNG = np.random.default_rng(0)
# Two trajectories, of three steps and of two: the second is cut off by a limit of time.
ARRAYS = {
    "observations": RNG.normal(size=(5, 2)).astype(np.float32) * [1, 10] + [0, 3],
    "actions": RNG.uniform(-1, 1, (5, 2)),
    "rewards": np.array([1.0, 0, 2, -1, -1]),
    "terminals": np.array([0, 0, 1, 0, 0], bool),
    "timeouts": np.array([0, 0, 0, 0, 1], bool),
}
WALKS = DataConfig(
    source="environment", environment="shortest_paths", max_steps=10, num_examples=(300, 20, 20)
)


@pytest.fixture
def written(tmp_path):
    """Return a function that writes arrays, and reads them as the training split."""

    def read(lines=None, most=10, **changed):
        if lines is None:
            arrays = {k: v for k, v in (ARRAYS | changed).items() if v is not None}
            np.savez(tmp_path / "train.npz", **arrays)
        else:
            (tmp_path / "train.jsonl").write_text("\n".join(lines) + "\n")
        config = DataConfig(source="trajectories", directory=str(tmp_path), max_steps=most)
        return load(config, "train", OBJECTIVE)

    return read


def line(**changed) -> str:
    fields = {"observations": [3, 1, 4], "actions": [0, 1, 1], "rewards": [0, 0.5, 1]}
    return json.dumps(fields | changed)


def store_of(corpus) -> tuple[TokenStore, of_states.States]:
    codec = of_states.train(SourceConfig(), corpus.src)
    other = of_actions.train(SourceConfig(), corpus.tgt)
    return TokenStore(encoded(codec, corpus.src), encoded(other, corpus.tgt)), codec


def test_arrays_of_all_steps_are_cut_where_trajectories_end(written):
    corpus = written()
    assert [len(x) for x in corpus.src] == [3, 2] == [len(x) for x in corpus.tgt]
    np.testing.assert_array_equal(corpus.src[1][:, 0], ARRAYS["rewards"][3:])
    np.testing.assert_allclose(corpus.src[1][:, 1:], ARRAYS["observations"][3:])
    np.testing.assert_array_equal(corpus.tgt[0], ARRAYS["actions"][:3])
    assert not corpus.src[0].discrete
    assert corpus.fingerprint != written(rewards=ARRAYS["rewards"] + 1).fingerprint


def test_json_lines_are_trajectories_and_the_last_observation_has_no_action(written):
    corpus = written([line(), "", line(observations=[0, 2, 1, 4])])
    assert corpus.tgt == ["0 1 1", "0 1 1"]
    assert corpus.src[0].discrete
    assert [x[:, 1].tolist() for x in corpus.src] == [[3, 1, 4], [0, 2, 1]]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"timeouts": None}, ["the trajectory from row 3 has no end", "last row, 4", "timeouts"]),
        ({"terminals": None, "timeouts": np.zeros(5)}, ["from row 0 has no end"]),
        ({"rewards": np.ones(4)}, ["observations has 5 entries, rewards 4", "same step"]),
        ({"observations": np.where(np.arange(10).reshape(5, 2) == 7, np.nan, 1.0)},
         ["rows 3 to 4", "observations of step 0 is [1.0, nan]", "leave out"]),
        ({"actions": 3 * ARRAYS["actions"]}, ["the action of step 0 is", "outside -1 to 1"]),
        ({"rewards": np.ones((5, 2))}, ["rewards have shape (3, 2)", "one number a step"]),
        ({"observations": np.array([1, 2, 3, -4, 0])},
         ["rows 3 to 4", "state of step 0 is -4", "renumber"]),
        ({"actions": None}, ["actions", "has no such array"]),
        ({"most": 2}, ["rows 0 to 2: 3 steps", "config.data.max_steps=2", "model.max_positions"]),
    ],
)  # fmt: skip
def test_malformed_arrays_are_rejected(written, changed, named):
    with pytest.raises(UserError) as caught:
        written(**changed)
    assert all(word in str(caught.value) for word in ["train.npz", *named]), caught.value


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("{", ["train.jsonl:2", "is no trajectory", '"rewards": [...]']),
        (line(actions=[0]), ["train.jsonl:2", "actions has 1 entries, rewards 3"]),
        (json.dumps({"actions": []}), ["train.jsonl:2", "observations"]),
        (line(rewards=[0, None, 1]), ["train.jsonl:2", "rewards of step 1 is None", "finite"]),
    ],
)
def test_malformed_lines_are_rejected(written, wrong, named):
    with pytest.raises(UserError) as caught:
        written([line(), wrong])
    assert all(word in str(caught.value) for word in named), caught.value


def test_a_missing_file_is_named(tmp_path):
    config = DataConfig(source="trajectories", directory=str(tmp_path), how_to_get="write it")
    with pytest.raises(UserError, match=r"train\.npz, nor such a \.jsonl.*write it"):
        load(config, "train", OBJECTIVE)


def test_states_are_standardised_and_returns_are_those_still_to_come(written):
    corpus = written()
    store, codec = store_of(corpus)
    vectors = store.src.sequence(0)
    np.testing.assert_array_equal(vectors[:, 0], [0, 1, 2])
    np.testing.assert_allclose(vectors[:, 1] * codec.return_scale, [3, 2, 2])
    assert (codec.return_scale, codec.returns) == (3, (-2, 3))
    np.testing.assert_allclose(store.src.ids[:, 2:].mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(store.src.ids[:, 2:].std(0), 1, rtol=1e-6)
    assert of_states.States(codec.model).digest == codec.digest
    assert codec.size == codec.channels == 4


def test_a_number_that_never_changes_is_read_as_zero(written):
    constant = ARRAYS["observations"] * [1, 0] + [0, 0.1]
    store, _ = store_of(written(observations=constant))
    assert not store.src.ids[:, 3].any()


def test_a_discrete_state_is_read_as_a_vector(written):
    corpus = written([line()])
    codec = of_states.train(SourceConfig(), corpus.src)
    (stored,) = codec.encode(corpus.src)
    read = codec.reader()(stored, np.array([3]), np.zeros(1, int), None)
    assert (codec.size, codec.channels) == (7, 3)
    np.testing.assert_array_equal(read[:, 2:].argmax(1), [3, 1, 4])
    np.testing.assert_array_equal(read[:, 2:].sum(1), 1)


def test_other_states_and_actions_than_those_of_training_are_rejected(written):
    corpus = written([line()])
    codec = of_states.train(SourceConfig(), corpus.src)
    unknown = Steps.of(np.zeros(2), np.array([0, 5]))
    with pytest.raises(UserError, match=r"state of step 1 is 5; those of training are 0 to 4"):
        codec.encode([unknown])
    vectors = Steps.of(np.zeros(2), np.zeros((2, 3)))
    with pytest.raises(UserError, match=r"vectors of 3 numbers, and those of training whole"):
        codec.encode([vectors])
    with pytest.raises(UserError, match=r"trajectory 2 are vectors of 3, those of the first whole"):
        of_states.train(SourceConfig(), [*corpus.src, vectors])
    with pytest.raises(UserError, match=r"tgt\.codec='labels'"):
        of_actions.train(SourceConfig(), corpus.tgt)
    control = of_actions.train(SourceConfig(), [np.zeros((3, 2))])
    with pytest.raises(UserError, match=r"have 1 numbers, and those of training 2"):
        control.encode([np.zeros((3, 1))])
    with pytest.raises(UserError, match=r"tgt\.codec='labels'"):
        control.encode(["0 1"])


@pytest.mark.parametrize("model", [b"{", b"{}", b'{"size": 0}', b'{"count": 0, "mean": [0]}'])
def test_damaged_codecs_are_noticed(model):
    for codec in (of_states.States, of_actions.Actions):
        with pytest.raises(ValueError, match="not the"):
            codec(model)


def test_windows_begin_at_every_step_and_keep_its_time(written):
    store, codec = store_of(written())
    items = Decide().items(store, dataclasses.replace(OBJECTIVE, window=2))
    assert items.src.lengths.tolist() == [2, 2, 1, 2, 1]
    assert Decide().select(items, DataConfig()).pairs.tolist() == [0, 1, 2, 3, 4]
    batch = Decide().examples(items, one_per_row(np.array([1, 4])), 3, 2, 2)
    np.testing.assert_array_equal(batch.src.inputs[..., 0], [[1, 2], [1, 0], [0, 0]])
    np.testing.assert_array_equal(batch.src.seg, [[1, 1], [1, 0], [0, 0]])
    labels, weight = batch.targets["action"]
    np.testing.assert_allclose(labels[0], ARRAYS["actions"][1:3], rtol=1e-6)
    np.testing.assert_array_equal(weight, batch.src.seg)
    np.testing.assert_array_equal(batch.tgt.inputs, labels)
    assert Clone().examples(items, one_per_row(np.array([1])), 1, 2, 2).main == "cloned_action"
    assert codec.returns[1] == 3


def test_only_the_best_trajectories_are_read(written):
    store, _ = store_of(written())
    items = Decide().items(store, OBJECTIVE)
    chosen = Decide().select(items, DataConfig(source="trajectories", best_share=0.5))
    assert chosen.pairs.tolist() == [0, 1, 2]
    assert chosen.dropped == {"of lower return": 2}


def test_random_walks_follow_edges_until_the_goal_or_the_limit():
    """The splits differ, and are the same each time; rewards are -1."""
    corpora = [load(WALKS, split, OBJECTIVE) for split in ("train", "validation", "train")]
    assert corpora[0].fingerprint == corpora[2].fingerprint != corpora[1].fingerprint
    assert [len(one) for one in corpora[:2]] == [300, 20]
    graph = opened(WALKS)
    arrived = 0
    for steps, actions in zip(corpora[0].src, corpora[0].tgt, strict=True):
        nodes = [*steps[:, 1].astype(int), int(actions.split()[-1])]
        assert actions.split() == [*map(str, nodes[1:])]
        assert all(graph.edges[a, b] for a, b in itertools.pairwise(nodes))
        assert graph.goal not in nodes[:-1]
        assert (steps[:, 0] == -1).all()
        assert nodes[-1] == graph.goal or len(steps) == graph.most
        arrived += nodes[-1] == graph.goal
    assert 0 < arrived < 300
    short = load(dataclasses.replace(WALKS, max_steps=4), "train", OBJECTIVE)
    assert max(map(len, short.src)) == 4
    other = load(dataclasses.replace(WALKS, environment_seed=1), "train", OBJECTIVE)
    assert other.fingerprint != corpora[0].fingerprint


def test_distances_are_those_of_a_search_from_every_node():
    graph = ShortestPaths(3)
    reach = np.eye(graph.nodes, dtype=bool)
    for steps in range(graph.nodes):
        for node in np.flatnonzero(reach[:, graph.goal]):
            assert graph.distances[node] <= steps
            assert graph.best(node) == -graph.distances[node]
        reach |= graph.edges @ reach
        assert (reach[:, graph.goal] == (graph.distances <= steps + 1)).all()


def test_an_edge_that_is_not_there_leads_nowhere():
    graph = ShortestPaths(0)
    node, _ = graph.reset(seed=5)
    wrong = int(np.flatnonzero(~graph.edges[node])[0])
    assert graph.step(wrong)[:3] == (node, -1.0, False)
    for _ in range(graph.most - 1):
        *_, ended, cut, _ = graph.step(wrong)
    assert (ended, cut) == (False, True)


def test_environments_that_cannot_be_acted_in_are_rejected(monkeypatch, tmp_path):
    with pytest.raises(UserError, match=r"config\.data\.environment='none'"):
        opened(DataConfig())
    own = tmp_path / "own.py"
    own.write_text("def nothing():\n    return 3\n")
    from transformer_jax import admit

    admit(own)
    with pytest.raises(UserError, match=r"returns 3, which lacks `reset` or `step`"):
        opened(dataclasses.replace(WALKS, environment=f"{own}:nothing"))
    with pytest.raises(UserError, match=r"behaviour.*action_space"):
        environments.random_action(object(), 0, RNG)


def test_corpora_are_the_same_after_encoding(written):
    """The store holds what the codec returns, whatever is read of it."""
    corpus = written()
    codec = of_states.train(SourceConfig(), corpus.src)
    assert isinstance(encoded(codec, corpus.src), Ragged)
    assert trajectories.returns_of(corpus.src).tolist() == [3, -2]

"""lm-evaluation-harness finds the same in a work directory, over HTTP, and in an export, with the
tasks of docs/serving.md.
"""

import json
import logging
import re
from pathlib import Path

import jax
import pytest
from server.conftest import listening, service_of
from tiny import random_params

from transformer_jax.api import load
from transformer_jax.data.codecs.pair import train_pair
from transformer_jax.models.build import build_for
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.runs.workdir import WorkDir

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
lm_eval = pytest.importorskip("lm_eval")
pytest.importorskip("torch")

from oracle.test_huggingface_peers import LINES, OURS  # noqa: E402

DOCS = Path(__file__).parents[2] / "docs/serving.md"
READ = 24  # pieces at a time
# Texts that are written are not compared with transformers': theirs may hold <unk> and BOS.
QUESTIONS = [
    {"question": "two dogs", "choices": ["run", "sits"], "answer": 0},
    {"question": "a dog", "choices": ["cd", "sits", "laufen über"], "answer": 1},
    {"question": "ab ", "choices": [" cd", "ein Hund"], "answer": 0},
]
TEXTS = ["two dogs run", " ".join(LINES[:5]), "ab cd"]  # the second one is several windows


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A directory with a work directory of a tiny random model, its export, and tasks."""
    from transformer_jax.export.huggingface.directory import export

    place, experiment = tmp_path_factory.mktemp("harness"), OURS["llama"]
    codecs = train_pair(experiment.tokenizer, [], LINES, experiment.codecs)
    params, workdir = random_params(build_for(experiment, *codecs.sizes)), WorkDir(place / "run")
    with workdir.claim(experiment):
        codecs.save(workdir.path)
        checkpoints = Checkpoints(workdir.checkpoints, experiment.checkpoint)
        checkpoints.save(1, params, {}, {}, {"loss": 1.0})
        checkpoints.close()
    export(experiment, params, codecs, place / "exported")
    (place / "tasks").mkdir()
    for task in re.findall(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL):
        name = re.match(r"task: (\w+)", task)[1]
        (place / f"tasks/{name}.yaml").write_text(task, encoding="utf-8")
    rows = {"sums": QUESTIONS, "texts": [{"text": text} for text in TEXTS]}
    for name, some in rows.items():
        lines = "".join(json.dumps(row) + "\n" for row in some)
        (place / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return place


@pytest.fixture
def evaluated(place, monkeypatch):
    """A function that evaluates a model on tasks, and returns its answers to all requests."""
    import datasets
    from lm_eval.tasks import TaskManager

    monkeypatch.chdir(place)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", place / "cache")
    logging.disable()
    tasks = TaskManager(include_path=place / "tasks", include_defaults=False)

    def evaluated(model: str, /, *names: str, **arguments) -> list:
        found = lm_eval.simple_evaluate(
            model, arguments, [*names], task_manager=tasks, bootstrap_iters=0
        )
        rows = [row for name in names for row in found["samples"][name]]
        rows = [answer for row in sorted(rows, key=lambda row: row["doc_id"])
                for (answer,) in row["resps"]]  # fmt: skip
        return [answer.strip() if isinstance(answer, str) else answer for answer in rows]

    yield evaluated
    logging.disable(logging.NOTSET)


def numbers(answers: list) -> list[float]:
    """Return the log-probabilities among answers."""
    return [answer[0] if isinstance(answer, tuple) else answer for answer in answers]


def agree(one: list, other: list) -> bool:
    """Whether log-probabilities are the same to 1e-5, and greedy answers are the same."""
    said = [[answer[1] for answer in some if isinstance(answer, tuple)] for some in (one, other)]
    return said[0] == said[1] and numbers(one) == pytest.approx(numbers(other), rel=1e-5, abs=1e-5)


def test_a_work_directory_and_its_export_give_the_same(place, evaluated):
    """Also where texts are longer than what is read at a time; BOS is counted nowhere."""
    import transformer_jax.harness  # noqa: F401 (registers the model)

    ours = {"workdir": str(place / "run")}
    theirs = {"pretrained": str(place / "exported"), "device": "cpu"}
    mine = evaluated("transformer_jax", "sums", **ours, add_bos_token=True)
    assert len(mine) == sum(len(row["choices"]) for row in QUESTIONS)
    assert agree(mine, evaluated("hf", "sums", **theirs, add_bos_token=True))
    short = {"add_bos_token": False, "max_length": READ}
    for name in ("sums", "texts"):
        mine = evaluated("transformer_jax", name, **ours, **short)
        assert agree(mine, evaluated("hf", name, **theirs, **short))
    (score,) = load(place / "run").score(TEXTS[:1])
    (found, *_) = evaluated("transformer_jax", "texts", **ours)
    assert found == pytest.approx(sum(score.log_probs[:-1]), abs=1e-5)  # without EOS


def test_a_server_gives_the_same_as_its_work_directory(place, evaluated, monkeypatch):
    """With tokens from the server, or from an exported tokenizer."""
    import transformer_jax.harness  # noqa: F401

    one = jax.local_devices()[:1]
    monkeypatch.setattr(jax, "local_devices", lambda *_: one)
    service = service_of(load(place / "run"), max_prompt=READ, max_tokens=8)
    with listening(service) as (address, _):
        server = {"base_url": f"{address}v1/completions", "model": "tiny", "max_retries": 1}
        ours = {"workdir": str(place / "run")}
        for name in ("sums", "texts"):
            mine = evaluated("transformer_jax", name, **ours, add_bos_token=False, max_length=READ)
            assert agree(mine, evaluated("local-completions", name, **server, max_length=READ + 2))
        mine = evaluated("transformer_jax", "sums", **ours)
        begun = {"tokenizer": str(place / "exported"), "add_bos_token": True}
        assert agree(mine, evaluated("local-completions", "sums", **server, **begun))
        mine = evaluated("transformer_jax", "written", **ours)
        assert mine == evaluated("local-completions", "written", **server, **begun)


def test_models_that_are_no_language_models_are_refused(tmp_path):
    from server.test_serve import save

    from transformer_jax.base.errors import UserError
    from transformer_jax.harness import TrainedLM

    save(tmp_path / "run", 3, 1.0)
    with pytest.raises(UserError, match="translates, and gives no probability of a text"):
        TrainedLM(workdir=str(tmp_path / "run"))

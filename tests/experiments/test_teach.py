"""From a teacher to a student, through files."""

import dataclasses

import jax
import numpy as np
import pytest
from starts import start_at_random
from tiny import RUN, random_params

from transformer_jax.api.trained import TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.cli import teach as command
from transformer_jax.config import ObjectiveConfig
from transformer_jax.data.batches.batching import BatchSource
from transformer_jax.experiments import train as runs
from transformer_jax.experiments.prepare import prepare
from transformer_jax.experiments.teach import teach
from transformer_jax.models.build import build, build_for
from transformer_jax.runs.workdir import WorkDir, read_rows
from transformer_jax.training.step import target_sums

VOCAB = RUN.tokenizer.vocab_size
TEXTS = dataclasses.replace(
    RUN,
    model=dataclasses.replace(RUN.model, architecture="decoder", num_encoder_layers=6),
    objective=ObjectiveConfig("language_model", window=8),
    data=dataclasses.replace(RUN.data, batching="pack"),
)
EXPERIMENTS = {"translate": RUN, "language_model": TEXTS}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("taught")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSFORMER_JAX_CACHE", str(home / "cache"))
        patch.setattr(runs.process, "use_compilation_cache", lambda: None)
        start_at_random(patch)
        yield home


def section(experiment, name, **changes):
    return dataclasses.replace(
        experiment, **{name: dataclasses.replace(getattr(experiment, name), **changes)}
    )


def student_of(experiment, directory, **training):
    taught = section(experiment, "data", teacher=str(directory))
    return section(taught, "training", **training)


@pytest.fixture(scope="module")
def teachers(home):
    """A random model for each experiment."""
    found = {}
    for name, experiment in EXPERIMENTS.items():
        tokenizers = prepare(experiment, WorkDir(home / "nothing")).tokenizers
        model = build_for(experiment, *tokenizers.sizes)
        found[name] = TrainedModel(
            experiment, model, random_params(model), tokenizers, [7], home / name
        )
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_teacher_is_its_own_best_student(home, teachers, name):
    """What was written is what the model predicts in training's own batches, packed or not: the
    divergence is 0, whatever the temperature, with all pieces and with some of them.
    """
    teacher = teachers[name]
    for top_k in (5, VOCAB):
        student = student_of(
            EXPERIMENTS[name], home / f"{name}{top_k}", distillation_weight=1.0,
            distillation_temperature=2.0,
        )  # fmt: skip
        said = teach(student, teacher, home / f"{name}{top_k}", top_k, (1.0, 2.0))
        assert said.startswith(f"the {top_k} likeliest of {VOCAB} pieces wherever one is")
        prepared = prepare(student, WorkDir(home / "nothing"))
        batch = BatchSource(prepared.train, prepared.plan, prepared.objective)[0]
        if name == "language_model":
            assert batch.tgt.seg.max() > 1

        @jax.jit
        def sums_of(params, batch, student=student):
            return target_sums(teacher.model, student.training, params, batch, None)["tokens"]

        sums = sums_of(teacher.params, batch)
        assert float(sums.loss / sums.weight) == pytest.approx(0, abs=1e-6)
        others = jax.tree.map(lambda x: 1.1 * x, teacher.params)
        assert sums_of(others, batch).loss / sums.weight > 1e-3
    again = teach(student, teacher, home / f"{name}{top_k}", top_k, (1.0, 2.0))
    assert "; already in " in again


@pytest.fixture(scope="module")
def student(home, teachers):
    """Trained in one go, on packed rows, in slices of the batch."""
    experiment = student_of(TEXTS, home / "lessons", accumulation_steps=2)
    teach(experiment, teachers["language_model"], home / "lessons", 4, (1.0,))
    workdir = WorkDir(home / "student")
    assert runs.run_experiment(experiment, workdir) == runs.Outcome.FINISHED
    return workdir


@pytest.mark.thorough
def test_a_resumed_student_equals_an_uninterrupted_one(home, student):
    whole = student.experiment()
    workdir = WorkDir(home / "resumed")
    runs.run_experiment(section(whole, "training", steps=3), workdir)
    assert runs.run_experiment(whole, workdir) == runs.Outcome.FINISHED
    assert workdir.metrics.read_bytes() == student.metrics.read_bytes()
    assert read_rows(student.metrics)[-1]["step"] == 6
    assert "teacher: " in student.log.read_text()
    assert ", step 7; its 4 likeliest of 48 pieces at " in student.log.read_text()


def test_a_run_keeps_its_teacher(home, teachers, student):
    """Another one's predictions are refused."""
    whole = student.experiment()
    trained = teachers["language_model"]
    other = TrainedModel(
        TEXTS, trained.model, random_params(trained.model, 1), trained.tokenizers, [7], trained.path
    )
    (home / "lessons").rename(home / "kept")
    try:
        teach(whole, other, home / "lessons", 4, (1.0,))
        with pytest.raises(UserError, match="data of the teacher: not the one that checkpoint 6"):
            runs.run_experiment(section(whole, "training", steps=9), student)
        other_data = section(whole, "data", num_examples=(199, 20, 20))
        with pytest.raises(UserError, match="was written for other training data"):
            prepare(other_data, WorkDir(home / "nothing"))
    finally:
        (home / "lessons").rename(home / "others")
        (home / "kept").rename(home / "lessons")


def test_the_command_writes_a_directory(home, student, capsys):
    """A trained model teaches another, which is as it was."""
    output = home / "by command"
    arguments = [f"--workdir={student.path}", f"--config={student.path}", "--top-k=3",
                 "--temperature=1", "--temperature=4"]  # fmt: skip
    assert command.main([*arguments, f"--config.data.teacher={output}"]) == 0
    assert f"written to {output}" in capsys.readouterr().out
    text = (output / "teacher.json").read_text()
    assert f"{student.path}, step 6" in text
    assert np.memmap(output / "teacher.ids", np.int32).size % 8 == 0
    with pytest.raises(UserError, match=r"config\.data\.teacher=None: name the directory"):
        command.main([*arguments, "--config.data.teacher=None"])
    for wrong in ("--temperature=0", "--top-k=0"):
        with pytest.raises(UserError, match=wrong):
            command.main([*arguments, wrong])


def test_unsuited_teachers_are_refused(home, teachers):
    teacher = teachers["translate"]
    wanted = student_of(RUN, home / "unsuited")
    with pytest.raises(UserError, match=r"objective\.name='translate', and predicts other pieces"):
        teach(student_of(TEXTS, home / "unsuited"), teacher, home / "unsuited", 4, (1.0,))
    with pytest.raises(UserError, match=r"another tokenizer .*init\.source='.*init\.take=\(\)"):
        teach(section(wanted, "tokenizer", vocab_size=40), teacher, home / "unsuited", 4, (1.0,))
    with pytest.raises(UserError, match="--top-k=49: the vocabulary has 48 pieces"):
        teach(wanted, teacher, home / "unsuited", 49, (1.0,))
    short = dataclasses.replace(RUN.model, positions="learned", max_positions=5)
    few = TrainedModel(
        RUN, build(short, VOCAB, VOCAB), None, teacher.tokenizers, [7], home / "few"
    )  # fmt: skip
    with pytest.raises(UserError, match=r"config\.model\.max_positions=5 is the most"):
        teach(wanted, few, home / "unsuited", 4, (1.0,))
    assert not (home / "unsuited").exists()

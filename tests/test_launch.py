"""The launch files of docs/launch: when they start a run again, and that they fit the program."""

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from transformer_jax.base.disk import DiskError
from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import load_config
from transformer_jax.config.convert import parse
from transformer_jax.sharding.processes import GONE
from transformer_jax.training.loop import Outcome

LAUNCH = Path(__file__).parents[1] / "docs/launch"
SCRIPTS = ("train.slurm", "again.sh")
FINAL = {UserError.exit_code, Outcome.DIVERGED, DiskError.exit_code, Outcome.UNSAVED}

# Ends with the next of $CODES; "wait" lasts until SIGTERM, as a run that saves.
COMMAND = """#!/bin/bash
echo "$@" >> "$HOME/calls"
code=$(sed -n "$(wc -l < "$HOME/calls")p" "$HOME/codes")
[[ $code = wait ]] || exit "$code"
trap 'exit 75' TERM
while :; do sleep 0.02; done
"""


@pytest.fixture
def started(tmp_path):
    """Return a function that starts a script, whose command ends with these codes in turn."""
    for name, text in (("srun", COMMAND), ("scontrol", '#!/bin/bash\necho "$@" > "$HOME/asked"\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {
        "HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}", "PAUSE": "0",
        "SLURM_JOB_ID": "17", "SLURM_CPUS_PER_TASK": "8",
    }  # fmt: skip

    def start(script: str, *codes: object) -> subprocess.Popen:
        (tmp_path / "codes").write_text("".join(f"{code}\n" for code in codes))
        command = ["srun"] if script == "again.sh" else []
        argv = ["bash", LAUNCH / script, *command, "--config=a b", "--workdir=c"]
        return subprocess.Popen(argv, env=environment, stderr=subprocess.DEVNULL)

    return start


def calls(home: Path) -> list[str]:
    path = home / "calls"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("again", [(), (GONE, 134, 128 + signal.SIGKILL, 1)], ids=len)
@pytest.mark.parametrize("last", [Outcome.FINISHED, *sorted(FINAL)])
def test_a_run_is_started_again_unless_that_would_change_nothing(
    started, tmp_path, script, again, last
):
    """A process was lost, however the others end; but not finished, nor for a person to solve."""
    assert started(script, *map(int, again), int(last), 99).wait(timeout=60) == last
    assert len(calls(tmp_path)) == len(again) + 1
    assert not (tmp_path / "asked").exists()


def test_slurm_starts_each_process_by_its_own_means(started, tmp_path):
    started("train.slurm", 0).wait(timeout=60)
    assert calls(tmp_path) == [
        "--kill-on-bad-exit=1 --cpus-per-task=8 transformer-jax train --coordinator=auto "
        "--config=a b --workdir=c"
    ]


@pytest.mark.parametrize(
    ("script", "number", "asked"),
    [("train.slurm", signal.SIGUSR1, "requeue 17\n"), ("again.sh", signal.SIGTERM, None)],
)
def test_a_run_that_is_asked_to_end_saves_and_is_not_started_again(
    started, tmp_path, script, number, asked
):
    """At the end of its time, Slurm puts the job back into the queue."""
    process = started(script, GONE, "wait", 99)
    end = time.monotonic() + 60
    while len(calls(tmp_path)) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    time.sleep(0.2)  # the second one waits
    process.send_signal(number)
    assert process.wait(timeout=60) == (0 if asked else GONE)
    assert len(calls(tmp_path)) == 2
    assert (tmp_path / "asked").exists() == (asked is not None)
    if asked:
        assert (tmp_path / "asked").read_text() == asked


def commands(script: str) -> list[list[str]]:
    """Return the commands in the comments at the top of a script, word by word."""
    text = (LAUNCH / script).read_text().partition("\n\n")[0]
    lines = re.sub(r"\\\n#", "", text)
    return [shlex.split(line) for line in re.findall(r"^#   (\w.*)", lines, re.M)]


def test_slurm_asks_for_one_process_a_gpu_and_to_be_started_anew():
    """For JAX gives a process of Slurm the GPU of its number within the machine."""
    text = (LAUNCH / "train.slurm").read_text()
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", text, re.M))
    assert options["ntasks-per-node"] == options["gpus-per-node"]
    assert options["requeue"] == ""
    assert options["signal"].startswith("B:USR1@")
    assert options["open-mode"] == "append"
    ((program, nodes, path, *arguments),) = commands("train.slurm")
    assert (program, path) == ("sbatch", "docs/launch/train.slurm")
    devices = int(nodes.removeprefix("--nodes=")) * int(options["gpus-per-node"])
    assert_divides(arguments, devices)


def test_every_machine_of_a_pod_runs_the_loop():
    gcloud = [words for words in commands("again.sh") if words[0] == "gcloud"]
    assert [words[4] for words in gcloud] == ["scp", "ssh", "ssh"]
    for words in gcloud:
        assert words[:4] == ["gcloud", "compute", "tpus", "tpu-vm"]
        assert "--worker=all" in words
    (command,) = (words[-1] for words in gcloud if "nohup" in words[-1])
    words = shlex.split(command.removeprefix("--command=").partition(" > ")[0])
    assert words[:5] == ["nohup", "bash", "again.sh", "transformer-jax", "train"]
    assert "--coordinator=auto" in words
    assert_divides([word for word in words[5:] if word != "--coordinator=auto"], 16)


def test_the_jobset_starts_as_many_processes_as_it_says():
    """And its pods find the first one; codes for which it gives up are those of the program."""
    jobset = yaml.safe_load((LAUNCH / "jobset.yaml").read_text())
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    policy, name = jobset["spec"]["failurePolicy"], jobset["metadata"]["name"]
    assert policy["restartStrategy"] == "BlockingRecreate"  # two runs in a directory are refused
    (rule,) = policy["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", ["PodFailurePolicy"])
    (replicated,) = jobset["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    assert job["completionMode"] == "Indexed"
    assert job["backoffLimit"] == 0
    (failure,) = job["podFailurePolicy"]["rules"]
    assert {*failure["onExitCodes"]["values"]} == FINAL
    pod = job["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # else there is no policy about exit codes
    (container,) = pod["containers"]
    assert failure["onExitCodes"]["containerName"] == container["name"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert volumes == {mount["name"] for mount in container["volumeMounts"]}
    command, *arguments = container["args"]
    assert command == "train"
    options = dict(word.split("=", 1) for word in arguments)
    assert options.pop("--coordinator").startswith(f"{name}-{replicated['name']}-0-0.{name}:")
    assert options.pop("--process_id") == "$(JOB_COMPLETION_INDEX)"
    count = int(options.pop("--num_processes"))
    assert count == job["completions"] == job["parallelism"]
    devices = count * container["resources"]["limits"]["nvidia.com/gpu"]
    assert_divides([f"{key}={value}" for key, value in options.items()], devices)


def assert_divides(arguments: list[str], devices: int) -> None:
    """Check that the arguments are those of `train`, and divide its batches among the devices."""
    options = dict(word.split("=", 1) for word in arguments)
    options.pop("--workdir")
    changes = {key.removeprefix("--config."): value for key, value in options.items()}
    experiment = parse(load_config(changes.pop("--config"), [*changes.items()]))
    mesh = experiment.mesh
    sizes = [mesh.stage, mesh.data, mesh.fsdp, mesh.expert, mesh.context, mesh.ulysses, mesh.tensor]
    assert sizes.count(-1) <= 1
    known = 1
    for size in sizes:
        known *= abs(size)
    assert devices == known if -1 not in sizes else devices % known == 0
    assert experiment.data.rows_divisible_by % devices == 0

"""Damage to checkpoint files: detected or harmless, never restored as different values."""

import collections
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.config import CheckpointConfig
from transformer_jax.runs.checkpoint import Checkpoints, DamagedCheckpoint
from transformer_jax.runs.integrity import checksums, seal, unseal

GENERATOR = np.random.default_rng(0)
PARAMS = {
    "w": jnp.asarray(GENERATOR.normal(size=(128, 128)), jnp.float32),
    "b": jnp.zeros(16, jnp.float32),  # compresses to almost nothing on disk
}
TRAINING = {"step": jnp.asarray(7, jnp.int32), "m": PARAMS}
HOST = {"step": 7, "seconds": 1.5, "best": -2.25, "window": {"loss": 0.1 + 0.2}}
SCORES = {"bleu": 30.0, "loss": 2.25}


def abstract(tree):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)


def save(directory: Path, step: int = 7) -> None:
    checkpoints = Checkpoints(directory, CheckpointConfig())
    checkpoints.save(step, PARAMS, TRAINING, HOST | {"step": step}, SCORES)
    checkpoints.close()


def flip(place: float):
    def damage(path: Path) -> None:
        raw = bytearray(path.read_bytes())
        raw[int(place * (len(raw) - 1))] ^= 0x10
        path.write_bytes(raw)

    return damage


def cut(share: float):
    return lambda path: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


FAULTS = {
    "first byte flipped": flip(0), "byte at 1/3 flipped": flip(1 / 3),
    "byte at 2/3 flipped": flip(2 / 3), "last byte flipped": flip(1),
    "cut to half": cut(0.5), "emptied": cut(0), "removed": Path.unlink,
}  # fmt: skip


def outcome(directory: Path) -> str:
    """Restore everything, then parameters alone; what is restored must be what was saved."""
    found = []
    for what in ("all", "parameters"):
        checkpoints = Checkpoints(directory, CheckpointConfig())
        try:
            if what == "all":
                params, training, host = checkpoints.restore(
                    7, abstract(PARAMS), abstract(TRAINING)
                )
                jax.tree.map(np.testing.assert_array_equal, training, TRAINING)
                assert host == HOST
            else:
                params = checkpoints.restore_params(7, abstract(PARAMS))
            jax.tree.map(np.testing.assert_array_equal, params, PARAMS)
            assert checkpoints.record(7)["scores"] == SCORES
            found.append("harmless")
        except DamagedCheckpoint as error:
            clear = "\n" not in str(error) and str(error).startswith(f"{directory}/7: damaged: ")
            found.append("noticed" if clear else f"unclear: {error}")
    return " / ".join(found)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "faults",
    [
        ["byte at 1/3 flipped", "cut to half", "removed"],
        pytest.param([*FAULTS], marks=pytest.mark.e2e),
    ],
    ids=len,
)
def test_every_fault_in_every_file_is_detected_or_harmless(tmp_path, faults):
    """A table of single faults: in files of params and training, of the record and of Orbax."""
    save(tmp_path / "good")
    names = sorted(
        str(path.relative_to(tmp_path / "good"))
        for path in (tmp_path / "good").rglob("*") if path.is_file()
    )  # fmt: skip
    assert len(names) > 20
    counts: collections.Counter = collections.Counter()
    for name in names:
        row = []
        for fault in faults:
            shutil.copytree(tmp_path / "good", tmp_path / "damaged")
            FAULTS[fault](tmp_path / "damaged" / name)
            row.append(outcome(tmp_path / "damaged"))
            shutil.rmtree(tmp_path / "damaged")
        counts.update(row)
        print(name, *row, sep=" | ")
        if name.endswith("record/metadata"):
            assert set(row) == {"noticed / noticed"}
    print(counts)
    assert counts["noticed / noticed"] > 4 * len(faults)
    assert counts.keys() <= {"noticed / noticed", "noticed / harmless", "harmless / harmless"}


def test_damage_to_any_byte_of_the_record_is_detected(tmp_path):
    """It cannot be cut at any byte, or changed to other values, unnoticed."""
    save(tmp_path)
    good = Checkpoints(tmp_path, CheckpointConfig()).record(7)
    same = []
    path = tmp_path / "7/record/metadata"
    raw = path.read_bytes()
    for place in range(len(raw)):
        for bad in (raw[:place], raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]):
            path.write_bytes(bad)
            try:
                assert Checkpoints(tmp_path, CheckpointConfig()).record(7) == good
                same.append(place)
            except DamagedCheckpoint:
                pass
    assert len(same) <= 2  # the last digit of 0.30000000000000004 may be a 5: the same number


def test_orbax_alone_restores_wrong_values(tmp_path, monkeypatch):
    """The reason for our checksums; if this ever fails, the storage has its own."""
    save(tmp_path)
    largest = max((tmp_path / "7/params").rglob("*"), key=lambda path: path.stat().st_size)
    flip(0.5)(largest)
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    with pytest.raises(DamagedCheckpoint, match=r"checksum mismatch in params/w$"):
        checkpoints.restore_params(7, abstract(PARAMS))
    monkeypatch.setattr("transformer_jax.runs.integrity.checksums", lambda tree: {})
    found = checkpoints.restore_params(7, abstract(PARAMS))
    assert (np.asarray(found["w"]) != np.asarray(PARAMS["w"])).any()


def test_a_checksum_detects_a_single_flipped_bit():
    before, w = checksums(PARAMS)["w"], np.array(PARAMS["w"])
    for bit in range(0, 32 * w.size, 997):
        w.reshape(-1).view(np.uint32)[bit // 32] ^= np.uint32(1 << bit % 32)
        assert checksums({"w": w})["w"] != before
        w.reshape(-1).view(np.uint32)[bit // 32] ^= np.uint32(1 << bit % 32)
    assert checksums({"w": w})["w"] == before


def test_checksums_do_not_depend_on_the_mesh():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    assert checksums(jax.device_put(PARAMS, spec)) == checksums(PARAMS)
    assert checksums(PARAMS)["w"].startswith("float32[128,128] ")
    assert checksums({"w": PARAMS["w"].T}) != checksums({"w": PARAMS["w"]})  # order matters
    negative = {"b": -PARAMS["b"]}
    assert checksums(negative)["b"] != checksums(PARAMS)["b"]  # -0.0 is not 0.0


def test_unseal_inverts_seal_and_rejects_invalid_input():
    values = {"a": [1, 2.5, None], "b": {"ä": float("inf")}}
    assert unseal(json.dumps(seal(values)).encode()) == values
    for bad in (b"", b"[]", b"{}", b'{"seal": 1}', b"\xff", b'{"a": NaN}'):
        with pytest.raises(ValueError, match=r"."):
            unseal(bad)


# --- what checkpoints do about it ---------------------------------------------------------------


def test_a_checkpoint_of_another_model_is_rejected_not_skipped(tmp_path):
    save(tmp_path)
    other = {**PARAMS, "w": jnp.zeros((3, 2))}
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    with pytest.raises(UserError, match=r"params/w is float32\[128,128\], expected float32\[3,2\]"):
        checkpoints.restore_params(7, abstract(other))
    with pytest.raises(UserError, match=r"params/c is missing"):
        checkpoints.restore_params(7, abstract({**PARAMS, "c": PARAMS["b"]}))


def test_half_deleted_and_half_written_checkpoints_do_not_count(tmp_path):
    save(tmp_path)
    (tmp_path / "9.orbax-checkpoint-tmp/params").mkdir(parents=True)
    (tmp_path / "3.deleted").mkdir()
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    assert checkpoints.steps() == [7]
    assert sorted(checkpoints.clean()) == ["3.deleted", "9.orbax-checkpoint-tmp"]
    assert [path.name for path in tmp_path.iterdir()] == ["7"]


def test_checkpoints_set_aside_are_no_longer_counted_or_chosen(tmp_path):
    for step in (7, 8):
        save(tmp_path, step)
    checkpoints = Checkpoints(tmp_path, CheckpointConfig(keep_last=1, best_by="loss"))
    assert checkpoints.choose("last") == [8]
    assert checkpoints.set_aside(8).name == "8.damaged"
    assert checkpoints.choose("last") == checkpoints.choose("best") == [7]
    checkpoints.save(8, PARAMS, TRAINING, HOST | {"step": 8}, None)
    checkpoints.wait()
    assert checkpoints.steps() == [7, 8]


def test_a_checkpoint_copied_under_another_step_is_damaged(tmp_path):
    """A directory's name must be the step it holds; a name with leading zeros is ignored."""
    save(tmp_path)
    for name in ("9999", "007"):
        shutil.copytree(tmp_path / "7", tmp_path / name)
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    assert checkpoints.steps() == [7, 9999]
    shown = r"/9999: holds step 7, not step 9999; delete it, or rename it to 7$"
    for name in ("last", "9999", "average:2"):
        with pytest.raises(DamagedCheckpoint, match=shown):
            checkpoints.load_params(name, abstract(PARAMS))
    assert checkpoints.hosts().keys() == {7}

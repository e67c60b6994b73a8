"""Pictures of learning curves: every format, every measure, and lines told apart without colour."""

import numpy as np
import pytest
from PIL import Image
from written import EXPERIMENT, trained, with_field

from transformer_jax.base.errors import UserError
from transformer_jax.cli.main import dispatch
from transformer_jax.plots.curves import ACROSS, TITLES, draw
from transformer_jax.plots.picture import SUFFIXES
from transformer_jax.reports import runs
from transformer_jax.reports.curves import curves as curves_of


@pytest.fixture
def places(tmp_path) -> list:
    other = with_field(EXPERIMENT, "model.d_ff", 64)
    return [trained(tmp_path / "one"), trained(tmp_path / "_two", other, factor=1.3)]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_is_valid_and_reproducible(suffix, places, tmp_path, capsys):
    files = [tmp_path / f"new{i}/x{suffix}" for i in range(2)]
    for file in files:
        argv = [*(str(place.path) for place in places), f"--output={file}"]
        assert dispatch(["plot", "curves", *argv]) == 0
    one, other = (file.read_bytes() for file in files)
    assert one == other
    assert one.lstrip().startswith({".svg": b"<?xml", ".pdf": b"%PDF", ".png": b"\x89PNG"}[suffix])
    assert f"written to {files[1]}" in capsys.readouterr().out


def read(place):
    run = runs.read(place)
    return curves_of(run.metrics, run.timings)


@pytest.mark.parametrize("across", ACROSS)
def test_every_measure_has_its_panel(across, places, tmp_path):
    curves = {place.path.name: read(place) for place in places}
    draw(curves, tmp_path / "x.svg", list(TITLES), across, nats=False)
    text = (tmp_path / "x.svg").read_text()
    for title in (*TITLES.values(), ACROSS[across], "one", " _two"):
        assert f">{title}</text>" in text


def test_pictures_are_grey_and_lines_differ_in_dashes(places, tmp_path):
    curves = {place.path.name: read(place) for place in places}
    draw(curves, tmp_path / "x.png", ["loss"])
    picture = np.asarray(Image.open(tmp_path / "x.png").convert("RGB"), np.int16)
    assert np.ptp(picture, axis=2).max() == 0
    draw(curves, tmp_path / "x.svg", ["loss"])
    assert (tmp_path / "x.svg").read_text().count("stroke-dasharray: 6.5") >= 1  # 5 x 1.3 points


def test_unknown_and_missing_measures_are_rejected(places, tmp_path):
    output = f"--output={tmp_path}/x.svg"
    with pytest.raises(UserError, match="--measures: unknown choice 'los'"):
        dispatch(["plot", "curves", str(places[0].path), "--measures=los", output])
    rows = [line for line in places[0].metrics.read_text().splitlines() if "validation" not in line]
    places[0].metrics.write_text("\n".join(rows) + "\n")
    with pytest.raises(UserError, match="--measures=validation_loss: no run has it yet; leave"):
        dispatch(["plot", "curves", str(places[0].path), "--measures=validation_loss", output])
    assert dispatch(["plot", "curves", str(places[0].path), output]) == 0  # draws what there is
    assert "validation" not in (tmp_path / "x.svg").read_text()


def test_a_sweep_is_drawn_from_its_work_directories(places, tmp_path):
    for d_ff, place in zip((2048, 64), places, strict=True):
        place.path.rename(tmp_path / f"model.d_ff={d_ff}")
    argv = [f"--workdir={tmp_path}", f"--output={tmp_path}/x.svg"]
    assert dispatch(["plot", "sweep", *argv]) == 0
    text = (tmp_path / "x.svg").read_text()
    assert ">model.d_ff</text>" in text
    assert ">validation BLEU</text>" in text
    with pytest.raises(UserError, match="no work directories of a sweep"):
        dispatch(["plot", "sweep", f"--workdir={tmp_path}/model.d_ff=64", argv[1]])

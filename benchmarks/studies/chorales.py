"""Music that a model of configs/chorales.py writes, as MIDI files and as pictures.

    pip install mido
    transformer-jax generate --workdir=runs/chorales --prompt='' --num-samples=3 > chorales.txt
    python benchmarks/studies/chorales.py chorales.txt --output=chorales

Each line of the file, "74,70,65,58 75,70,65,55", becomes OUTPUT/1.mid, OUTPUT/1.svg and so on. A
step is a sixteenth note; a voice that stays on a pitch holds it, as the data do not tell held notes
from repeated ones.
"""

import argparse
import importlib
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.base.errors import UserError
from transformer_jax.data.codecs.notes import SILENCE, fault
from transformer_jax.data.sources.files import read_lines
from transformer_jax.plots.picture import save

TICKS = 120  # of a sixteenth note, at 480 a quarter note
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")


class Held(NamedTuple):
    """A pitch that a voice holds, from step `start` for `steps` steps."""

    voice: int
    start: int
    steps: int
    pitch: int


def held(music: str) -> list[Held]:
    """Return the notes of a line of music, voice by voice, without silence."""
    voices = zip(*(map(int, step.split(",")) for step in music.split()), strict=True)
    notes = []
    for voice, pitches in enumerate(voices):
        start = 0
        for pitch, run in groupby(pitches):
            steps = len(list(run))
            if pitch != SILENCE:
                notes.append(Held(voice, start, steps, pitch))
            start += steps
    return notes


def events(notes: list[Held], voice: int) -> list[tuple[int, bool, int]]:
    """Return the (time in ticks, whether it begins, pitch) of a voice's notes; ends come first."""
    changes = [
        (TICKS * at, begins, note.pitch)
        for note in notes
        if note.voice == voice
        for at, begins in ((note.start, True), (note.start + note.steps, False))
    ]
    return sorted(changes)


def midi(music: str, tempo: int) -> Any:
    """Return a MIDI file with a track for each voice, at `tempo` quarter notes a minute."""
    try:
        mido = importlib.import_module("mido")
    except ImportError:
        raise UserError("MIDI files need mido: pip install mido") from None
    file, notes = mido.MidiFile(ticks_per_beat=4 * TICKS), held(music)
    for voice in range(1 + music.split()[0].count(",")):
        track = mido.MidiTrack()
        if voice == 0:
            track.append(mido.MetaMessage("set_tempo", tempo=mido.bpm2tempo(tempo)))
        now = 0
        for time, begins, pitch in events(notes, voice):
            kind = "note_on" if begins else "note_off"
            track.append(mido.Message(kind, channel=voice % 9, note=pitch, time=time - now))
            now = time
        file.tracks.append(track)
    return file


def picture(music: str) -> Any:
    """Return the figure of a line of music: a bar for each note, a colour for each voice."""
    from matplotlib.figure import Figure

    steps = len(music.split())
    figure = Figure(figsize=(min(2 + steps / 20, 12), 2.8), layout="constrained")
    panel = figure.subplots()
    for note in held(music):
        panel.barh(note.pitch, note.steps, left=note.start, height=0.8, edgecolor="white",
                   linewidth=0.4, color=COLOURS[note.voice % len(COLOURS)])  # fmt: skip
    panel.set(xlabel="sixteenth notes", ylabel="MIDI pitch", xlim=(0, steps))
    panel.spines[["top", "right"]].set_visible(False)
    return figure


def main(arguments: list[str] | None = None) -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="lines of music")
    parser.add_argument("--output", type=Path, required=True, help="folder for .mid and .svg files")
    parser.add_argument("--tempo", type=int, default=80, help="quarter notes per minute")
    given = parser.parse_args(arguments)
    lines = [line for line in read_lines(given.file) if line.strip()]
    for number, music in enumerate(lines, 1):
        voices = music.split()[0].count(",") + 1
        if problem := fault(music, voices):
            raise UserError(f"{given.file}: text {number}: {problem}")
    given.output.mkdir(parents=True, exist_ok=True)
    for number, music in enumerate(lines, 1):
        midi(music, given.tempo).save(given.output / f"{number}.mid")
        save(picture(music), given.output / f"{number}.svg")


if __name__ == "__main__":
    main()

"""Compare translations of a model exported to CTranslate2 with those of the original.

    python benchmarks/peers/agree.py --workdir=runs/multi30k --source=FILE --beam-size=4,5

Exports in float32 and translates with both, using the same beam size, the `power` penalty with
alpha 1 and `width` stopping. Prints one JSON line per beam size. The exit code is 1 if fewer than
99 % of the texts are identical, or if the scores of identical texts differ by more than 1e-3. Needs
the extra `bench`.
"""

import argparse
import dataclasses
import json
import sys
import tempfile
from pathlib import Path

import ctranslate2

from transformer_jax.api import TrainedModel, load
from transformer_jax.config import DecodingConfig
from transformer_jax.data.sources.files import read_lines
from transformer_jax.export.ctranslate2.directory import export
from transformer_jax.export.ctranslate2.search_options import options


def main() -> int:
    """Compare, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--checkpoint", help="best, last, a step or average:N")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--beam-size", default="4", help="comma-separated, such as 4,5")
    arguments = parser.parse_args()
    trained = load(arguments.workdir, arguments.checkpoint)
    lines = read_lines(arguments.source)
    agree = True
    with tempfile.TemporaryDirectory() as place:
        output = Path(place) / "model"
        config = trained.experiment.model
        export(config, trained.params, trained.tokenizers, output, "float32")
        engine = ctranslate2.Translator(str(output), compute_type="float32")
        for beam_size in map(int, arguments.beam_size.split(",")):
            row = compare(trained, engine, lines, beam_size)
            print(json.dumps(row), flush=True)
            agree &= row["same_text"] >= 0.99 * row["sentences"]
            agree &= row["largest_score_difference"] <= 1e-3
    return 0 if agree else 1


def compare(
    trained: TrainedModel, engine: ctranslate2.Translator, lines: list[str], beam_size: int
) -> dict:
    """Translate with both and count identical texts; compare the scores of these."""
    decoding = DecodingConfig(beam_size=beam_size, length_penalty="power", alpha=1.0, stop="width")
    if trained.experiment.model.positions == "learned":
        decoding = dataclasses.replace(decoding, max_extra_length=0)
    lines = [line for line in lines if line.strip()]
    ours = trained.translator(decoding).translate(trained.params, lines)
    tokenizers = trained.tokenizers
    theirs = engine.translate_batch(
        [tokenizers.src.pieces(ids) for ids in tokenizers.src.encode(lines)],
        **options(decoding),
        return_scores=True,
        max_batch_size=64,
    )
    differences = []
    for mine, other in zip(ours, theirs, strict=True):
        pieces = other.hypotheses[0]
        text = tokenizers.tgt.decode(tokenizers.tgt.piece_id(piece) for piece in pieces)
        if text == mine.text:
            differences.append(abs(mine.score - other.scores[0]))
    return {
        "beam_size": beam_size,
        "sentences": len(lines),
        "same_text": len(differences),
        "largest_score_difference": max(differences, default=0.0),
    }


if __name__ == "__main__":
    sys.exit(main())

"""The code in docs/tour.md runs as written and prints the output shown."""

import contextlib
import io
import re
from pathlib import Path

TOUR = Path(__file__).parents[1] / "docs" / "tour.md"
_BLOCK = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def test_every_block_prints_the_output_shown_below_it():
    text = TOUR.read_text(encoding="utf-8")
    blocks = _BLOCK.findall(text)
    assert len(blocks) == text.count("```python") == text.count("```text")
    names: dict = {}
    for source, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, "docs/tour.md", "exec"), names)
        assert printed.getvalue() == expected, source

"""An extension of Griffe: "name: what it is" in the docstring of a class describes its fields."""

import re
from typing import Any

import griffe

_FIELD = re.compile(r"(\w+): ")


class Fields(griffe.Extension):
    """Marks such paragraphs as sections of attributes."""

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Rewrite the docstring of a class that has fields."""
        if cls.docstring is None:
            return
        paragraphs = cls.docstring.value.split("\n\n")
        for i, paragraph in enumerate(paragraphs):
            match = _FIELD.match(paragraph)
            if match and match[1] in cls.members:
                fields = "\n".join(f"  {line}" for line in paragraph.splitlines())
                paragraphs[i] = f"Attributes:\n{fields}"
        cls.docstring.value = "\n\n".join(paragraphs)

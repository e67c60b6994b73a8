"""Programs in Python that load an exported directory, as its README.md shows them.

They run where the directory is, under the name it was written with; tests/oracle/test_cards.py runs
them.
"""

from collections.abc import Mapping
from typing import Any


def transformers(directory: str, auto_class: str) -> str:
    """Return a program for a directory that transformers loads with one of its auto classes."""
    question = auto_class == "AutoModelForQuestionAnswering"
    texts = '"A question?", "A text with the answer."' if question else '"A text."'
    uses = "print(model(**inputs))"
    if auto_class in ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM"):
        uses = (
            'inputs.pop("token_type_ids", None)\n'
            "found = model.generate(**inputs)\n"
            "print(tokenizer.decode(found[0], skip_special_tokens=True))"
        )
    return f"""\
from transformers import {auto_class}, AutoTokenizer

directory = {directory!r}  # or its name on the Hub
tokenizer = AutoTokenizer.from_pretrained(directory)
model = {auto_class}.from_pretrained(directory)
inputs = tokenizer({texts}, return_tensors="pt")
{uses}
"""


def ctranslate2(directory: str, two_sided: bool, options: Mapping[str, Any]) -> str:
    """Return a program for a directory of CTranslate2, with options of the search."""
    given = "".join(f"    {name}={value!r},\n" for name, value in options.items())
    kind, call = ("Translator", "translate_batch") if two_sided else ("Generator", "generate_batch")
    source, target = ("source", "target") if two_sided else ("text", "text")
    framed = '[*pieces, "</s>"]' if two_sided else '["<s>", *pieces]'
    found = "hypotheses[0]" if two_sided else "sequences[0]"
    return f"""\
import ctranslate2
import sentencepiece

directory = {directory!r}
read = sentencepiece.SentencePieceProcessor(f"{{directory}}/{source}.spm")
write = sentencepiece.SentencePieceProcessor(f"{{directory}}/{target}.spm")
pieces = read.encode("A text.", out_type=str)
found = ctranslate2.{kind}(directory).{call}(
    [{framed}],
{given})
print(write.decode([piece for piece in found[0].{found} if piece not in ("<s>", "</s>")]))
"""


def stablehlo(directory: str, inputs: int) -> str:
    """Return a program for a directory of StableHLO whose pass over texts has so many inputs."""
    return f"""\
import json

import jax
import numpy as np
from safetensors.numpy import load_file

directory = {directory!r}
described = json.load(open(f"{{directory}}/README.json"))  # inputs and outputs of each program
forward = open(f"{{directory}}/{{described['programs']['forward']['file']}}", "rb").read()
parameters = load_file(f"{{directory}}/{{described['parameters']}}")
program = jax.export.deserialize(bytearray(forward))
inputs = []
for form in program.in_avals[-{inputs}:]:  # one text for each side, padded if the length is fixed
    length = form.shape[1] if isinstance(form.shape[1], int) else 2
    inputs.append(np.array([[1, 2] + [0] * (length - 2)], np.int32))  # ids of pieces
print(program.call(parameters, *inputs))
"""


def llama_cpp(directory: str, file: str) -> str:
    """Return a program for a directory with a GGUF file."""
    return f"""\
from llama_cpp import Llama

model = Llama("{directory}/{file}", verbose=False)
print(model.create_completion("A", max_tokens=20, temperature=0.0)["choices"][0]["text"])
"""

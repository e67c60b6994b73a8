"""The programs in model cards run, as written, in the folder of the directory they describe; and
directories have what vLLM's loader asks of a decoder.
"""

import dataclasses
import json
import re

import pytest
import transformers
from oracle.test_gguf import CORPUS, ROPE, experiment_of, runtime
from safetensors import safe_open
from tiny import random_params

from transformer_jax.cli.main import dispatch
from transformer_jax.config import Experiment, ModelConfig, SourceConfig, TokenizerConfig
from transformer_jax.data.codecs.pair import train_pair
from transformer_jax.models.build import build_for
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.runs.workdir import WorkDir

pytestmark = pytest.mark.oracle
PAIRS = Experiment(
    model=ModelConfig(
        d_model=16, d_ff=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, biases=(),
        residual="pre_norm",
    ),
    tokenizer=TokenizerConfig(vocab_size=48),
)  # fmt: skip
MARIAN = dataclasses.replace(
    PAIRS, model=ModelConfig(d_model=16, d_ff=16, num_heads=2, num_encoder_layers=1,
                             num_decoder_layers=1),
)  # fmt: skip
WRITER = dataclasses.replace(experiment_of(ROPE), src=SourceConfig())
# llama.cpp stops at a character that is neither a piece nor spelled in bytes.
WITH_BYTES = dataclasses.replace(
    WRITER, tokenizer=dataclasses.replace(WRITER.tokenizer, vocab_size=320, byte_fallback=True)
)


def untrained(experiment: Experiment, place) -> str:
    """Write a work directory with random parameters, and return its name."""
    workdir = WorkDir(place)
    tokenizers = train_pair(experiment.tokenizer, CORPUS, CORPUS)
    with workdir.claim(experiment):
        tokenizers.save(workdir.path)
        checkpoints = Checkpoints(workdir.checkpoints, experiment.checkpoint)
        params = random_params(build_for(experiment, *tokenizers.sizes))
        checkpoints.save(1, params, {}, {}, {"bleu": 1.0, "loss": 1.0})
        checkpoints.close()
    return str(workdir.path)


def exported(experiment, form, tmp_path):
    run = untrained(experiment, tmp_path / "run")
    output = tmp_path / "out" / "model"
    output.parent.mkdir()
    assert dispatch(["export", f"--to={form}", f"--workdir={run}", f"--output={output}"]) == 0
    return output


@pytest.mark.parametrize(
    ("form", "experiment"),
    [
        ("huggingface", MARIAN), ("huggingface", WRITER), ("ctranslate2", PAIRS),
        ("ctranslate2", WRITER), ("stablehlo", PAIRS), ("stablehlo", WRITER),
        pytest.param("gguf", WITH_BYTES, marks=runtime),
    ],
)  # fmt: skip
def test_the_program_of_a_card_runs(form, experiment, tmp_path, monkeypatch, capsys):
    output = exported(experiment, form, tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", (output / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(output.parent)
    capsys.readouterr()
    exec(program, {})
    assert capsys.readouterr().out.endswith("\n")  # random parameters may write nothing


def test_a_decoder_has_what_vllm_asks_for(tmp_path):
    """What its loader reads: https://docs.vllm.ai/en/latest/contributing/model/registration.html.

    vLLM itself is not run: it chooses a class by `architectures`, reads sizes from config.json, the
    end of a text from generation_config.json and tensors from safetensors by transformers' names.
    """
    output = exported(WRITER, "huggingface", tmp_path)
    words = json.loads((output / "config.json").read_text())
    assert words["architectures"] == ["LlamaForCausalLM"]  # in vLLM's registry
    assert words.get("torch_dtype", words.get("dtype")) == "float32"
    config = transformers.AutoConfig.from_pretrained(output)
    assert config.num_attention_heads % config.num_key_value_heads == 0
    assert config.max_position_embeddings == ROPE.max_positions
    assert config.vocab_size == words["vocab_size"]
    search = json.loads((output / "generation_config.json").read_text())
    assert (search["bos_token_id"], search["eos_token_id"]) == (1, 2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(output)
    assert tokenizer.is_fast
    assert len(tokenizer) <= config.vocab_size
    assert tokenizer.eos_token_id == search["eos_token_id"]
    with safe_open(output / "model.safetensors", "pt") as file:
        given = {*file.keys()}
        assert file.metadata() == {"format": "pt"}
    expected = {*transformers.AutoModelForCausalLM.from_config(config).state_dict()}
    assert given == expected - ({"lm_head.weight"} if config.tie_word_embeddings else set())

"""Chat templates and chat models beside `transformers`: the same texts, pieces and answers."""

import json
import random
from dataclasses import replace

import pytest

from transformer_jax.config import (
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    InitConfig,
    ObjectiveConfig,
    OptimizerConfig,
    TrainingConfig,
)
from transformer_jax.data.codecs.chat import SOURCES, ChatTemplate
from transformer_jax.data.codecs.imported import Imported
from transformer_jax.data.conversations import Conversation
from transformer_jax.experiments import train as runs
from transformer_jax.runs.workdir import WorkDir

pytestmark = pytest.mark.oracle

NAMED = (
    "<pad>", "<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>",
    "<|end_header_id|>", "<|eot_id|>", "<turn>", "</turn>", "[INST]", "[/INST]",
)  # fmt: skip
# Besides ours: forms that public models have, with marks of what is predicted, with a system
# message in the first turn, with texts trimmed, and with text alone between turns.
MARKED = (
    "{{ bos_token }}{%- for m in messages %}\n{{ '<|im_start|>' + m.role + '\n' }}"
    "{%- if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>"
    "{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}\n{{ '<|im_start|>assistant\n' }}{% endif %}"
)
FOLDED = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}"
    "{% set first = messages[0].content + '\n\n' %}{% set rest = messages[1:] %}"
    "{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}{% if m.role == 'user' %}"
    "{{ '[INST] ' + (first if loop.first else '') + m.content.strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + m.content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
TURNS = (
    "{% for m in messages %}{{ '<turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' + "
    "m.content | trim + '</turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<turn>model\n' }}{% endif %}"
)
TEMPLATES = SOURCES | {"marked": MARKED, "folded": FOLDED, "turns": TURNS}
WORDS = ("hello", " ", "\n", "world", "two?", " 3", "é", "<b>", "'s")


def tokenizers():
    """A byte-level BPE tokenizer with named pieces, of `transformers` and ours."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=[*NAMED], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(["hello world two assistant user system model\n"] * 50, trainer)
    theirs = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
        unk_token="<unk>",
    )  # fmt: skip
    special = {"pad": 0, "bos": 1, "eos": 2, "unk": 3}
    return theirs, Imported.of(tokenizer.to_str(), special, tokenizer.get_vocab_size())


def conversations(count=200):
    chance = random.Random(0)

    def text():
        return "".join(chance.choice(WORDS) for _ in range(chance.randint(1, 9))).strip() or "x"

    for _ in range(count):
        talk = [{"role": "system", "content": text()}] * (chance.random() < 0.4)
        for _ in range(chance.randint(1, 4)):
            talk += [{"role": x, "content": text()} for x in ("user", "assistant")]
        yield talk


@pytest.mark.parametrize("name", TEMPLATES)
def test_conversations_are_rendered_and_encoded_alike(name):
    theirs, codec = tokenizers()
    theirs.chat_template = TEMPLATES[name]
    template = ChatTemplate(TEMPLATES[name])
    for talk in conversations():
        whole = Conversation(talk)
        assert template.render(whole, codec) == theirs.apply_chat_template(talk, tokenize=False)
        asked = theirs.apply_chat_template(talk[:-1], tokenize=False, add_generation_prompt=True)
        assert template.render(Conversation(talk[:-1]), codec, begin_answer=True) == asked
        (ids,) = template.encode(codec, [json.dumps(talk)])
        found = theirs.apply_chat_template(
            talk, tokenize=True, return_dict=True, return_assistant_tokens_mask=name == "marked"
        )
        plain = [~i if i < 0 else i for i in ids]
        assert plain == found["input_ids"][: len(plain)]
        if name == "marked":
            assert [i < 0 for i in ids] == [x == 1 for x in found["assistant_masks"]][: len(ids)]
        prompt = template.prompt(codec, talk[:-1])
        assert prompt == theirs.apply_chat_template(
            talk[:-1], tokenize=True, add_generation_prompt=True, return_dict=True
        )["input_ids"]  # fmt: skip


def test_an_imported_chat_model_is_fine_tuned_and_chats_in_transformers(tmp_path):
    """A random Llama with a template, adapted by LoRA to conversations, and exported."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from transformer_jax.api import load
    from transformer_jax.cli.main import dispatch

    theirs, _ = tokenizers()
    theirs.chat_template = SOURCES["llama3"]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(theirs), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256, bos_token_id=1,
        eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path / "theirs")
    theirs.save_pretrained(tmp_path / "theirs")
    rows = [{"messages": talk} for talk in conversations(60)]
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert dispatch(["import", f"{tmp_path}/theirs", f"--workdir={tmp_path}/start"]) == 0
    start = WorkDir(tmp_path / "start").experiment()
    experiment = replace(
        start,
        model=replace(start.model, lora_rank=2),
        objective=ObjectiveConfig(name="chat", chat_template="source", window=128),
        init=InitConfig(source=str(tmp_path / "start")),
        data=DataConfig(
            directory=str(tmp_path), train=("train.jsonl",), validation=("train.jsonl",),
            max_length=128, tokens_per_batch=1024, rows_divisible_by=1, num_buckets=2,
        ),
        optimizer=OptimizerConfig(schedule="constant", learning_rate=1e-2, warmup_steps=1),
        training=TrainingConfig(steps=10, label_smoothing=0.0),
        evaluation=EvaluationConfig(every_steps=10, bleu_sentences=0),
        checkpoint=CheckpointConfig(every_steps=10, best_by="loss"),
    )  # fmt: skip
    assert runs.run_experiment(experiment, WorkDir(tmp_path / "run")) == 0
    assert dispatch(
        ["export", "--format=huggingface", f"--workdir={tmp_path}/run", f"--output={tmp_path}/out"]
    ) == 0  # fmt: skip
    ours = load(tmp_path / "run")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    before = LlamaForCausalLM.from_pretrained(tmp_path / "theirs").eval()
    answers, others = [], []
    for talk in conversations(5):
        asked = talk[:-1]
        ids = tokenizer.apply_chat_template(
            asked, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        for one, texts in ((model, answers), (before, others)):
            out = one.generate(**ids, do_sample=False, max_new_tokens=24)
            said = out[0, ids["input_ids"].shape[1] :]
            texts.append(tokenizer.decode(said, skip_special_tokens=True))
        assert ours.chat(asked, 24) == answers[-1]
    assert answers != others

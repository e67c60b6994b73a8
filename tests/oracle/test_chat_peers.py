"""Chat templates and chat models beside `transformers`: the same texts, pieces and answers."""

import importlib.util
import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from jinja2 import TemplateError

from transformer_jax.base.errors import UserError
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
from transformer_jax.data.conversations import Conversation, conversation_of
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


def tokenizers(names=NAMED, texts_own=()):
    """A byte-level BPE tokenizer with named pieces, of `transformers` and ours; `texts_own` are
    those that texts may have.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=[*names], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(["hello world two assistant user system model\n"] * 50, trainer)
    tokenizer.add_tokens([AddedToken(x, special=False, normalized=False) for x in texts_own])
    theirs = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
        unk_token="<unk>",
    )  # fmt: skip
    special = {"pad": 0, "bos": 1, "eos": 2, "unk": 3}
    return theirs, Imported.of(tokenizer.to_str(), special, tokenizer.get_vocab_size())


# Pieces that models write themselves, around thoughts and calls: texts may have them.
OWN = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather", "description": 'The "weather" & <é>',
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}  # fmt: skip
CALL = {
    "id": "call00001", "type": "function",
    "function": {"name": "weather", "arguments": {"city": "Zürich"}},
}  # fmt: skip


def user(text, **others):
    return {"role": "user", "content": text, **others}


def assistant(text, **others):
    return {"role": "assistant", "content": text, **others}


SYSTEM, RAIN = {"role": "system", "content": " Be \n"}, {"role": "tool", "content": "rain"}
TALKS = {  # by what is particular; thoughts under each name that datasets have for them
    "one": [user("<b>&'\"</b>"), assistant("{{ x }} {% y %}")],
    "system": [SYSTEM, user("Hi"), assistant("Hello."), user("more"), assistant("two\n\nlines")],
    "empty": [user(""), assistant("")],
    "thoughts in the text": [user("Hi"), assistant("<think>\nhm\n</think>\n\nHello.")],
    "reasoning_content": [user("Hi"), assistant("Hello.", reasoning_content="hm")],
    "thinking": [user("Hi"), assistant("Hello.", thinking="hm"), user("a"), assistant("b")],
    "reasoning": [user("Hi"), assistant("Hello."), user("a"), assistant("b", reasoning="hm")],
    "tools": [SYSTEM, user("Weather?"), assistant("It rains.")],
    "call": [user("Weather?"), assistant("", tool_calls=[CALL]),
             RAIN | {"tool_call_id": "call00001", "name": "weather"}, assistant("Wet.")],
}  # fmt: skip


def public_templates():
    """Return the chat templates of public models that come with TRL, by their names."""
    (place,) = importlib.util.find_spec("trl").submodule_search_locations
    return {x.stem: x.read_text() for x in (Path(place) / "chat_templates").glob("*.jinja")}


@pytest.mark.parametrize("label", TALKS)
def test_public_templates_write_prompt_and_mark_alike(label):
    """Those of Llama, Qwen, Gemma, Phi, DeepSeek, Cohere, gpt-oss, GLM and others, and what TRL
    marks in them.
    """
    talk, tools = TALKS[label], [WEATHER] if label in ("tools", "call") else None
    rendered = marked = 0
    for name, source in public_templates().items():
        names = re.findall(r"<\|\w+\|?>|<\w+\|>|<｜[^>]{1,30}｜>|<(?:start|end)_of_turn>", source)
        own = [piece for piece in OWN if piece in source]
        theirs, codec = tokenizers(("<pad>", "<s>", "</s>", "<unk>", *sorted({*names})), own)
        theirs.chat_template, ours = source, ChatTemplate(source)
        whole = conversation_of(json.dumps({"messages": talk, "tools": tools}))
        try:
            text = theirs.apply_chat_template(talk, tools=tools, tokenize=False)
        except (TemplateError, TypeError):  # of a model that has no such messages
            with pytest.raises(UserError):
                ours.render(whole, codec)
            continue
        rendered += 1
        assert ours.render(whole, codec) == text, name
        for end, message in enumerate(talk):
            if message["role"] in ("user", "tool"):
                some = whole._replace(messages=whole.messages[: end + 1])
                asked = theirs.apply_chat_template(
                    talk[: end + 1], tools=tools, add_generation_prompt=True, return_dict=True
                )
                assert ours.prompt(codec, *some) == asked["input_ids"], name
        if re.search(r"{%-?\s*generation", source):
            marked += 1
            (ids,) = ours.encode(codec, [json.dumps({"messages": talk, "tools": tools})])
            found = theirs.apply_chat_template(
                talk, tools=tools, return_dict=True, return_assistant_tokens_mask=True
            )
            assert [~i if i < 0 else i for i in ids] == found["input_ids"][: len(ids)], name
            said = [mask == 1 for mask in found["assistant_masks"]]
            assert [i < 0 for i in ids] == said[: len(ids)], name
            assert not any(said[len(ids) :]), name
    assert min(rendered / 2, marked) > 20


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

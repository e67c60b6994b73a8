"""Laws of conversations: what is predicted, what is read, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, Experiment, ObjectiveConfig, TokenizerConfig
from transformer_jax.config.choices.chat import CHAT_TEMPLATES
from transformer_jax.data import sources
from transformer_jax.data.batches.batch import Ragged, one_per_row
from transformer_jax.data.codecs import characters, subwords, utf8
from transformer_jax.data.codecs.chat import SOURCES, ChatTemplate, Named
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.conversations import Conversation, conversation_of
from transformer_jax.data.objectives import objective_named
from transformer_jax.data.store.token_store import Frame, TokenStore, open_store

CHAT = objective_named("chat")
TEXT = st.text("ab <|im_start|>\n", max_size=8)
NAMES = [name for one in CHAT_TEMPLATES.values() for name in one.symbols]


def codec_of(kind):
    symbols = tuple(NAMES)
    texts = ["system user assistant abc\n <|>_:im.start", *"abcdefghijklmnopqrstuvwxyz0123456789"]
    if kind == "subwords":
        config = TokenizerConfig(vocab_size=60, normalization="identity")
        return subwords.train(config, texts * 20, symbols)
    return {"bytes": utf8, "characters": characters}[kind].train(TokenizerConfig(), texts, symbols)


@pytest.fixture(scope="module", params=["bytes", "characters", "subwords"])
def codec(request):
    return codec_of(request.param)


def conversation(*contents, system=None):
    roles = ("user", "assistant") * len(contents)
    messages = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]
    first = [] if system is None else [{"role": "system", "content": system}]
    return json.dumps({"messages": first + messages})


def plain(ids):
    return [~i if i < 0 else i for i in ids]


def said(codec, ids):
    """The texts of the predicted runs of pieces, each without the piece that ends it."""
    runs, before = [], False
    for piece in ids:
        if piece < 0:
            runs = runs if before else [*runs, []]
            runs[-1].append(~piece)
        before = piece < 0
    return [codec.decode(run[:-1]) for run in runs], [run[-1] for run in runs]


# --- templates ----------------------------------------------------------------------------------


def test_records_and_sources_name_the_same_templates():
    assert [*SOURCES] == [*CHAT_TEMPLATES]


@pytest.mark.parametrize("name", CHAT_TEMPLATES)
def test_exactly_the_answers_and_their_ends_are_predicted(name, codec):
    template = ChatTemplate.named(name)
    (ids,) = template.encode(codec, [conversation("ab", "bc", "c", "a b", system="s")])
    texts, ends = said(codec, ids)
    assert texts == ["bc", "a b"]
    assert {*ends} == {template.end(codec)}


@pytest.mark.parametrize("name", CHAT_TEMPLATES)
@settings(deadline=None, max_examples=40)
@given(contents=st.lists(TEXT, min_size=2, max_size=6))
def test_a_prompt_is_how_its_conversation_begins(name, contents):
    """Also where messages are spelled like pieces of the template: nobody speaks for another."""
    codec, template = codec_of("bytes"), ChatTemplate.named(name)
    (ids,) = template.encode(codec, [conversation(*contents)])
    messages = conversation_of(conversation(*contents)).messages
    answers = len(contents) // 2
    assert len(said(codec, ids)[0]) == answers
    for place in range(1, len(messages), 2):
        prompt = template.prompt(codec, messages[:place])
        assert plain(ids)[: len(prompt)] == prompt
        assert ids[len(prompt)] < 0
    ends = template.end(codec)
    assert plain(ids).count(ends) == len(messages)  # one for each turn, none of a message's own


def test_what_a_template_marks_is_predicted(codec):
    source = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}"
        "{% generation %}{{ m.content }}{% endgeneration %}{{ '<|im_end|>' }}{% else %}"
        "{{ m.content + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
    )
    (ids,) = ChatTemplate(source).encode(codec, [conversation("a", "b", "ab", "bb")])
    assert said(codec, ids)[0] == ["b", "bb"]


def test_marks_that_touch_are_one_and_are_predicted_as_they_are():
    """As in templates that mark what a model says, and what ends it, apart."""
    source = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% generation %}"
        "{% endgeneration %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
        "{% endgeneration %}{% generation %}{{ '<|im_end|>\n' }}{% endgeneration %}{% else %}"
        "{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    )
    codec, template = codec_of("bytes"), ChatTemplate(source)
    (ids,) = template.encode(codec, [conversation("a", "b", "ab", "bb")])
    texts, ends = said(codec, ids)
    (newline,) = codec.encode(["\n"], eos=False)
    assert [text.strip() for text in texts] == ["b", "bb"]
    assert ends == newline[-1:] * 2
    assert template.end(codec) == Named.of(codec).ids["<|im_end|>"]


THINKS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if not loop.last %}"
    "{{ m.content.split(':')[-1] }}{% else %}{{ m.content }}{% endif %}{{ '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if think is defined %}{{ think }}{% endif %}{% endif %}"
)


def test_a_prompt_follows_answers_that_the_template_changes():
    """As those of models that think: what they thought before is left out."""
    codec, template = codec_of("bytes"), ChatTemplate(THINKS)
    talk = conversation("a", "c:b", "ab")
    messages = conversation_of(talk).messages
    shown = conversation_of(conversation("a", "b", "ab")).messages
    assert template.prompt(codec, messages) == template.prompt(codec, shown)
    with pytest.raises(UserError, match=r"messages\[1\]: the chat template does not write this"):
        template.encode(codec, [conversation("a", "c:b", "ab", "c")])
    messages[0]["content"] = "<|im_end|>"  # which could not be told from the template's own
    with pytest.raises(UserError, match="remove the piece from the text"):
        template.prompt(codec, messages)


def test_options_of_a_template_reach_it():
    codec, template = codec_of("bytes"), ChatTemplate(THINKS)
    messages = conversation_of(conversation("a")).messages
    plain = template.prompt(codec, messages)
    (more,) = codec.encode(["cc"], eos=False)
    assert template.prompt(codec, messages, options={"think": "cc"}) == plain + more
    row = {"messages": messages, "chat_template_kwargs": {"think": "cc"}}
    assert template.render(conversation_of(json.dumps(row)), codec, True).endswith("cc")


def test_broken_templates_are_refused(codec, tmp_path):
    with pytest.raises(UserError, match="not a chat template of Jinja"):
        ChatTemplate("{% for m in messages %}")
    source = "{% for m in messages %}{{ m.role + ': ' + m.content }}{% endfor %}"
    source += "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    with pytest.raises(UserError, match="which is no piece of the tokenizer; add the piece"):
        ChatTemplate(source).end(codec)
    with pytest.raises(UserError, match="refuses the conversation: roles must alternate"):
        ChatTemplate("{{ raise_exception('roles must alternate') }}").encode(
            codec, [conversation("a", "b")]
        )
    with pytest.raises(UserError, match=r"messages\[1\]: the chat template does not write"):
        ChatTemplate("{{ messages | length }}{{ messages[-1].content }}").encode(
            codec, [conversation("a", "b")]
        )
    with pytest.raises(UserError, match=r"chat_template='none\.jinja': .*No such file"):
        ChatTemplate.named("none.jinja")


def test_a_template_runs_in_a_sandbox(codec):
    with pytest.raises(UserError, match="fails"):
        ChatTemplate("{{ messages.__class__.__mro__ }}{{ ''.__class__.mro() }}").render(
            Conversation([]), codec
        )


# --- conversations ------------------------------------------------------------------------------

WRONG = {
    "is not JSON": "hello",
    "no conversation": "3",
    "has 'text'": json.dumps({"text": "a"}),
    "messages: is": json.dumps({"messages": []}),
    r"messages\[0\]: is": json.dumps({"messages": ["a"]}),
    r"messages\[0\]\.role: is 'me'": json.dumps({"messages": [{"role": "me", "content": "a"}]}),
    r"messages\[0\]\.content": json.dumps({"messages": [{"role": "user", "content": 3}]}),
    "which are no characters": conversation("a\ufdd0b\ufdd1", "c"),
    "no message has the role 'assistant'": conversation("a"),
    "not an object, as": json.dumps({"prompt": "a", "completion": "b", "chat_template_kwargs": 3}),
    "has 'messages', which is no option": json.dumps(
        {"prompt": "a", "completion": "b", "chat_template_kwargs": {"messages": []}}
    ),
    r"conversations\[0\]\.role: is 'me'": json.dumps(
        {"conversations": [{"from": "me", "value": "a"}]}
    ),
    "output: is 3, not text": json.dumps({"instruction": "a", "output": 3}),
    "tools: is": json.dumps({"prompt": "a", "completion": "b", "tools": 3}),
}


def data_config(tmp_path, **fields):
    return DataConfig(directory=str(tmp_path), train=("train.jsonl",), **fields)


@pytest.mark.parametrize("message", WRONG)
def test_malformed_conversations_are_refused_by_their_line(message, tmp_path):
    (tmp_path / "train.jsonl").write_text(f"{conversation('a', 'b')}\n\n{WRONG[message]}\n")
    if WRONG[message] in ("hello", "3"):
        message = "not JSON|not an object"  # as in all JSON lines
    with pytest.raises(UserError, match=f"train.jsonl:3: .*({message})"):
        sources.load(data_config(tmp_path), "train", ObjectiveConfig(name="chat"))


def test_forms_and_files_of_conversations_are_read_alike(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    messages = [{"role": "user", "content": "a\nb"}, {"role": "assistant", "content": "c"}]
    parts = [{"role": "user", "content": [{"type": "text", "text": "a\n"},
                                          {"type": "text", "text": "b"}]}, messages[1]]  # fmt: skip
    shared = [{"from": "human", "value": "a\nb"}, {"from": "gpt", "value": "c"}]
    forms = [{"messages": messages}, {"messages": parts}, {"prompt": "a\nb", "completion": "c"},
             {"prompt": messages[:1], "completion": messages[1:]}, {"conversations": shared},
             {"conversations": messages, "system": ""},
             {"instruction": "a", "input": "b", "output": "c"},
             {"instruction": "a\nb", "input": None, "output": "c"}]  # fmt: skip
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in forms))
    (tmp_path / "train.csv").write_text('prompt,completion\n"a\nb",c\n')
    (tmp_path / "alpaca.csv").write_text("instruction,input,output\na,b,c\n")
    (tmp_path / "other.tsv").write_text("q\tr\na\tc\n")
    pq.write_table(pa.Table.from_pylist([{"messages": messages, "n": 1}]), tmp_path / "x.parquet")
    pq.write_table(pa.Table.from_pylist([{"id": "1", "conversations": shared}]),
                   tmp_path / "shared.parquet")  # fmt: skip
    (tmp_path / "saved.jsonl").write_text(json.dumps({"talk": messages}) + "\n")
    objective = ObjectiveConfig(name="chat")

    def read(part, **fields):
        config = replace(data_config(tmp_path, **fields), train=(part,))
        return [conversation_of(x).messages for x in sources.load(config, "train", objective).tgt]

    assert read("train.jsonl") == [messages] * len(forms)
    for name in ("train.csv", "alpaca.csv", "x.parquet", "shared.parquet"):
        assert read(name) == [messages], name
    assert read("saved.jsonl", columns=("target=talk",)) == [messages]
    (found,) = read("other.tsv", columns=("source=q", "target=r"))
    assert [m["content"] for m in found] == ["a", "c"]
    (tmp_path / "train.txt").write_text("a\n")
    with pytest.raises(UserError, match="has no columns, and conversations are rows"):
        read("train.txt")


def test_a_system_comes_first_and_tools_and_options_are_kept():
    first = {"role": "system", "content": "s"}
    talk = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
    for row in ({"conversations": talk}, {"instruction": "a", "output": "b"}):
        row |= {"system": "s", "tools": [{"name": "f"}], "chat_template_kwargs": {"x": 1}}
        messages, tools, options = conversation_of(json.dumps(row))
        assert [first["content"], "a", "b"] == [message["content"] for message in messages]
        assert messages[0] == first
        assert (tools, options) == ([{"name": "f"}], {"x": 1})


# --- the objective ------------------------------------------------------------------------------

CODEC = codec_of("bytes")
TEMPLATE = ChatTemplate.named("zephyr")


def items_of(texts, window=256):
    encoded = Ragged.from_lists(TEMPLATE.encode(CODEC, texts))
    special = TokenizerPair(CODEC, CODEC, TEMPLATE).special(True)
    store = TokenStore(encoded.emptied(), encoded, special)
    return CHAT.items(store, ObjectiveConfig(name="chat", window=window))


def batch_of(items, length):
    count = len(items)
    return CHAT.examples(items, one_per_row(np.arange(count)), count, 0, length)


@settings(deadline=None, max_examples=50)
@given(
    contents=st.lists(st.text("abc", max_size=9), min_size=2, max_size=8),
    window=st.integers(2, 120),
)
def test_a_conversation_is_cut_behind_its_last_answer_that_fits(contents, window):
    (ids,) = TEMPLATE.encode(CODEC, [conversation(*contents)])
    ends = [
        i + 1 for i, piece in enumerate(ids) if piece < 0 and (i + 1 == len(ids) or ids[i + 1] >= 0)
    ]
    fitting = [end for end in ends if end <= window + 1]
    items = items_of([conversation(*contents)], window)
    dropped = CHAT.select(items, DataConfig()).dropped
    assert [*dropped.values()] == [not fitting, (len(ends) - len(fitting)) * bool(fitting)]
    if not fitting:
        assert len(items) == 0
        return
    batch = batch_of(items, window)
    target, side = batch.targets["tokens"], batch.tgt
    kept = ids[: fitting[-1]]
    size = len(kept) - 1
    assert side.inputs[0, :size].tolist() == plain(kept)[:-1]
    assert (side.inputs[0, size:] == 0).all()
    weights = [float(piece < 0) for piece in kept[1:]]
    assert target.weight[0, :size].tolist() == weights
    assert target.weight.sum() == sum(weights)
    labels = [~piece if piece < 0 else 0 for piece in kept[1:]]
    assert target.labels[0, :size].tolist() == labels


def test_stores_of_conversations_are_read_back(tmp_path):
    """Through worker processes too."""
    texts = [conversation("a" * (n % 7), "b" * (n % 5)) for n in range(40)]
    corpus = sources.Corpus((), texts, "x")
    pair = TokenizerPair(CODEC, CODEC, TEMPLATE)
    frame = CHAT.frame(ObjectiveConfig(name="chat"))
    assert frame == Frame(eos=False, cut="turns")
    one = open_store(corpus, pair, tmp_path / "one", frame=frame)
    two = open_store(corpus, pair, tmp_path / "two", frame=frame, processes=2)
    expected = TEMPLATE.encode(CODEC, texts)
    for store in (one, two):
        assert [store.tgt.sequence(n).tolist() for n in range(40)] == expected
        assert store.special.end == TEMPLATE.end(CODEC)
    other = TokenizerPair(CODEC, CODEC, ChatTemplate.named("chatml"))
    assert other.digest != pair.digest


def test_pairs_keep_their_template(tmp_path):
    pair = TokenizerPair(CODEC, CODEC, TEMPLATE)
    pair.save(tmp_path)
    assert TokenizerPair.load(tmp_path, True, ("bytes", "bytes")).digest == pair.digest


def test_named_pieces_are_those_of_the_codec(codec):
    assert {*NAMES, "</s>"} <= {*Named.of(codec).ids}
    assert "a" not in Named.of(codec).ids


def test_the_template_adds_its_pieces_to_a_tokenizer():
    for name, record in CHAT_TEMPLATES.items():
        assert ObjectiveConfig(name="chat", chat_template=name).symbols == record.symbols
    assert ObjectiveConfig(name="language_model").symbols == ()


def test_number_chats_split_by_questions():
    parts = {}
    config = DataConfig(source="number_chats", num_examples=(400, 60, 60), max_number=100)
    for split in ("train", "validation", "test"):
        texts = sources.load(config, split, ObjectiveConfig(name="chat")).tgt
        talks = [conversation_of(text).messages for text in texts]
        assert len(texts) == config.num_examples[("train", "validation", "test").index(split)]
        parts[split] = {talk[-2]["content"] for talk in talks}
    assert not parts["train"] & parts["test"]
    assert not parts["validation"] & parts["test"]
    with pytest.raises(ValueError, match="number_chats': has rows for 'chat' or 'reinforce', not"):
        Experiment(data=config)

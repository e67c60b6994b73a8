"""What config.json means where it lacks keys, or has them by other names: as for the config classes
of `transformers`, which hold the defaults and aliases of every family.
"""

import copy
from dataclasses import replace

import pytest
from export.test_huggingface import of
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from transformer_jax.base.errors import UserError
from transformer_jax.export.huggingface.families import FAMILIES
from transformer_jax.export.huggingface.family import Fixed, Word, from_words, to_words

pytestmark = pytest.mark.oracle


def meaning(family, words):
    """Return the model, with sizes that follow from others spelled out; None if it is refused."""
    try:
        found = from_words(family, words)
    except UserError:
        return None
    return replace(found, head_dim=found.key_size, num_kv_heads=found.kv_heads)


def by_their_class(family, words):
    """Return what config.json says once their class has read it and written it again.

    Raises:
      Exception: if their class refuses it.
    """
    given = copy.deepcopy({k: v for k, v in words.items() if k != "lm_head"})  # it adds keys
    return CONFIG_MAPPING[family.model_type].from_dict(given).to_dict() | {
        "lm_head": words.get("lm_head", False)
    }


def by_their_class_or_not(family, words):
    """Return the model that config.json means to their class; None if that or ours refuses it."""
    try:
        return meaning(family, by_their_class(family, words))
    except Exception:  # of several kinds
        return None


def small(family) -> dict:
    """Return a config.json whose width all defaults of num_heads divide."""
    return {"lm_head": False, **to_words(family, replace(of(family), d_model=192, d_ff=768))}


def groups(family) -> list[list[str]]:
    """Return the keys of each field, which are meant to be equal."""
    found: dict[str, list[str]] = {}
    for name, word in family.words:
        if isinstance(word, Word | Fixed) and name != "lm_head":
            field = word.field if isinstance(word, Word) else name
            found.setdefault(field, []).append(name.partition(".")[0])
        elif name != "lm_head":
            found[name] = [name]
    return [*found.values()]


@pytest.mark.parametrize("name", FAMILIES)
def test_missing_and_null_keys_mean_what_they_mean_to_their_class(name):
    """One field's keys at a time, and all together."""
    family = FAMILIES[name]
    whole = small(family)
    assert meaning(family, whole) == meaning(family, by_their_class(family, whole)) is not None
    cases = [([], {"lm_head": False})]
    for keys in groups(family):
        cases.append((keys, {k: v for k, v in whole.items() if k not in keys}))
        cases.append((keys, whole | dict.fromkeys(keys)))
    for keys, words in cases:
        try:
            theirs = by_their_class(family, words)
        except Exception:  # of several kinds: the class takes no null there, or sizes disagree
            assert None in words.values() or name in ("mamba2", "qwen3_next"), keys
            continue
        expected = meaning(family, theirs)
        assert meaning(family, words) == expected, (keys, words)


LINEAR = {"type": "linear", "factor": 3.0}
YARN = {"rope_type": "yarn", "factor": 3.0, "rope_theta": 60.0}
LENGTH = "original_max_position_embeddings"


@pytest.mark.parametrize("name", [n for n, f in FAMILIES.items() if "rope_param" in str(f.words)])
def test_older_keys_of_rotary_positions_mean_what_they_mean_to_their_class(name):
    """Beside newer ones and alone; what their class makes of it may be what we refuse."""
    family = FAMILIES[name]
    whole = {k: v for k, v in small(family).items() if k != "rope_theta"}
    bare = {k: v for k, v in whole.items() if k != "rope_parameters"}
    seen = set()
    for words in (whole, bare):
        for more in (
            {"rope_scaling": LINEAR}, {"rope_scaling": LINEAR | {"rope_type": "linear"}},
            {"rope_scaling": LINEAR | {"rope_theta": 60.0}}, {"rope_scaling": YARN},
            {"rope_scaling": YARN | {LENGTH: 8}},
            {"rope_scaling": YARN | {LENGTH: 8}, LENGTH: 7}, {"rope_scaling": {"factor": 3.0}},
            {"rope_scaling": {}}, {"rope_scaling": None}, {"rope_scaling": LINEAR, LENGTH: 7},
        ):  # fmt: skip
            expected = by_their_class_or_not(family, words | more)
            assert meaning(family, words | more) == expected, more
            seen.add(expected and expected.rope_scaling)
    assert "none" in seen
    assert ("linear" in seen) == ("linear" in family.supported.get("rope_scaling", ()))
    for rope in (LINEAR, YARN, {}):
        rope = {"full_attention": rope} if name == "gemma3" else rope
        words = bare | {"rope_parameters": rope}
        assert meaning(family, words) == by_their_class_or_not(family, words), rope


@pytest.mark.parametrize("name", FAMILIES)
def test_other_names_of_keys_are_those_of_their_class(name):
    """Instead of a key, and beside one that differs."""
    family = FAMILIES[name]
    whole = small(family)
    for alias, key in CONFIG_MAPPING[family.model_type].attribute_map.items():
        without = {k: v for k, v in whole.items() if k != key}
        instead, beside = without | {alias: whole[key]}, whole | {alias: 2 * whole[key]}
        assert meaning(family, instead) == meaning(family, whole)
        assert meaning(family, beside) == meaning(family, by_their_class(family, beside))

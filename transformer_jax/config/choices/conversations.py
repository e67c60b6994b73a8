"""Objectives of conversations, from supervised fine-tuning to rewards, and what does not go with
them.
"""

from typing import Any

from transformer_jax.config.bounds import check, either
from transformer_jax.config.choices.chat import CHAT_TEMPLATES, OF_SOURCE
from transformer_jax.config.choices.objective import Objective

_RANDOM = "dropout_rate", "attention_dropout_rate", "activation_dropout_rate", "layer_drop_rate"
PREFERENCE_LOSSES = "dpo", "ipo", "kto"  # in the order of the manual


def _check_chat(run: Any, field: str) -> None:
    """Reject the template of a source if there is none."""
    template, source = run.objective.chat_template, run.init.source
    check(
        template != OF_SOURCE or source is not None,
        f"objective.chat_template={template!r}: is the template that init.source has, and "
        f"init.source is None; choose {either(CHAT_TEMPLATES)}, or a file",
    )


def _check_pairs(run: Any, field: str) -> None:
    """Reject rows with more than a pair of conversations."""
    _check_chat(run, field)
    name = f"objective.name={run.objective.name!r}"
    check(
        run.data.batching == "bucket",
        f"data.batching={run.data.batching!r}: a row of {name} holds one pair of answers; choose "
        "'bucket'",
    )
    check(
        run.data.max_length >= 2 * run.objective.window,
        f"data.max_length={run.data.max_length}: a row of {name} holds two conversations of up to "
        f"objective.window={run.objective.window} pieces; raise it to {2 * run.objective.window}",
    )


def _check_reward(run: Any, field: str) -> None:
    """Reject what sees only the first piece."""
    _check_pairs(run, field)
    check(
        run.model.pooling != "first",
        "model.pooling='first': a reward is predicted from a position that sees the answer, and "
        "the first one sees only itself; choose 'last' or 'mean'",
    )
    check(
        not run.model.logits_bias,
        f"model.logits_bias=True: is of the logits of pieces, and objective.name="
        f"{run.objective.name!r} predicts none; set it to False",
    )


def _check_reinforce(run: Any, field: str) -> None:
    """Reject rows with more than an answer, and groups that do not fill a batch."""
    _check_chat(run, field)
    objective, data, name = run.objective, run.data, f"objective.name={run.objective.name!r}"
    for field in _RANDOM:
        rate = getattr(run.model, field)
        check(
            rate == 0,
            f"model.{field}={rate}: with it, the probabilities of answers are not those that they "
            f"were written with, which {name} compares; set it to 0",
        )
    check(
        data.batching == "bucket",
        f"data.batching={data.batching!r}: a row of {name} holds one answer; choose 'bucket'",
    )
    check(
        objective.group_size % data.rows_divisible_by == 0,
        f"data.rows_divisible_by={data.rows_divisible_by}: batches of {name} have "
        f"objective.group_size={objective.group_size} rows for each prompt; choose a divisor",
    )
    check(
        data.tokens_per_batch >= objective.group_size * objective.window,
        f"data.tokens_per_batch={data.tokens_per_batch}: is less than the objective.group_size="
        f"{objective.group_size} answers to one prompt, rows of objective.window="
        f"{objective.window}; raise it to {objective.group_size * objective.window}",
    )
    check(
        objective.answer_length < objective.window,
        f"objective.answer_length={objective.answer_length}: leaves no room for a prompt in "
        f"objective.window={objective.window}; lower it",
    )
    check(
        data.max_length >= objective.window,
        f"data.max_length={data.max_length}: rows of {name} have objective.window="
        f"{objective.window} positions; raise it to that",
    )
    check(
        run.training.steps_per_execution == 1,
        f"training.steps_per_execution={run.training.steps_per_execution}: what {name} learns "
        "from is written between steps; set it to 1",
    )
    check(
        objective.reward_model is None or objective.reward == "exact_match",
        f"objective.reward={objective.reward!r}: objective.reward_model="
        f"{objective.reward_model!r} gives the reward; leave one of them out",
    )


CONVERSATIONS = {
    "chat": Objective(
        architectures=("decoder",),
        text=True,
        lines="conversations",
        reads=("window", "chat_template"),
        check=_check_chat,
        least=(2, "a piece that is read and one that is predicted"),
        mixes=False,
        foresees=True,
        steady=True,
        prompt="messages",
        title="A chat model",
        brief="chat model",
        evaluated="chat",
        task="text-generation",
        counted="in answers, with the piece that ends each",
        predicts="predicts answers alone",
    ),
    "prefer": Objective(
        architectures=("decoder",),
        text=True,
        lines="preferences",
        reads=("window", "chat_template", "preference_loss", "preference_beta"),
        check=_check_pairs,
        least=(2, "a piece that is read and one that is predicted"),
        mixes=False,
        accuracy=True,
        prompt="messages",
        title="A chat model",
        brief="chat model",
        evaluated="preferences",
        task="text-generation",
        predicts="compares answers",
    ),
    "reward": Objective(
        architectures=("decoder",),
        text=True,
        lines="pairs",
        reads=("window", "chat_template"),
        check=_check_reward,
        least=(2, "a piece that is read and an answer"),
        mixes=False,
        chooses=False,
        accuracy=True,
        title="A reward model",
        brief="reward model",
        method="reward",
        evaluated="preferences",
        task="text-classification",
        predicts="says how good an answer is",
    ),
    "reinforce": Objective(
        architectures=("decoder",),
        text=True,
        lines="conversations",
        reads=(
            "window", "chat_template", "reward", "reward_model", "group_size", "answer_length",
            "policy_loss", "clip_below", "clip_above", "kl_weight", "rollout_updates",
        ),
        check=_check_reinforce,
        least=(3, "a prompt and an answer"),
        mixes=False,
        samples=True,
        prompt="messages",
        title="A chat model",
        brief="chat model",
        evaluated="chat",
        task="text-generation",
        counted="in answers, with the piece that ends each",
        predicts="predicts answers alone",
    ),
}  # fmt: skip

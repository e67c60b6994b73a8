"""Validation across sections."""

import itertools
from typing import Any

from transformer_jax.config.bounds import ELEMENTS, check, either
from transformer_jax.config.choices.architectures import ARCHITECTURES
from transformer_jax.config.choices.codecs import CODECS, SIZED
from transformer_jax.config.choices.mixers import RANKED, ROWS, without_ranks
from transformer_jax.config.choices.objectives import OBJECTIVES, check_word_labels
from transformer_jax.config.choices.optimizers import OPTIMIZERS, SCHEDULES
from transformer_jax.config.choices.record import with_
from transformer_jax.config.choices.searches import OF_VALUES
from transformer_jax.config.choices.sources import SOURCES
from transformer_jax.config.metrics import average_count
from transformer_jax.config.refusals.texts import (
    check_codecs,
    check_codecs_read,
    check_long_sources,
    check_long_sources_read,
    check_tasks,
    check_windows,
)

_WRITTEN = "bleu", "wer", "reward"  # scores of what is written greedily


def check_experiment(run: Any) -> None:
    """Reject sections that do not go together."""
    _check_model(run)
    check_codecs(run)
    _check_objective(run)
    check_long_sources(run)
    if run.objective.windowed:
        check_windows(run)
    if run.objective.parts:
        check_tasks(run)
    _check_search(run)
    _check_parametrization(run)
    _check_training(run)
    _check_teacher(run)
    _check_checkpoints(run)
    _check_evaluation(run)


def check_experiment_reads(run: Any) -> None:
    """Reject what other sections make ineffective."""
    check_codecs_read(run)
    check_long_sources_read(run)
    for name in ("distillation_weight", "distillation_temperature"):
        value, usual = getattr(run.training, name), type(run.training).__dataclass_fields__[name]
        check(
            run.data.teacher is not None or value == usual.default,
            f"training.{name}={value!r}: has no effect without data.teacher; leave it at "
            f"{usual.default!r}, or name a teacher",
        )
    weight = run.training.multi_token_weight
    usual = type(run.training).__dataclass_fields__["multi_token_weight"].default
    check(
        run.model.multi_token != "none" or weight == usual,
        f"training.multi_token_weight={weight}: has no effect with model.multi_token='none'; leave "
        f"it at {usual}, or choose 'sequential' or 'parallel'",
    )
    check(
        run.model.lora_rank is not None or not run.optimizer.unfrozen,
        f"optimizer.unfrozen={run.optimizer.unfrozen}: has no effect without model.lora_rank, "
        "which freezes everything else; leave it at (), or set the rank",
    )


def _check_evaluation(run: Any) -> None:
    """Reject scores that the objective does not have."""
    rate, decay = run.evaluation.dynamic_rate, run.evaluation.dynamic_decay
    stride, window = run.evaluation.stride, run.objective.window
    for name, value in {"dynamic_rate": rate, "stride": stride}.items():
        check(
            value is None or run.objective.record.likelihood,
            f"evaluation.{name}={value}: is for models that predict each piece of a text from "
            f"those before it, and objective.name={run.objective.name!r} does not; leave it at "
            "None",
        )
    check(
        stride is None or stride <= window,
        f"evaluation.stride={stride}: is above objective.window={window}, so pieces would be left "
        "out; lower it",
    )
    check(
        rate is not None or decay == 0,
        f"evaluation.dynamic_decay={decay}: has no effect without evaluation.dynamic_rate; leave "
        "it at 0.0, or set the rate",
    )


def _check_model(run: Any) -> None:
    """Reject a model that does not fit its vocabularies, texts or initial checkpoint."""
    model = run.model
    rows = max(run.tokenizer.vocab_size, model.max_positions)
    check(
        rows * model.d_model <= ELEMENTS,
        f"model.d_model={model.d_model}: a table of this width with tokenizer.vocab_size="
        f"{run.tokenizer.vocab_size} or model.max_positions={model.max_positions} rows has "
        f"more than {ELEMENTS} elements; lower one of them",
    )
    check(
        run.tokenizer.joint
        or model.tied_embeddings != "all"
        or "decoder" not in model.stacks
        or model.architecture == "prefix_decoder"
        or run.objective.labels
        or run.objective.record.acts,
        "tokenizer.joint=False: two vocabularies cannot share model.tied_embeddings='all'; "
        "choose 'decoder' or 'none'",
    )
    check(
        model.lora_rank is None or run.init.source is not None,
        f"model.lora_rank={model.lora_rank}: adapts the maps of a trained model, and none is "
        "given; set init.source to its work directory",
    )
    check(
        run.data.batching != "pack" or not ARCHITECTURES[model.architecture].rows,
        f"data.batching='pack': a row of architecture={model.architecture!r} must hold one "
        "text; choose 'bucket'",
    )
    check(
        model.architecture != "perceiver" or model.positions != "none" or not run.objective.masked,
        "model.positions='none': in architecture='perceiver' the queries of pieces are their "
        "positions, and would all be identical; choose another",
    )
    for pattern in (model.encoder_pattern, model.decoder_pattern):
        check(
            run.data.batching != "pack" or {*ROWS}.isdisjoint(pattern),
            f"data.batching='pack': layers of {pattern} count the positions of a row or "
            "convolve it, so it must hold one text; choose 'bucket'",
        )
    longest = ("data.max_length", run.data.max_length)
    if run.objective.windowed:
        longest = ("objective.window", run.objective.window)
    if model.stem == "series":
        longest = ("the number of patches", model.patches(run.objective.window))
    check(
        model.position_limit is None or model.position_limit >= longest[1],
        f"model.max_positions={model.max_positions} is below {longest[0]}={longest[1]}"
        ": raise the former or lower the latter",
    )


def _check_parametrization(run: Any) -> None:
    """Reject optimizers and schedules whose steps do not change with the width as assumed."""
    has = f"model.parametrization={run.model.parametrization!r}"
    if run.model.parametrization == "standard":
        return
    known = with_(OPTIMIZERS, entrywise=True)
    check(
        run.optimizer.record.entrywise,
        f"optimizer.algorithm={run.optimizer.algorithm!r}: {has} assumes steps of one size for "
        f"each number, as those of {either(known)}; choose one of these, or 'standard'",
    )
    schedule = SCHEDULES.get(run.optimizer.schedule)
    check(
        schedule is None or not schedule.factor,
        f"optimizer.schedule={run.optimizer.schedule!r}: changes with d_model itself, and {has} "
        f"does, too; choose {either(with_(SCHEDULES, factor=False))}",
    )


def _check_search(run: Any) -> None:
    """Reject searches of pieces for models of values, and the other way round."""
    diffuses, search = run.objective.record.diffuses, f"decoding.search={run.decoding.search!r}"
    check(
        run.decoding.record.values == diffuses,
        f"{search}: objective.name={run.objective.name!r} "
        + (f"draws pictures; choose {either(OF_VALUES)}" if diffuses else "has pieces, and this "
           "draws values; choose 'beam' or 'sample'"),
    )  # fmt: skip


def _check_training(run: Any) -> None:
    """Reject training settings that contradict each other."""
    model, data, training = run.model, run.data, run.training
    check(
        data.rows_divisible_by % training.accumulation_steps == 0,
        f"training.accumulation_steps={training.accumulation_steps} does not divide "
        f"data.rows_divisible_by={data.rows_divisible_by}: choose a divisor",
    )
    check(
        training.accumulation_steps > 1 or not training.noise_scale,
        "training.noise_scale=True: compares the slices of a batch, and "
        f"training.accumulation_steps={training.accumulation_steps}; raise it, or set it to False",
    )
    together, save = training.steps_per_execution, run.checkpoint.every_steps
    ends = {"training.steps": training.steps, "checkpoint.every_steps": save}
    for field, steps in (ends | {"training.pause": training.pause or 0}).items():
        check(
            steps % together == 0,
            f"{field}={steps} is not a multiple of training.steps_per_execution={together}; "
            "change one of them",
        )
    check(
        not data.subword_dropout or run.tokenizer.algorithm == "bpe",
        f"data.subword_dropout={data.subword_dropout}: there are no merges to drop with "
        f"tokenizer.algorithm={run.tokenizer.algorithm!r}; choose 'bpe', or set it to 0",
    )
    check(
        training.r_drop is None
        or max(model.dropout_rate, model.attention_dropout_rate, model.activation_dropout_rate) > 0,
        f"training.r_drop={training.r_drop}: two passes without dropout are identical; "
        "raise model.dropout_rate or set it to None",
    )
    bounds = (0, *training.restarts, training.steps)
    check(
        all(one < other for one, other in itertools.pairwise(bounds)),
        f"training.restarts={training.restarts}: must rise, from at least 1 to below "
        f"training.steps={training.steps}",
    )
    check(
        training.ema_decay is None or not run.optimizer.record.averages,
        f"training.ema_decay={training.ema_decay}: optimizer.algorithm="
        f"{run.optimizer.algorithm!r} averages its own steps; set it to None",
    )
    check(
        not run.profile.steps or run.profile.steps[0] <= training.steps,
        f"profile.steps={run.profile.steps}: starts after training.steps={training.steps}",
    )


def _check_teacher(run: Any) -> None:
    """Reject a teacher whose predictions, made once, are not those of every epoch."""
    data, objective = run.data, run.objective
    if data.teacher is None:
        return
    teacher = f"data.teacher={data.teacher!r}: has predictions of pieces that every epoch asks for"
    check(
        objective.record.steady,
        f"{teacher}, and objective.name={objective.name!r} draws them or has others; choose "
        f"{either(with_(OBJECTIVES, steady=True))}, or set it to None",
    )
    for field, value, none in (
        ("objective.parts", objective.parts, ()),
        ("objective.fim_rate", objective.fim_rate, 0.0),
        ("data.subword_dropout", data.subword_dropout, 0.0),
    ):
        check(value == none, f"{teacher}, and {field}={value!r} draws others; set it to {none!r}")


def _check_checkpoints(run: Any) -> None:
    """Reject checkpoint settings that cannot be satisfied."""
    save, every = run.checkpoint.every_steps, run.evaluation.every_steps
    check(
        every % save == 0,
        f"evaluation.every_steps={every} is not a multiple of checkpoint.every_steps={save}: "
        "the best checkpoint is chosen when it is saved",
    )
    count = average_count(run.evaluation.checkpoint)
    check(
        count is None or run.checkpoint.keep_last >= count,
        f"evaluation.checkpoint={run.evaluation.checkpoint!r} needs "
        f"checkpoint.keep_last={run.checkpoint.keep_last} to be at least {count}",
    )
    check(
        run.checkpoint.best_by not in _WRITTEN or run.evaluation.bleu_sentences > 0,
        f"checkpoint.best_by={run.checkpoint.best_by!r} needs evaluation.bleu_sentences="
        f"{run.evaluation.bleu_sentences} above 0; raise it or choose 'loss'",
    )
    check(
        run.checkpoint.best_by not in {*_WRITTEN} - {run.measured},
        f"checkpoint.best_by={run.checkpoint.best_by!r}: with src.codec={run.src.codec!r} "
        f"and objective.name={run.objective.name!r} validation measures {run.measured!r}; "
        f"choose that, or 'loss'",
    )
    check(
        run.checkpoint.best_by != "accuracy" or run.objective.record.accuracy,
        "checkpoint.best_by='accuracy': is for objective.name="
        f"{either(with_(OBJECTIVES, accuracy=True))}, not {run.objective.name!r}; choose 'loss'",
    )


def _check_objective(run: Any) -> None:
    """Reject models and codecs that do not go with the objective."""
    objective, codec = run.objective, run.tgt.codec
    name = f"objective.name={objective.name!r}"
    record = objective.record
    two_vocabularies = not record.one_sided and not record.prefix
    wanted = record.architectures
    check(
        run.model.architecture in wanted,
        f"model.architecture={run.model.architecture!r}: {name} is an objective for "
        f"architecture={either(wanted)}; choose that, or another objective",
    )
    check(
        run.model.architecture != "decoder" or not objective.labels or run.model.pooling != "first",
        "model.pooling='first': a class is predicted from a position that sees the text, and with "
        "architecture='decoder' the first one sees only itself; choose 'last' or 'mean'",
    )
    check(
        not objective.labels or not run.model.logits_bias,
        f"model.logits_bias=True: is of the logits of pieces, and {name} predicts none; set it to "
        "False",
    )
    check(
        not record.prefix or not without_ranks(run.model.decoder_pattern),
        f"model.decoder_pattern={run.model.decoder_pattern}: {name} has a prefix with "
        f"bidirectional attention, which only {either(RANKED)} have; choose these, or another "
        "objective",
    )
    check(
        two_vocabularies or run.tokenizer.joint,
        f"tokenizer.joint=False: {name} has one vocabulary; set it to True",
    )
    check(
        record.segments == 1 or run.model.token_types != 1,
        f"model.token_types=1: {name} has two token types; set it to 2, or to 0 for none",
    )
    check(
        not objective.whole_words or codec in SIZED,
        f"objective.whole_words=True: tgt.codec={codec!r} does not mark word boundaries; set "
        f"it to False or choose {either(SIZED)}",
    )
    if codec in CODECS and CODECS[codec].trees:
        check_word_labels(run)
    check(
        record.foresees or run.model.multi_token == "none",
        f"model.multi_token={run.model.multi_token!r}: is for "
        f"{either(with_(OBJECTIVES, foresees=True))}, not {name}; set it to 'none'",
    )
    check(
        record.chooses or run.training.r_drop is None,
        f"training.r_drop={run.training.r_drop}: is for predictions of pieces or classes, which "
        f"{name} does not make; set it to None",
    )
    _check_objective_data(run, name)
    _check_symbols(run, name)
    if record.check is not None:
        record.check(run, "objective.name")


def _check_objective_data(run: Any, name: str) -> None:
    """Reject ways of reading data that do not go with the objective of this name."""
    data, objective = run.data, run.objective
    check(
        not data.mixes or all(OBJECTIVES[kind].mixes for kind in objective.kinds),
        f"data.weights={data.weights}, data.mixing_temperature={data.mixing_temperature}, "
        f"data.mixing_limit={data.mixing_limit}: items of {name} do not record which part they "
        "come from; leave them at their defaults",
    )
    source = SOURCES.get(data.source)
    check(
        source is None or not source.objectives or objective.kind in source.objectives,
        f"data.source={data.source!r}: has rows for "
        f"{either(source.objectives if source else ())}, not for {name}; choose one of these, or "
        "another source",
    )
    check(
        not data.prefixes or not objective.one_sided,
        f"data.prefixes={data.prefixes}: {name} has no source side; set it to ()",
    )
    check(
        not data.subword_dropout or run.tokenizer.model is None,
        f"data.subword_dropout={data.subword_dropout}: needs a tokenizer trained "
        "here, whose merges are in the order of its pieces; set it to 0",
    )


def _check_symbols(run: Any, name: str) -> None:
    """Reject named pieces that leave no room for others, or that the objective adds too."""
    objective = run.objective
    named = len(objective.symbols) + len(run.tokenizer.symbols)
    check(
        not named or not {*SIZED} & {*run.codecs} or run.tokenizer.vocab_size > named + 5,
        f"tokenizer.vocab_size={run.tokenizer.vocab_size}: {named} of the pieces are named ones, "
        f"of {name} and tokenizer.symbols; raise it, or lower objective.sentinels",
    )
    taken = run.init.source is not None and run.init.tokenizer  # with the symbols that it has
    doubled = [piece for piece in run.tokenizer.symbols if piece in objective.symbols]
    check(
        taken or not doubled,
        f"tokenizer.symbols={run.tokenizer.symbols}: {name} adds {', '.join(doubled)} itself; "
        "remove it",
    )

"""Work directories as models of EleutherAI's lm-evaluation-harness, without a server:

    python -m transformer_jax.harness run --model transformer_jax --model_args workdir=DIR ...

is `lm_eval run ...` with one more model; see docs/serving.md.
"""

import dataclasses
import json
import sys
from typing import Any

from lm_eval.__main__ import cli_evaluate
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from transformer_jax.api import load
from transformer_jax.base.errors import UserError
from transformer_jax.config import DecodingConfig
from transformer_jax.config.choices.searches import GREEDY, samples
from transformer_jax.config.convert import parse
from transformer_jax.data.codecs.codec import special_of
from transformer_jax.decoding.text.likelihood import likelihoods
from transformer_jax.experiments.process import keep_freed_memory, use_compilation_cache
from transformer_jax.runs.workdir import WorkDir

_POSITIONS = 2048  # scored at a time
_REQUESTS = 512  # between two messages about progress
_DRAWN = ("temperature", "top_k", "top_p", "min_p", "seed")  # of the settings of generation
_TOKENS = 256  # written at most, as in lm-eval's other models


@register_model("transformer_jax")
class TrainedLM(TemplateLM):
    """A language model in the work directory `workdir`, as lm-eval calls it.

    `max_length` is the most pieces it reads, by default as many as an export says it has positions
    for. `add_bos_token` says whether contexts begin with BOS, by default as documents did in
    training. Batches are chosen here: `batch_size` and `device` have no effect.

    Raises:
      UserError: if it is not a language model.
    """

    def __init__(
        self, workdir: str, checkpoint: str | None = None, max_length: int | None = None,
        add_bos_token: bool | None = None, batch_size: Any = None, max_batch_size: Any = None,
        device: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        use_compilation_cache()
        keep_freed_memory()
        chosen = checkpoint or WorkDir(workdir).experiment().evaluation.checkpoint
        self._trained = load(workdir, str(chosen))
        self._loaded, self._codec = self._trained.loaded, self._trained.tokenizers.tgt
        likelihoods(self._loaded, [], 1)  # refuses models that are none
        self.max_length = max_length or self._trained.model.config.max_positions
        begins = self._loaded.objective.prompts_begin
        self._begins = begins if add_bos_token is None else bool(add_bos_token)

    @property
    def eot_token_id(self) -> int:
        """The piece that ends a text."""
        return special_of(self._codec).end

    @property
    def prefix_token_id(self) -> int:
        """What is read before a text without context."""
        bos = special_of(self._codec).bos
        return self.eot_token_id if bos is None else bos

    @property
    def tokenizer_name(self) -> str:
        """What caches of requests are told apart by."""
        return self._codec.digest

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        """Return the pieces of a text, BOS first if asked for."""
        bos = self._begins if add_special_tokens is None else add_special_tokens
        return self._codec.encode([string], bos=bos, eos=False)[0]

    def _loglikelihood_tokens(
        self, requests: list[tuple[Any, list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """Return the log-probability of each continuation, and whether it is the most probable at
        every piece. Long contexts lose their beginning.
        """
        answers: list[tuple[float, bool]] = []
        quiet = kwargs.get("disable_tqdm", False)
        for start in tqdm(range(0, len(requests), _REQUESTS), "Log-likelihoods", disable=quiet):
            some = requests[start : start + _REQUESTS]
            wholes = [[*before, *after][-(self.max_length + 1) :] for _, before, after in some]
            results = likelihoods(self._loaded, wholes, 1, _POSITIONS)
            for (key, _, after), said in zip(some, results, strict=True):
                last = len(said.log_probs) - len(after)
                greedy = bool((said.best[last:, 0] == after).all())
                answers.append((float(said.log_probs[last:].astype(float).sum()), greedy))
                if key is not None:
                    self.cache_hook.add_partial("loglikelihood", key, answers[-1])
        return answers

    def loglikelihood_rolling(self, requests: list, disable_tqdm: bool = False) -> list[float]:
        """Return the log-probability of each whole text, each piece predicted once, in windows of
        `max_length`, after one BOS.
        """
        windows, owners = [], []
        for number, request in enumerate(requests):
            ids = self.tok_encode(request.args[0], add_special_tokens=False)
            pairs = get_rolling_token_windows(ids, self.prefix_token_id, self.max_length, 1)
            some = [(None, *make_disjoint_window(pair)) for pair in pairs]
            windows += some
            owners += [number] * len(some)
        totals = [0.0] * len(requests)
        answers = self._loglikelihood_tokens(windows, disable_tqdm=disable_tqdm)
        for number, (log_prob, _) in zip(owners, answers, strict=True):
            totals[number] += log_prob
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def generate_until(self, requests: list, disable_tqdm: bool = False) -> list[str]:
        """Return the continuation of each context, up to a stop string.

        Raises:
          UserError: if a task asks for a setting of generation that there is not.
        """
        groups: dict[str, list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(json.dumps(request.args[1], sort_keys=True), []).append(number)
        answers = [""] * len(requests)
        for numbers in tqdm(groups.values(), "Generation", disable=disable_tqdm):
            contexts = [requests[number].args[0] for number in numbers]
            texts = self._continued(contexts, requests[numbers[0]].args[1])
            for number, text in zip(numbers, texts, strict=True):
                answers[number] = text
                self.cache_hook.add_partial("generate_until", requests[number].args, text)
        return answers

    def _continued(self, contexts: list[str], settings: dict[str, Any]) -> list[str]:
        """Return the continuations of contexts with the same settings of generation."""
        kwargs: dict[str, Any] = {**normalize_gen_kwargs(settings, _TOKENS)}
        until, most = kwargs.pop("until", []), kwargs.pop("max_gen_toks")
        until = [until] if isinstance(until, str) else until
        drawn = {name: kwargs.pop(name) for name in _DRAWN if name in kwargs}
        fields = samples(1) | drawn if kwargs.pop("do_sample", False) else GREEDY
        fields |= {name: kwargs.pop(name) for name in ("repetition_penalty",) if name in kwargs}
        if kwargs:
            raise UserError(
                f"generation_kwargs: {', '.join(kwargs)}: must be among until, max_gen_toks, "
                f"do_sample, repetition_penalty, {', '.join(_DRAWN)}"
            )
        room = self.max_length - most
        if room < 1:
            raise UserError(
                f"max_gen_toks={most}: must be below max_length={self.max_length}; lower it in the "
                "task, with --gen_kwargs max_gen_toks=N"
            )
        usual = dataclasses.asdict(self._trained.experiment.decoding)
        generator = self._trained.generator(parse(usual | fields, DecodingConfig, "decoding"))
        encoded = (self.tok_encode(context) or [self.prefix_token_id] for context in contexts)
        prompts = [ids[-room:] for ids in encoded]
        stops = [text for text in until if text]
        texts = generator.generate(self._trained.params, prompts, most, stop=stops)
        starts = [len(generator.text(generator.reader.read(ids), [])) for ids in prompts]
        return [some[0].text[start:] for some, start in zip(texts, starts, strict=True)]


if __name__ == "__main__":
    try:
        cli_evaluate()
    except UserError as error:
        sys.exit(f"error: {error}")

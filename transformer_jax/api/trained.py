"""A trained model, for notebooks."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.api.reading import Reading
from transformer_jax.api.stored import Companions
from transformer_jax.base import counting
from transformer_jax.base.errors import UserError
from transformer_jax.config import DecodingConfig, Experiment
from transformer_jax.config.choices.searches import ONE, with_search
from transformer_jax.config.convert import parse
from transformer_jax.data.codecs.latents import Latents
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.codecs.states import States
from transformer_jax.decoding import inputs
from transformer_jax.decoding.acting import next_actions
from transformer_jax.decoding.draw import draw
from transformer_jax.decoding.predict import TOKENS, Row, check_verb, predictions
from transformer_jax.decoding.text.attention import CrossAttention, cross_attention
from transformer_jax.decoding.text.generate import Generator
from transformer_jax.decoding.text.inside import inside
from transformer_jax.decoding.text.mutations import mutation_scores
from transformer_jax.decoding.text.prompt_cache import PromptCache
from transformer_jax.decoding.text.score import score_pairs, score_texts
from transformer_jax.decoding.text.searching import drafting_in
from transformer_jax.decoding.text.transcribe import Transcriber
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.decoding.text.writer import make_writer
from transformer_jax.decoding.weights import computing_in
from transformer_jax.models.model import Model


class TrainedModel(Reading):
    """A model read back from a work directory."""

    def __init__(
        self, experiment: Experiment, model: Model, params: Any, tokenizers: TokenizerPair,
        steps: list[int], path: Path | None = None,
    ) -> None:  # fmt: skip
        self.experiment, self.model, self.params = experiment, model, params
        self.tokenizers, self.steps = tokenizers, steps
        self.path = path  # of its work directory
        self._translators: dict[Any, Translator | Transcriber] = {}  # compiled on first use
        self._beside = Companions(tokenizers)

    def __repr__(self) -> str:
        data, steps = self.experiment.data, ", ".join(map(str, self.steps))
        objective = self.experiment.objective
        steps = f"step {steps}" if len(self.steps) == 1 else f"mean of steps {steps}"
        size = f"{counting.parameters(self.params):,} parameters"
        what = f"{data.source_language}-{data.target_language}"
        what = f"language model of {data.target_language}" if objective.one_sided else what
        if brief := objective.record.brief:
            what = f"{brief} of {data.source_language}" if objective.labels else brief
        return f"<TrainedModel {what} from {self.path}, {steps}, {size}>"

    def translator(
        self, decoding: DecodingConfig | None = None, n_best: int = 1, warn: bool = True
    ) -> Translator | Transcriber:
        """Return the Translator, or a CTC model's Transcriber, with the given settings, or else
        those of the experiment. Sources that are longer than its lengths are translated in parts,
        with a warning if `warn`.

        Raises:
          UserError: if the model does not translate.
        """
        if not self.experiment.objective.translates:
            record, why = self.experiment.objective.record, "has no source to translate"
            if record.labels:
                why = f"writes no text; see {record.method}"
            more = "; to continue a prompt, use generate" if record.likelihood else ""
            raise self.loaded.refusal(why + more)
        chosen = decoding or self.experiment.decoding
        key = chosen, n_best, warn
        if key not in self._translators:
            draft = self._beside.draft(chosen, self.experiment)
            lexicon = self._beside.lexicon(chosen, self.path)
            self._translators[key] = make_writer(
                self.loaded, *key, draft=draft, lexicon=lexicon
            )  # fmt: skip
        return self._translators[key]

    def translate(
        self,
        lines: str | Sequence,
        decoding: DecodingConfig | None = None,
        *,
        n_best: int | None = None,
        **fields: Any,
    ) -> Any:
        """Return the best translation of a line as text, or a list of these for several lines. If
        the model does not read text, a line is the name of a file, an image or an array, prepared
        as in training; see `classify`.

        With `n_best`, return a list of up to that many hypotheses instead, best first, each with
        text, pieces (`ids`), score and log-probability. Settings are `decoding`, or else those of
        the experiment; keywords change single fields: `beam_size=1, alpha=1.0`.
        Those of sampling, such as `temperature=0.8` or `seed=1`, ask for random translations.

        Raises:
          UserError: if there is no such field, two contradict each other, or `n_best` exceeds
            what the search keeps.
        """
        chosen = self._decoding(decoding, fields)
        translator = self.translator(chosen, 1 if n_best is None else n_best)
        several, one = self._read(lines, "translate")
        hypotheses = translator.hypotheses(self.params, several)
        translations = [items[0].text for items in hypotheses] if n_best is None else hypotheses
        return translations[0] if one else translations

    def generator(
        self,
        decoding: DecodingConfig | None = None,
        n_best: int = 1,
        prompt_cache: str | Path | None = None,
    ) -> Generator:
        """Return the Generator with the given settings, or else those of the experiment.

        Its states for prompts are kept in the directory `prompt_cache`, for later prompts that
        begin alike.

        Raises:
          UserError: if the model does not continue prompts.
        """
        chosen, loaded = decoding or self.experiment.decoding, self.loaded
        draft = self._beside.draft(chosen, self.experiment)
        prompts: list[PromptCache] = []
        if prompt_cache is not None:
            params = self.params if loaded.members else [self.params]
            models = computing_in(chosen.compute_dtype, loaded.models)
            drafting = drafting_in(chosen, draft)
            prompts = self._beside.prompts(models, params, drafting, prompt_cache)
        return Generator(
            loaded.models, loaded.codecs.tgt, loaded.objective, chosen, n_best, draft=draft,
            prompts=prompts, cut_at=loaded.cut_at,
            template=loaded.codecs.template if loaded.objective.record.chats else None,
        )  # fmt: skip

    def chat_generator(self, decoding: DecodingConfig | None = None, n_best: int = 1) -> Generator:
        """Return the Generator of answers in conversations; see `generator`.

        Raises:
          UserError: if the model has no chat template, or does not continue texts.
        """
        chosen, loaded = decoding or self.experiment.decoding, self.loaded.in_chats()
        draft = self._beside.draft(chosen, self.experiment)
        return Generator(
            loaded.models, loaded.codecs.tgt, loaded.objective, chosen, n_best, draft=draft,
            template=loaded.codecs.template,
        )  # fmt: skip

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        max_tokens: int | None = None,
        decoding: DecodingConfig | None = None,
        *,
        tools: Sequence[Any] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> str:
        """Return the answer to the messages of a conversation, each with a "role" and a "content".
        It ends where the chat template ends one, or after `max_tokens` pieces; None means 256.
        `tools` are for templates that write them, and `chat_template_kwargs` the template's own
        options, such as Qwen 3's `enable_thinking`; other arguments are those of `generate`.

        Raises:
          UserError: if the messages are malformed, too long, or the model has no chat template.
        """
        generator = self.chat_generator(self._decoding(decoding, fields))
        read = generator.reader.asked(messages, tools, chat_template_kwargs)
        (texts,) = generator.generate(self.params, [read], max_tokens)
        return texts[0].text

    def generate(
        self,
        prompts: str | Sequence[str],
        max_tokens: int | None = None,
        decoding: DecodingConfig | None = None,
        *,
        n_best: int | None = None,
        suffix: str | None = None,
        stop_strings: str | Sequence[str] = (),
        prompt_cache: str | Path | None = None,
        **fields: Any,
    ) -> Any:
        """Return the continuation of a prompt, or a list of these for several prompts.

        A language model's text begins with the prompt; that of a prefix language model or a
        pre-trained encoder-decoder is its answer alone. It ends with EOS, before the first of the
        `stop_strings`, or after `max_tokens` new pieces; None means 256. Where the model has
        positions for fewer, greedy and random texts go on with the last half of them, and others
        end. With `suffix`, the text between the prompt and this one is returned, by a model that
        was trained with `objective.fim_rate`. The state for a long prompt is kept in the directory
        `prompt_cache`, if given. The other arguments are those of `translate`: `temperature=0.8,
        seed=1`.

        Raises:
          UserError: if the model does not continue prompts, or a prompt and its text are
            longer than it can read.
        """
        chosen = self._decoding(decoding, fields)
        generator = self.generator(chosen, 1 if n_best is None else n_best, prompt_cache)
        several, one = inputs.texts(prompts, "generate")
        asked: Sequence[Any] = several
        if suffix is not None:
            asked = [generator.reader.gap(prompt, suffix) for prompt in several]
        texts = generator.generate(self.params, asked, max_tokens, stop=stop_strings)
        continuations = [items[0].text for items in texts] if n_best is None else texts
        return continuations[0] if one else continuations

    def stream(
        self,
        prompt: str,
        max_tokens: int | None = None,
        decoding: DecodingConfig | None = None,
        *,
        stop_strings: str | Sequence[str] = (),
        prompt_cache: str | Path | None = None,
        **fields: Any,
    ) -> Iterator[str]:
        """Yield the text of `generate` in parts as they are written; greedy unless it samples.

        The arguments are those of `generate`.

        Raises:
          UserError: if the search keeps several hypotheses.
        """
        chosen = self._decoding(decoding, fields, **ONE)
        generator = self.generator(chosen, prompt_cache=prompt_cache)
        text = inputs.one_text(prompt, "stream")
        return generator.stream(self.params, text, max_tokens, stop=stop_strings)

    def _decoding(
        self, decoding: DecodingConfig | None, fields: dict[str, Any], **unless: Any
    ) -> DecodingConfig:
        """Return the settings with some fields changed, and others `unless` these are."""
        chosen, changed = decoding or self.experiment.decoding, unless | with_search(fields)
        if not changed:
            return chosen
        return parse(dataclasses.asdict(chosen) | changed, DecodingConfig, "config.decoding")

    def predict(self, given: Any, top: int = 3) -> Any:
        """Return what the model predicts of new input, as data that JSON can hold: a class, labels,
        an answer, a number, a text or a forecast, whichever it was trained for; see
        `decoding.predict.predictions`. Of several inputs, return a list.

        An input is a text, with a TAB between two for a model of pairs or a question and its
        context; or for other models the name of a file, an image or an array; see `classify`.

        Raises:
          UserError: if the model predicts nothing of one input, or an input is malformed.
        """
        check_verb(self.experiment.objective, self.experiment.verb)
        several, one = inputs.read(given, self.loaded.reads, self.experiment.data, "predict")
        rows = self.predictions(several, top)
        return rows[0] if one else rows

    def predictions(self, values: Sequence, top: int = 3, tokens: int = TOKENS) -> list[Row]:
        """Return the same for values that the codec encodes, `tokens` positions at a time."""
        verb = check_verb(self.experiment.objective, self.experiment.verb)

        def write(values: Sequence) -> Sequence[Sequence[Any]]:
            if verb == "generate":
                return self.generator().generate(self.params, values)
            return self.translator().hypotheses(self.params, values)

        return predictions(self.loaded, verb, values, top, write, tokens)

    def act(self, histories: Any, **fields: Any) -> Any:
        """Return the next action of an agent, or a list of these for several histories: a number,
        or a vector [A] from -1 to 1.

        A history is {"observations", "actions", "rewards", "asked"}, with an observation more than
        actions and rewards, and the return asked for; or the name of a .json file of one. Keywords
        are fields of decoding: `search="sample", temperature=0.5` for random actions, which depend
        on the seed, the number of the history and the step.

        Raises:
          UserError: if the model does not act, a history is malformed, or there is no such field.
        """
        if not isinstance(self.tokenizers.src, States):
            raise self.loaded.refusal("does not act")
        several, one = self._read(histories, "act")
        chosen = self._decoding(None, fields)
        numbered = (dataclasses.replace(one, number=i) for i, one in enumerate(several))
        actions = [next_actions(self.loaded, [history], chosen)[0] for history in numbered]
        return actions[0] if one else actions

    def draw(
        self, said: str | Sequence[str], decoding: DecodingConfig | None = None, **fields: Any
    ) -> np.ndarray:
        """Return pictures of a text, or of several, or of classes: bytes [n H W C], or clips [n T H
        W C], `num_samples` for each. An empty text says nothing. Settings are those of `translate`:
        `guidance=4, sampling_steps=20, num_samples=10, seed=1`.

        Raises:
          UserError: if the model draws nothing, or does not know a class or a word, or draws in
            latents and their autoencoder is missing or another one.
        """
        search = (decoding or self.experiment.decoding).search  # its fields do not ask for another
        chosen = self._decoding(decoding, {"search": search} | fields)
        several, _ = inputs.texts(said, "draw")
        return self.pictures(np.concatenate([*draw(self.loaded, several, chosen)]), chosen)

    def pictures(self, drawn: np.ndarray, decoding: DecodingConfig | None = None) -> np.ndarray:
        """Return the pictures of latents [n rows columns C], by `decoding.autoencoder`; pictures
        are returned as they are.

        Raises:
          UserError: if the autoencoder is missing or another one.
        """
        if not isinstance(self.tokenizers.src, Latents):
            return drawn
        return self._beside.pictures(drawn, decoding or self.experiment.decoding)

    def mutations(self, sequence: str, mutations: Sequence[str]) -> list[float]:
        """Return a masked language model's score of each mutation of a sequence, such as "A23G":
        the log-probability (nats) of the new letter less that of the old one, with it hidden.

        Raises:
          UserError: if it is no such model, or a mutation is not one of the sequence.
        """
        return mutation_scores(self.loaded, sequence, mutations)

    def score(self, src: str | Sequence[str], tgt: str | Sequence[str] | None = None) -> Any:
        """Return the log-probabilities (nats) of a line's given translation, of each piece and in
        total, or a list of these for several lines. For a language model, those of a given text.

        Raises:
          UserError: if there are not as many translations as lines, or one has more pieces than the
            model has positions.
        """
        objective, loaded = self.experiment.objective, self.loaded
        self.loaded.check_text("score")
        if objective.labels:
            known = objective.record
            raise UserError(f"score: such a model predicts {known.labels}; see {known.method}")
        if objective.one_sided:
            if tgt is not None:
                raise UserError("score: a language model has no source; give only texts")
            texts, one = inputs.texts(src, "score")
            scored = score_texts(loaded, texts)
            return scored[0] if one else scored
        need = "give a translation for each line"
        if tgt is None:
            raise UserError(f"score: {need}: two texts, or two lists")
        sources, targets, one = inputs.pairs(src, tgt, "score", need)
        scores = score_pairs(loaded, sources, targets)
        return scores[0] if one else scores

    def inside(self, source: Any, target: str | Sequence[str] | None = None) -> Any:
        """Return the model's internals as it reads a text, or a pair if it translates, or a file,
        an image or an array if it reads vectors: a dict of `Inside` by stack, "encoder" or
        "decoder", with `hidden` states [L+1 T D] before and after each layer, `attention` of each
        layer and head [L N T T], `cross_attention` [L N T S], and `pieces`; or a list of these for
        several.

        Raises:
          UserError: if a translation is missing, or the model does not read a text as it is.
        """
        several, one = self._read(source, "inside")
        targets: Sequence[str | None] = [None] * len(several)
        if target is not None:
            targets, alone = inputs.texts(target, "inside")
            if alone != one or len(targets) != len(several):
                raise UserError("inside: give a translation for each text: two texts, or two lists")
        watched = [inside(self.loaded, *pair) for pair in zip(several, targets, strict=True)]
        return watched[0] if one else watched

    def attention(self, source: str, target: str | None = None) -> CrossAttention:
        """Return the cross-attention of a pair: weights [L N T S], pieces and word alignments.

        Without a target, the best translation is used.

        Raises:
          UserError: if there is no source, or one side is longer than the model can read.
        """
        self.loaded.check_text("attention")
        for text in (source, *([] if target is None else [target])):
            inputs.one_text(text, "attention")
        translator = self.translator()
        (ids,), longest = self.tokenizers.src.encode([source]), translator.longest
        if len(ids) < 2:
            raise UserError(f"source={source!r}: holds no words")
        if target is None and len(ids) <= longest:
            written = translator.translate(self.params, [source])[0].ids
        else:
            (written,) = self.tokenizers.tgt.encode([target or ""])
        for name, side in (("source", ids), ("target", written)):
            if len(side) > longest:
                raise UserError(f"{name}: {len(side)} pieces, at most {longest} allowed; give less")
        return cross_attention(self.loaded, ids, written)

"""Parallel encoding of text to ids: worker processes, which do not import jax, take blocks of lines
in turn.
"""

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import transformer_jax
from transformer_jax.base.errors import UserError
from transformer_jax.data.batches.batch import Ragged
from transformer_jax.data.codecs import preferences
from transformer_jax.data.codecs.chat import ChatTemplate
from transformer_jax.data.codecs.codec import Codec, VectorCodec, special_of
from transformer_jax.data.codecs.subword_dropout import SubwordDropout
from transformer_jax.data.sources import labelled
from transformer_jax.data.sources.questions import Asked

Job = tuple[Sequence, int]  # lines, and the number of the first


class WorkerDied(UserError):
    """An encoding process has died; what is encoded is kept, and encoding can resume."""

    exit_code = 75


@dataclass(frozen=True)
class Encoder:
    """How the lines of one side become ids. With `dropout`, a rate and a seed, they are segmented
    at random, each by its number; `words` are encoded one by one, without special pieces.
    """

    codec: Codec
    bos: bool = False
    eos: bool = True
    words: bool = False
    dropout: tuple[float, int] | None = None
    template: str | None = None  # of chat: lines are conversations, or pairs of them
    pairs: bool = False

    def prepared(self) -> Callable[[Sequence, int], Ragged]:
        """Return the function that turns lines, given the number of the first, into ids."""
        if self.dropout is not None:
            dropout = SubwordDropout(self.codec, *self.dropout)
            return lambda lines, first: Ragged.from_lists(dropout.encode(lines, first))
        if self.template is not None:
            template = ChatTemplate(self.template)
            if self.pairs:
                return lambda lines, _: Ragged.from_lists(
                    preferences.encoded(template, self.codec, lines)
                )
            return lambda lines, _: Ragged.from_lists(template.encode(self.codec, lines))
        if self.words:
            return lambda lines, _: Ragged.from_lists(encode_words(self.codec, lines))
        return lambda lines, _: Ragged.from_lists(self.codec.encode(lines, self.bos, self.eos))

    def __reduce__(self) -> tuple[Any, ...]:
        rest = self.bos, self.eos, self.words, self.dropout, self.template, self.pairs
        return _encoder, (type(self.codec), self.codec.model, *rest)


def _encoder(codec: type[Codec], model: bytes, *rest: Any) -> Encoder:
    return Encoder(codec(model), *rest)


# How a line is cut into several sequences.
CUTS: dict[str, Callable[[str], list[str]]] = {
    "words": labelled.words_of,
    "texts": labelled.two_texts,
    "questions": lambda line: Asked.read(line).parts(),
}


def encode_words(codec: Codec, words: Sequence[str]) -> list[list[int]]:
    """Return the ids of each word or text, at least one: UNK if normalisation leaves nothing, or
    PAD if the codec has no UNK.
    """
    nothing = codec.special.get("unk", special_of(codec).pad)
    return [ids or [nothing] for ids in codec.encode(words, eos=False)]


def cores() -> list[int]:
    """Return the numbers of the cores that this process may use."""
    lent = hasattr(os, "sched_getaffinity")  # not on all systems
    return sorted(os.sched_getaffinity(0)) if lent else list(range(os.cpu_count() or 1))


def encoded(encoder: Encoder, jobs: Iterable[Job], processes: int) -> Iterator[Ragged]:
    """Yield the result of each job, in order, using `processes` processes; a few jobs are queued.

    A single process is this one; so it is for what others cannot receive: vectors, and user-defined
    codecs.

    Raises:
      WorkerDied: if one of several processes was killed.
    """
    codec = encoder.codec
    ours = type(codec).__module__.startswith(f"{transformer_jax.__name__}.")
    if processes == 1 or isinstance(codec, VectorCodec) or not ours:
        encode = encoder.prepared()
        yield from (encode(*job) for job in jobs)
        return
    with ExitStack() as stack:
        idle: SimpleQueue[_Worker] = SimpleQueue()
        for _ in range(processes):
            idle.put(stack.enter_context(_Worker(encoder)))

        def ask(job: Job) -> Ragged:
            worker = idle.get()
            try:
                return worker.ask(job)
            finally:
                idle.put(worker)

        pool = ThreadPoolExecutor(processes)
        stack.callback(pool.shutdown, cancel_futures=True)
        waiting: deque[Future[Ragged]] = deque()
        for job in jobs:
            waiting.append(pool.submit(ask, job))
            if len(waiting) > 2 * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def jobs_of(lines: Sequence, times: int, done: int, most: int) -> Iterator[Job]:
    """Yield the lines after those already done, `times` times in all, with their numbers, at most
    `most` at a time.
    """
    while done < times * len(lines):
        start = done % len(lines)
        part = lines[start : start + most]
        yield part, done
        done += len(part)


class _Worker:
    """An encoding process: `python -m` this file. It is not from `multiprocessing`, which would
    import the main program, jax included, and run a script without a main guard.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def __enter__(self) -> "_Worker":
        path = os.pathsep.join([str(Path(transformer_jax.__file__).parents[1]), *sys.path])
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
        )  # fmt: skip
        self._send(self._encoder)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _send(self, value: Any) -> None:
        assert self._process.stdin is not None
        pickle.dump(value, self._process.stdin, pickle.HIGHEST_PROTOCOL)
        self._process.stdin.flush()

    def ask(self, job: Job) -> Ragged:
        """Return the result of a job."""
        assert self._process.stdout is not None
        try:
            self._send(job)
            answer = pickle.load(self._process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            raise WorkerDied(
                f"a process encoding text died (exit code {self._process.wait()}), perhaps for "
                "lack of memory; what is encoded is kept: start again to resume"
            ) from None
        if isinstance(answer, BaseException):
            raise answer
        return answer


def _work() -> None:
    """Answer jobs."""
    import signal

    from transformer_jax.data.codecs.subwords import Subwords

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    Subwords.threads = 1  # each core already has a process
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that prints do not end up among the answers
    encode = pickle.load(sys.stdin.buffer).prepared()
    while True:
        lines, first = pickle.load(sys.stdin.buffer)
        try:
            answer: Any = encode(lines, first)
        except Exception as error:
            answer = error
        pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()


if __name__ == "__main__":
    # The parent has ended: between jobs, within one, or before it could be answered.
    with suppress(EOFError, pickle.UnpicklingError, BrokenPipeError):
        _work()

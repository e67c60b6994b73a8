"""Texts longer than the positions of a model: when these are full, it reads the last half of them
again, from position 0, and goes on.
"""

from dataclasses import dataclass, field

from transformer_jax.decoding.batching.rows import Sentence

_NEXT_WINDOW = 1_000_033  # between the seeds of a text's windows
NEXT_TEXT = 1_000_037  # between those of a prompt's texts, from the second window on


@dataclass
class Sliding:
    """A text as it is written, window by window, up to `wanted` pieces or `eos`.

    Windows start with the pieces `begins` if the text does.
    """

    positions: int  # of the model
    read: list[int]  # before it is written; the last piece is not yet in the cache
    wanted: int
    reached: int  # how many pieces the windows so far have room for
    seed: int  # of the last window
    eos: int
    begins: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)  # written

    @property
    def goes_on(self) -> bool:
        """Whether there is more to write: the last window is full, and did not end the text."""
        return len(self.ids) == self.reached < self.wanted and self.eos not in self.ids[-1:]

    def next_window(self) -> Sentence:
        """Slide the window, and return what is read of it and searched next."""
        whole, keep = [*self.read, *self.ids], max(self.positions // 2, 1)
        begun = len(self.begins) < keep and whole[: len(self.begins)] == self.begins
        start = self.begins if begun else []
        read = [*start, *whole[max(len(whole) - keep, 0) + len(start) :]]
        limit = min(self.wanted - self.reached, self.positions - len(read) + 1)
        self.reached += limit
        self.seed = (self.seed + _NEXT_WINDOW) % 2**31
        return Sentence(read[:-1], limit, seed=self.seed, first=read[-1])

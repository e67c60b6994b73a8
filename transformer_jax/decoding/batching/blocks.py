"""Reference counts of the blocks of a pool."""

from collections.abc import Hashable


class Blocks:
    """The blocks of a pool. Named blocks can be shared; nobody writes to a shared block."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count))[::-1]
        self._uses = [0] * count
        self._named: dict[Hashable, int] = {}
        self._names: dict[int, Hashable] = {}

    @property
    def free(self) -> int:
        """Number of free blocks."""
        return len(self._free)

    def uses(self, block: int) -> int:
        """Return the number of users of a block."""
        return self._uses[block]

    def take(self, name: Hashable = None) -> int:
        """Take a free block, of which there must be one, under the given name."""
        block = self._free.pop()
        self._uses[block] = 1
        if name is not None:
            self._named[name], self._names[block] = block, name
        return block

    def share(self, name: Hashable) -> int | None:
        """Return the block with a name for one more user, or None."""
        block = self._named.get(name)
        if block is not None:
            self._uses[block] += 1
        return block

    def release(self, block: int) -> None:
        """Release one use; a block without uses becomes free and loses its name."""
        self._uses[block] -= 1
        if not self._uses[block]:
            self._named.pop(self._names.pop(block, None), None)
            self._free.append(block)

    def own(self, block: int) -> int:
        """Return a block to write to instead of this one: itself, or a copy if others use it."""
        if self._uses[block] == 1:
            return block
        copy = self.take()
        self.release(block)
        return copy

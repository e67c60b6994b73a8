"""Which blocks of a pool are in use, and by how many."""

from collections.abc import Hashable


class Blocks:
    """The blocks of a pool. Those with a name can be shared, and are written to by nobody else."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count))[::-1]
        self._uses = [0] * count
        self._named: dict[Hashable, int] = {}
        self._names: dict[int, Hashable] = {}

    @property
    def free(self) -> int:
        """How many are free."""
        return len(self._free)

    def uses(self, block: int) -> int:
        """Return how many use a block."""
        return self._uses[block]

    def take(self, name: Hashable = None) -> int:
        """Return a free block, of that name from now on; there must be one."""
        block = self._free.pop()
        self._uses[block] = 1
        if name is not None:
            self._named[name], self._names[block] = block, name
        return block

    def share(self, name: Hashable) -> int | None:
        """Return the block of a name for one more user, or None."""
        block = self._named.get(name)
        if block is not None:
            self._uses[block] += 1
        return block

    def release(self, block: int) -> None:
        """Give up a use; a block without any is free, and its name forgotten."""
        self._uses[block] -= 1
        if not self._uses[block]:
            self._named.pop(self._names.pop(block, None), None)
            self._free.append(block)

    def own(self, block: int) -> int:
        """Return a block for what is written over this one: itself, or a copy if others use it."""
        if self._uses[block] == 1:
            return block
        copy = self.take()
        self.release(block)
        return copy

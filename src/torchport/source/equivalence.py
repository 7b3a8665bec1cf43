"""Which things are known to be the same: classes of keys, united one by one."""

from __future__ import annotations

from collections.abc import Hashable


class Equivalence:
    """Union-find with path compression. A key that was never united is a class of its own."""

    def __init__(self) -> None:
        self._parent: dict[Hashable, Hashable] = {}  # of what is not its own class

    def find(self, key: Hashable) -> Hashable:
        """The class of a key: an opaque value to compare, until the next `unite`."""
        parent = self._parent
        above = parent.get(key)
        if above is None:
            return key
        root = above
        while (above := parent.get(root)) is not None:
            root = above
        while (above := parent.get(key)) is not None and above is not root:
            parent[key], key = root, above
        return root

    def unite(self, one: Hashable, *others: Hashable) -> None:
        """Make one class of those of all keys."""
        root = self.find(one)
        for other in others:
            if (joined := self.find(other)) != root:
                self._parent[joined] = root

"""Which things are known to be the same: classes of keys, united one by one."""

from __future__ import annotations

from collections.abc import Hashable


class Equivalence:
    """Union-find with path compression. A key that was never united is a class of its own."""

    def __init__(self) -> None:
        self._parent: dict[Hashable, Hashable] = {}

    def find(self, key: Hashable) -> Hashable:
        """The class of a key: an opaque value to compare, until the next `unite`."""
        root = key
        while (above := self._parent.get(root, root)) != root:
            root = above
        while self._parent.get(key, key) != root:
            self._parent[key], key = root, self._parent[key]
        return root

    def unite(self, one: Hashable, *others: Hashable) -> None:
        """Make one class of those of all keys."""
        root = self.find(one)
        for other in others:
            self._parent[self.find(other)] = root
            root = self.find(root)

"""Which key the next draw has: streams of draws, and the points in them that a script returns to.

A draw is known by its signature (kind, number of elements), its place (source line and module path) and the how
manieth visit of that place it is. A draw more or less at one place therefore changes nothing at the others.

A script may return to a point: it seeds again with the same seed, or restores a state (activation checkpointing
does, in every step). From there the keys that were given are given again, to draws of the same signature in the same
order, whatever line they stand on: two models that are built after the same seed are equal.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

WORD = (1 << 64) - 1
EPOCHS = 256  # seeds whose draws are remembered
STATES = 4096  # saved states that are remembered; activation checkpointing saves two for each block


def hash_parts(*parts: object) -> int:
    """64 bits that depend on the text of `parts`; the same in every process."""
    text = "\0".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


@dataclass
class Epoch:
    """All that was drawn since a seed."""

    origin: int
    keys: dict[int, array[int]] = field(default_factory=dict)  # of each signature, in the order drawn
    visits: dict[tuple[int, str], int] = field(default_factory=dict)


@dataclass(frozen=True)
class Point:
    """A place in a stream, to return to."""

    epoch: Epoch
    drawn: dict[int, int]
    mark: int


class Stream:
    """The draws of one generator. `origin` is where it starts, see `go_to_epoch`."""

    def __init__(self, epochs: Epochs, origin: int) -> None:
        self._epochs = epochs
        self.go_to_epoch(origin)

    def go_to_epoch(self, origin: int) -> None:
        """Go to the beginning of the epoch `origin`, which may have been drawn before."""
        self._epoch = self._epochs.get_epoch(origin)
        self._drawn: dict[int, int] = {}
        self.mark = 0  # differs from point to point of an epoch

    @property
    def origin(self) -> int:
        """The epoch that this stream is in."""
        return self._epoch.origin

    def next_key(self, kind: int, count: int, place: Callable[[], str]) -> int:
        """The key of a draw of `count` numbers; `place()` is asked where no draw was before."""
        signature = count << 8 | kind
        index = self._drawn.get(signature, 0)
        self._drawn[signature] = index + 1
        self.mark = ((self.mark ^ signature) * 0x9E3779B97F4A7C15 + 1) & WORD
        epoch = self._epoch
        keys = epoch.keys.get(signature)
        if keys is None:
            keys = epoch.keys[signature] = array("Q")
        if index < len(keys):
            return keys[index]
        where = place()
        visit = epoch.visits.get((signature, where), 0)
        epoch.visits[signature, where] = visit + 1
        key = hash_parts(epoch.origin, signature, where, visit)
        keys.append(key)
        return key

    def current_point(self) -> Point:
        """Where the stream is now."""
        return Point(self._epoch, dict(self._drawn), self.mark)

    def go_to(self, point: Point) -> None:
        """Return to where the stream was."""
        self._epoch, self._drawn, self.mark = point.epoch, dict(point.drawn), point.mark

    def go_on(self) -> None:
        """Go behind all draws of this epoch, so that none that comes was given before."""
        self._drawn = {signature: len(keys) for signature, keys in self._epoch.keys.items()}
        self.mark = hash_parts("on", self.mark, *sorted(self._drawn.items()))


class Epochs:
    """The last epochs and the last points that were saved, by the bytes of the state that stands for them."""

    def __init__(self) -> None:
        self._epochs: OrderedDict[int, Epoch] = OrderedDict()
        self._points: OrderedDict[bytes, Point] = OrderedDict()

    def get_epoch(self, origin: int) -> Epoch:
        """The epoch that starts at `origin`; the same one again while it is remembered."""
        epoch = self._epochs.get(origin)
        if epoch is None:
            epoch = self._epochs[origin] = Epoch(origin)
            if len(self._epochs) > EPOCHS:
                self._epochs.popitem(last=False)
        self._epochs.move_to_end(origin)
        return epoch

    def save_point(self, state: bytes, point: Point) -> None:
        """Remember that `state` stands for `point`."""
        name = hashlib.blake2b(state, digest_size=16).digest()
        self._points[name] = point
        self._points.move_to_end(name)
        if len(self._points) > STATES:
            self._points.popitem(last=False)

    def find_point(self, state: bytes) -> Point | None:
        """The point that `state` stands for, None for one from another process."""
        return self._points.get(hashlib.blake2b(state, digest_size=16).digest())

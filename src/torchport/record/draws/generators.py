"""Seeds and saved states: which generator of the script belongs to which stream.

All default generators, the host's and the devices', share one stream: in the reference, where the device's tensors
are on the CPU, nothing tells a draw on the device from one on the host. An explicit generator of a device has a stream
of its own, which its seed decides. An explicit generator of the CPU is left to torch: it gives the same numbers in
both runs as it is.

The real generators are not advanced by our draws. When a script asks for a generator's state, a part of it is set to
what names the point in the stream: states of different points differ, states of the same point are equal in both
runs, and one that comes from a file gives both runs the same stream.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torchport.patches import Patches
from torchport.record.draws.streams import Epochs, Stream, hash_parts

# The state of a CPU generator, CPUGeneratorImplStateLegacy in ATen/CPUGeneratorImpl.cpp: 24 bytes, then the words of
# the Mersenne twister, 8 bytes each of which the lower 4 count. That of an NPU or CUDA generator: seed and offset, 8
# bytes each; the offset is a multiple of 4.
WORDS_AT, WORD_SIZE, DEVICE_STATE = 24, 8, 16
SEEDING = ("manual_seed", "manual_seed_all")


class Generators:
    """The streams of one process. `seed` decides what a script leaves to chance (`torch.seed()`)."""

    def __init__(self, torch: Any, seed: int) -> None:
        self._torch = torch
        self._seed = seed
        self._chances = 0
        self._epochs = Epochs()
        self.default = Stream(self._epochs, hash_parts("start", seed))
        self._default_seed = seed
        self._host = torch.default_generator._cdata
        self._explicit: dict[int, Stream] = {}
        self._for_device: set[int] = set()  # CPU generators that the reference gave for a device's
        self._followed: set[tuple[int, str]] = set()
        self._seen: dict[int, bytes] = {}  # states that are known; one that differs was moved by someone else
        kind = type(torch.default_generator)
        self._get, self._set = kind.get_state, kind.set_state
        self.seed_natively = kind.manual_seed

    def get_stream(self, generator: Any) -> Stream | None:
        """The stream of a generator that an operator was given; None for one that is left to torch."""
        if generator is None:
            return self.default
        name = generator._cdata
        if name == self._host or name in self._device_defaults():
            return self.default
        if generator.device.type == "cpu" and name not in self._for_device:
            return None
        stream = self._explicit.get(name)
        if stream is None:
            stream = self._explicit[name] = Stream(self._epochs, _origin(generator))
        return stream

    def read_device_states(self) -> list[bytes]:
        """The states of the current device's default generator, none before there is a device."""
        return [_bytes(self._get(generator)) for generator in self._current()]

    def _current(self) -> list[Any]:
        npu, cuda = getattr(self._torch, "npu", None), self._torch.cuda
        module = cuda if npu is None else npu
        if not self._device_defaults() or (npu is None and not self._torch.version.cuda):
            return []
        return [module.default_generators[module.current_device()]]

    def find_moved_generators(self) -> list[str]:
        """Which of the host and the current device ("cpu", "npu:0") has a default generator that something moved,
        since the last call, that is not known here."""
        found = []
        for generator in (self._torch.default_generator, *self._current()):
            state = _bytes(self._get(generator))
            if self._seen.get(generator._cdata, state) != state:
                found.append(str(generator.device))
            self._seen[generator._cdata] = state
        return found

    @contextmanager
    def put_back(self, given: Iterable[Any]) -> Iterator[None]:
        """What is drawn within leaves the default generators, and those among `given`, as they are."""
        kind = type(self._torch.default_generator)
        used = [self._torch.default_generator, *self._current(), *(one for one in given if isinstance(one, kind))]
        states = [(generator, self._get(generator)) for generator in used]
        try:
            yield
        finally:
            for generator, state in states:
                self._set(generator, state)

    def forget_states(self) -> None:
        """The generators were moved by something that is known."""
        self._seen.clear()

    def follow_seeds(self, patches: Patches) -> None:
        """Follow the script's seeds and states until the patches are undone."""
        kind = type(self._torch.default_generator)
        for name, make in {
            "manual_seed": self._manual_seed,
            "seed": self._seed_from_chance,
            "get_state": self._get_state,
            "set_state": self._set_state,
        }.items():
            patches.set(kind, name, make(getattr(kind, name)))
        if self._torch.Generator is not kind:
            self._watch_pretended(patches)

    def follow_devices(self, patches: Patches) -> None:
        """Follow the seeds that are for a device alone; those of a device that is imported later too."""
        for owner in self._device_modules():
            for name in SEEDING:
                if hasattr(owner, name) and (id(owner), name) not in self._followed:
                    self._followed.add((id(owner), name))
                    patches.wrap(owner, name, self._device_seed)

    def _watch_pretended(self, patches: Patches) -> None:
        """The reference makes CPU generators where the script asks for a device's: notice which."""
        pretended, noted = self._torch.Generator, self._for_device

        class Watched(type):
            def __call__(cls, device: Any = "cpu") -> Any:
                generator = pretended(device)
                if not str(device).startswith("cpu"):
                    noted.add(generator._cdata)
                    weakref.finalize(generator, noted.discard, generator._cdata).atexit = False
                return generator

            def __instancecheck__(cls, instance: Any) -> bool:
                return isinstance(instance, pretended)

        patches.set(self._torch, "Generator", Watched("Generator", (), {"__doc__": pretended.__doc__}))

    def _device_modules(self) -> list[Any]:
        modules = [getattr(self._torch, name, None) for name in ("cuda", "npu")]
        found = [owner for module in modules for owner in (module, getattr(module, "random", None)) if owner]
        return list({id(owner): owner for owner in found}.values())

    def _device_defaults(self) -> dict[int, Any]:
        found: dict[int, Any] = {}
        for name in ("cuda", "npu"):
            module = getattr(self._torch, name, None)
            # Asked before, torch.cuda as `auto` has it would initialise the NPU, and in a forked worker fail.
            if module is not None and module.is_initialized():
                found |= {one._cdata: one for one in getattr(module, "default_generators", ())}
        return found

    def _device_seed(self, original: Any) -> Any:
        def seed(value: int, *args: Any, **kwargs: Any) -> Any:
            self._seed_default(value)
            return original(value, *args, **kwargs)

        return seed

    def _seed_default(self, value: int) -> None:
        """A seed for the device alone. After the same seed for all, as scripts write it, it says nothing new."""
        if not (self.default.mark == 0 and int(value) == self._default_seed):
            self.default.go_to_epoch(hash_parts("device", self._default_seed, int(value)))

    def _manual_seed(self, original: Any) -> Callable[..., Any]:
        def manual_seed(this: Any, seed: int) -> Any:
            result = original(this, seed)
            self._seen.pop(this._cdata, None)
            if this._cdata == self._host:
                self._default_seed = this.initial_seed()
                self.default.go_to_epoch(hash_parts("seed", self._default_seed))
            elif this._cdata not in self._device_defaults():  # torch.npu seeds them late, at its first use
                known = this._cdata in self._explicit
                stream = self.get_stream(this)
                if stream is not None:
                    stream.go_to_epoch(_origin(this))
                if stream is not None and not known:  # its address may become another generator's
                    weakref.finalize(this, self._explicit.pop, this._cdata, None).atexit = False
            return result

        return manual_seed

    def _seed_from_chance(self, original: Any) -> Callable[..., int]:
        def seed(this: Any) -> int:
            value = hash_parts("chance", self._seed, self._chances) >> 1
            self._chances += 1
            this.manual_seed(value)
            if this._cdata in self._device_defaults():
                self._seed_default(value)
            return value

        return seed

    def _get_state(self, original: Any) -> Callable[..., Any]:
        def get_state(this: Any) -> Any:
            state = original(this)
            stream = self.get_stream(this)
            if stream is not None:
                self._name_point(state, stream)
                self._set(this, state)
                self._seen.pop(this._cdata, None)
                self._epochs.save_point(_bytes(state), stream.current_point())
            return state

        return get_state

    def _name_point(self, state: Any, stream: Stream) -> None:
        view = state.numpy()
        if view.size == DEVICE_STATE:
            offset = hash_parts(stream.origin, stream.mark) >> 4 & ~3
            view[8:] = list(offset.to_bytes(8, "little"))
            return
        name = stream.origin.to_bytes(8, "little") + stream.mark.to_bytes(8, "little")
        for index in range(4):
            start = WORDS_AT + WORD_SIZE * index
            view[start : start + 4] = list(name[4 * index : 4 * index + 4])

    def _set_state(self, original: Any) -> Callable[..., Any]:
        def set_state(this: Any, state: Any) -> Any:
            result = original(this, state)
            self._seen.pop(this._cdata, None)
            stream = self.get_stream(this)
            if stream is None:
                return result
            saved = _bytes(state)
            point = self._epochs.find_point(saved)
            if point is not None:
                stream.go_to(point)
            elif this._cdata == self._host:
                stream.go_to_epoch(hash_parts("state", saved.hex()))
            elif stream is not self.default:  # a device's state looks different in the two runs: its seed does not
                stream.go_to_epoch(_origin(this))
            else:  # DTensor puts its own offset there for each draw, and the old state back afterwards
                stream.go_on()
            if this._cdata == self._host:
                self._default_seed = this.initial_seed()
            return result

        return set_state


def _origin(generator: Any) -> int:
    return hash_parts("generator", generator.initial_seed())


def _bytes(state: Any) -> bytes:
    return bytes(state.cpu().numpy())

"""Operators noted by the library of csrc/record, without Python for each of them."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

import numpy

from torchport import vnpu
from torchport.patches import Patches
from torchport.record import releases
from torchport.record.operators import arguments, layout
from torchport.record.operators.tables import StepTables
from torchport.record.operators.wanted import Wanted
from torchport.record.sites import Sites
from torchport.vnpu.wheels import SUPPORTED

LIBRARY = "record/libtorchport_record.so"
OF_NPU = "record/libtorchport_record_npu.so"
TABLES = ("calls", "tensors", "contents", "links", "dims", "changes")  # as torchportRecordTable numbers them
STRINGS, NAME = 6, 7
BLOCK, STEP = 1, 2
CALLS_ALONE = 3
LEVELS = {layout.STATISTICS: 0, layout.TENSOR: 1, layout.MODULE: 2}


def load_record_library(torch: Any) -> ctypes.PyDLL:
    """The library. Raises OSError where it is not there, or was built for another torch than the imported one."""
    # PyDLL: these calls are short, and giving the interpreter's lock away costs more than they do.
    path = vnpu.library_directory() / LIBRARY
    if not str(torch.__version__).startswith(SUPPORTED):
        raise OSError(f"{path} was built for torch {SUPPORTED}, and this is {torch.__version__}")
    library = ctypes.PyDLL(str(path))
    library.torchportRecordMake.restype = ctypes.c_void_p
    library.torchportRecordError.restype = ctypes.c_char_p
    library.torchportRecordInstructions.restype = ctypes.c_char_p
    library.torchportRecordCalls.restype = ctypes.c_int64
    library.torchportRecordLost.restype = ctypes.c_int64
    return library


class HookRecorder:
    """What `mode.ModeRecorder` is, by the library; tensors of the host are measured by its own pass, those of the
    virtual NPU by the same pass in its streams, others by reductions that are read once per step (with `reductions`
    all). With `alone` no tensor is looked into: what noting the calls costs."""

    name = "hook"

    def __init__(
        self, torch: Any, wanted: Wanted, sites: Sites, *, reductions: bool = False, alone: bool = False
    ) -> None:
        self._torch = torch
        self._wanted = wanted
        self._library = load_record_library(torch)
        # Taking waits without the interpreter's lock.
        self._taking = ctypes.CDLL(self._library._name)
        self._taking.torchportRecordTable.restype = ctypes.c_int
        self._process = os.getpid()
        self._reductions = reductions
        self._patches = Patches()
        self.checks_inputs = False  # whether a call's inputs are looked at again, for memory that was written over
        self._on = True
        self.seen: set[str] = set()  # operators that were asked about, where they are filtered

        def classify(code: CodeType) -> str:
            return sites.of_code(code)

        self._classify = classify  # the library calls it as long as it notes calls
        filtered = wanted.filters.get("operator")
        kind = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_char_p)
        self._filter = kind(lambda name: self._counts(name.decode())) if filtered else None
        self._recorder = ctypes.c_void_p(
            self._library.torchportRecordMake(
                CALLS_ALONE if alone else LEVELS[wanted.level],
                int(reductions),
                ctypes.py_object(classify),
                self._filter or ctypes.c_void_p(None),
                int(not wanted.filters.get("module")),
            )
        )
        if not self._recorder:
            raise OSError(self._library.torchportRecordError().decode())
        self._texts: dict[str, ctypes.c_int32] = {}
        self._scopes: dict[str, tuple[ctypes.c_int32, int]] = {}

    def _counts(self, operator: str) -> bool:
        self.seen.add(operator)
        return self._wanted.is_operator_wanted(operator)

    def _call(self, name: str, *given: Any) -> None:
        if getattr(self._library, f"torchportRecord{name}")(self._recorder, *given):
            raise RuntimeError(self._library.torchportRecordError().decode())

    def _forked(self) -> bool:
        """Whether this is a child, which records nothing: another thread may have had our locks at the fork."""
        return os.getpid() != self._process

    def _text(self, text: str) -> ctypes.c_int32:
        known = self._texts.get(text)
        if known is None:
            known = self._texts[text] = ctypes.c_int32()
            self._call("Text", text.encode(), ctypes.byref(known))
        return known

    def start(self) -> None:
        """Begin to note."""
        self._attach()
        self._follow_writes()
        self._call("Start")

    def _follow_writes(self) -> None:
        """Notice what writes memory without an operator: a graph that was captured, and a storage that is resized,
        which has other memory then (FSDP gives back what it has gathered, and gathers it again)."""
        graphs = getattr(getattr(self._torch, "npu", None), "NPUGraph", None)
        if graphs is not None:
            self._patches.wrap(graphs, "replay", lambda replay: self._tell_after(replay, lambda graph: None))
        storages = self._torch.UntypedStorage
        self._patches.wrap(storages, "resize_", lambda resize: self._tell_after(resize, lambda one: one._cdata))

    def _tell_after(self, method: Any, written: Callable[[Any], int | None]) -> Any:
        def call_and_tell(one: Any, *args: Any) -> Any:
            try:
                return method(one, *args)
            finally:
                if not self._forked():
                    self._call("Written", ctypes.c_void_p(written(one)))

        return call_and_tell

    def _attach(self) -> None:
        """Let the virtual NPU's streams measure, where this process has them."""
        if not hasattr(self._torch, "npu") or vnpu.launches() is None:
            return
        with contextlib.suppress(OSError):  # not built beside: reductions do it
            of_npu = ctypes.PyDLL(str(vnpu.library_directory() / OF_NPU))
            of_npu.torchportRecordNpuReader.restype = ctypes.c_void_p
            if reader := of_npu.torchportRecordNpuReader():
                self._call("Reader", ctypes.c_void_p(reader))
                self.checks_inputs = self._wanted.level == layout.TENSOR and not self._reductions

    def stop(self) -> None:
        """End; what was noted since the last step stays for `end_step`."""
        self._call("Stop")
        self._patches.undo()

    def close(self) -> None:
        """No step comes any more."""
        self._call("Close")

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """What is called in the block is ours."""
        self._library.torchportRecordQuiet(self._recorder, 1)
        try:
            yield
        finally:
            self._library.torchportRecordQuiet(self._recorder, 0)

    @property
    def on(self) -> bool:
        """Whether this step counts."""
        return self._on

    @on.setter
    def on(self, on: bool) -> None:
        self._on = on
        self._call("On", int(on))

    def optimizing(self, on: bool) -> None:
        """Whether an optimizer steps."""
        self._call("Optimizing", int(on))

    def name_tensors(self, named: Iterable[tuple[str, Any]]) -> None:
        """What the user's modules call their parameters and buffers."""
        if self._forked():
            return
        for name, tensor in named:
            self._call("Name", ctypes.c_void_p(tensor._cdata), self._text(name))

    @property
    def calls(self) -> int:
        """How many calls this step has so far."""
        return int(self._library.torchportRecordCalls(self._recorder))

    def end_step(self, name: str, keep: bool = True) -> None:
        """All since the last step belongs to the step `name`; thrown away without `keep`."""
        self._call("EndStep", name.encode(), int(keep))

    def enter_module(self, name: str, module: Any, inputs: Any) -> None:
        """A module runs from now on (`scopes.Listener`)."""
        known = self._scopes.get(name)
        if known is None and self._forked():
            return
        if known is None:
            known = self._scopes[name] = self._text(name), int(self._wanted.is_module_wanted(name))
        self._library.torchportRecordEnter(self._recorder, *known)

    def leave_module(self, name: str, module: Any, inputs: Any, outputs: Any) -> None:
        """It has ended."""
        self._library.torchportRecordLeave(self._recorder)
        if self._wanted.level != layout.MODULE or not self._wanted.is_module_wanted(name) or self._forked():
            return
        if outputs is releases.RAISED:
            return
        operator = f"module::{type(module).__name__}"
        if self._counts(operator):
            given, taken = arguments.of_results(self._torch, inputs)
            results, made = arguments.of_results(self._torch, outputs)
            self._call(
                "Note",
                operator.encode(),
                self._text(name),
                *_pointers(taken),
                *_pointers(made),
                given.encode(),
                results.encode(),
            )

    def take_item(self) -> tuple[str, Any] | None:
        """What is to be written next; for the writer's thread. A block is given back when the next is taken."""
        item, data, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
        self._give_back()
        kind = self._taking.torchportRecordTake(
            self._recorder, ctypes.byref(item), ctypes.byref(data), ctypes.byref(size)
        )
        if kind == BLOCK:
            self._taken = item
            return "block", _array(data, size, numpy.dtype("u1"))
        if kind != STEP:
            return None
        try:
            arrays = {name: self._table(item, number, layout.TABLES[name]) for number, name in enumerate(TABLES)}
            strings = self._table(item, STRINGS, numpy.dtype("u1")).tobytes()
            name = self._table(item, NAME, numpy.dtype("u1")).tobytes().decode()
            lost = int(self._library.torchportRecordLost(item))
        finally:
            self._taking.torchportRecordFree(self._recorder, item, STEP)
        return ("step", (name, StepTables(arrays, strings, lost))) if name else ("drop", None)

    _taken: ctypes.c_void_p | None = None

    def _give_back(self) -> None:
        taken, self._taken = self._taken, None
        if taken is not None:
            self._taking.torchportRecordFree(self._recorder, taken, BLOCK)

    def _table(self, step: ctypes.c_void_p, number: int, dtype: Any) -> Any:
        data, size = ctypes.c_void_p(), ctypes.c_uint64()
        if self._taking.torchportRecordTable(step, number, ctypes.byref(data), ctypes.byref(size)):
            raise RuntimeError(self._library.torchportRecordError().decode())
        return _array(data, size, dtype).copy()


def _array(data: ctypes.c_void_p, size: ctypes.c_uint64, dtype: Any) -> Any:
    if not size.value:
        return numpy.empty(0, dtype)
    memory: Any = (ctypes.c_char * size.value).from_address(data.value or 0)
    return numpy.frombuffer(memory, dtype)


def _pointers(tensors: list[Any]) -> tuple[Any, int]:
    return (ctypes.c_void_p * len(tensors))(*(tensor._cdata for tensor in tensors)), len(tensors)


# The numbers of c10/core/ScalarType.h.
DTYPES = {
    "uint8": 0,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "float16": 5,
    "float32": 6,
    "float64": 7,
    "complex64": 9,
    "complex128": 10,
    "bool": 11,
    "bfloat16": 15,
    "uint16": 27,
    "uint32": 28,
    "uint64": 29,
}


def measure_array(library: ctypes.PyDLL, dtype: str, data: Any) -> tuple[list[float], int]:
    """The library's pass over a contiguous array of elements of that type: minimum, maximum, sum, sum of squares, NaNs,
    infinities, zeros; and the checksum. For tests and benchmarks. Raises ValueError for what it cannot measure."""
    numbers, checksum = (ctypes.c_double * 7)(), ctypes.c_uint64()
    count = ctypes.c_int64(data.nbytes // layout.DTYPES[dtype].size)
    if library.torchportRecordMeasure(
        DTYPES[dtype], ctypes.c_void_p(data.ctypes.data), count, numbers, ctypes.byref(checksum)
    ):
        raise ValueError(library.torchportRecordError().decode())
    return list(numbers), checksum.value

"""Operators noted in Python, by a dispatch mode: where the library cannot be built, and what it is tested against."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torchport.record import releases
from torchport.record.operators import arguments, layout, measure
from torchport.record.operators.tables import Row, Tables
from torchport.record.operators.wanted import Wanted
from torchport.record.sites import Sites

FORWARD, BACKWARD, OPTIMIZER, RECOMPUTE = range(4)
QUEUE = 16  # blocks that may wait for the disk
# They make memory that nobody has written: what is in it is chance.
EMPTY = ("aten::empty", "aten::new_empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty_strided")
UNWRITTEN = "its memory was not written before"
# They return before their results are there. For the results of functional ones an operator waits.
FUNCTIONAL, WAIT = "_c10d_functional::", "_c10d_functional::wait_tensor"
COLLECTIVES = ("c10d::", FUNCTIONAL)
ASYNCHRONOUS = "it is written by another thread"
# These write what their schemas do not say: the running statistics.
SILENT = ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm")
RUNNING = ((3, "running_mean"), (4, "running_var"))


class ModeRecorder:
    """Notes every operator below autograd while it is started; `take_item` gives what is to be written.

    Tensors of the host are measured at once, others by reductions that are read at the end of a step (or, at level
    `tensor`, copied to the host at once). What other threads of Python call without having this mode is not seen.
    """

    name = "mode"
    checks_inputs = False  # see `hook`

    def __init__(self, torch: Any, wanted: Wanted, sites: Sites) -> None:
        self._torch = torch
        self._wanted = wanted
        self._sites = sites
        self._process = os.getpid()
        self._queue: queue.Queue[tuple[str, Any] | None] = queue.Queue(QUEUE)
        self._modules: list[tuple[str, bool]] = []
        self._sequences: dict[int, tuple[str, str, str]] = {}  # of the forward call: module, function, source
        self._generation: dict[int, int] = {}
        self._pending: set[int] = set()
        self._holds: dict[int, Any] = {}  # weak: an address is not given out again while it stands here
        self._tensors: dict[Any, int] = {}
        self._names: dict[int, str] = {}
        self._operators: dict[Any, tuple[str, str, bool]] = {}
        self._threads: dict[int, int] = {}
        self._quiet = 0
        self._optimizing = False
        self._last = -1
        self.on = True  # whether this step counts
        self.seen: set[str] = set()  # operators that were called
        self._fresh()

    def _fresh(self) -> None:
        self._tables = Tables(lambda block: self._queue.put(("block", block)))
        self._reductions = measure.Reductions(self._torch)
        self._tensors.clear()
        self._holds.clear()
        self._generation.clear()
        self._pending.clear()
        self._sequences.clear()

    def start(self) -> None:
        """Begin to note."""
        self._mode = _mode(self._torch, self._dispatch)
        self._mode.__enter__()

    def stop(self) -> None:
        """End; what was noted since the last step stays for `end_step`."""
        mode, self._mode = self._mode, None
        if mode is not None:
            mode.__exit__(None, None, None)

    def close(self) -> None:
        """No step comes any more."""
        self._queue.put(None)

    def take_item(self) -> tuple[str, Any] | None:
        """What is to be written next; for the writer's thread."""
        return self._queue.get()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """What is called in the block is ours."""
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1

    def optimizing(self, on: bool) -> None:
        """Whether an optimizer steps."""
        self._optimizing = on

    def name_tensors(self, named: Iterator[tuple[str, Any]]) -> None:
        """What the user's modules call their parameters and buffers."""
        for name, tensor in named:
            self._names[tensor.data_ptr()] = name

    @property
    def calls(self) -> int:
        """How many calls this step has so far."""
        return self._tables.calls

    def end_step(self, name: str, keep: bool = True) -> None:
        """All since the last step belongs to the step `name`; thrown away without `keep`."""
        tables = self._tables
        for index, measured in self._reductions.read_measured():
            tables.fill_statistics(index, measured)
        finished = tables.finish_tables()
        self._queue.put(("step", (name, finished)) if keep else ("drop", None))
        self._fresh()

    def enter_module(self, name: str, module: Any, inputs: Any) -> None:
        """A module runs from now on (`scopes.Listener`)."""
        inside = self._modules[-1][1] if self._modules and self._wanted.filters.get("module") else False
        self._modules.append((name, inside or self._wanted.is_module_wanted(name)))

    def leave_module(self, name: str, module: Any, inputs: Any, outputs: Any) -> None:
        """It has ended."""
        if self._modules:
            self._modules.pop()
        if self._wanted.level != layout.MODULE or outputs is releases.RAISED:
            return
        operator = f"module::{type(module).__name__}"
        self.seen.add(operator)
        if self._counts() and self._wanted.is_module_wanted(name) and self._wanted.is_operator_wanted(operator):
            self.note_module_call(operator, name, inputs, outputs)

    def note_module_call(self, operator: str, module: str, inputs: Any, outputs: Any) -> None:
        """A call that is no operator: what a module was given and gave."""
        with self.quiet():
            given, taken = arguments.of_results(self._torch, inputs)
            results, made = arguments.of_results(self._torch, outputs)
            self._tables.add_call(
                operator,
                "",
                self._phase()[0],
                [self._tensor(one) for one in taken],
                [self._tensor(one) for one in made],
                arguments=given,
                results=results,
                module=module,
                source=self._sites.find_user_line(3),
                thread=self._thread(),
            )

    def _counts(self) -> bool:
        return self.on and not self._quiet and os.getpid() == self._process

    def _thread(self) -> int:
        return self._threads.setdefault(threading.get_ident(), len(self._threads))

    def _phase(self) -> tuple[int, Any]:
        node = self._torch._C._current_autograd_node()
        if self._optimizing:
            return OPTIMIZER, None
        if node is None:
            return FORWARD, None
        return (RECOMPUTE if self._modules else BACKWARD), node

    def _dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        if not self._counts() or self._wanted.level == layout.MODULE:
            return self._run(func, args, kwargs)
        call = None
        try:
            call = self._before(func, args, kwargs)
        except Exception:  # whatever a tensor of a new kind refuses: the script is to go on
            self._tables.lost += 1
        outputs = self._run(func, args, kwargs)
        if call is not None:
            try:
                made = outputs if func._schema.returns else ()
                self._after(call, made, _hidden(self._torch, func, args, kwargs))
            except Exception:
                self._tables.lost += 1
        return outputs

    def _before(self, func: Any, args: Any, kwargs: Any) -> dict[str, Any] | None:
        """What is known of a call before it is made; None for one that does not count."""
        known = self._operators.get(func)
        if known is None:
            schema = func._schema
            self.seen.add(schema.name)
            counts = not schema.name.startswith("profiler::") and self._wanted.is_operator_wanted(schema.name)
            known = schema.name, schema.overload_name, counts
            self._operators[func] = known
        operator, overload, wanted = known
        phase, node = self._phase()
        sequence = self._sequence() if node is None else _signed(node._sequence_nr())
        module, function, source = self._where(phase, sequence)
        if not (wanted and (self._modules[-1][1] if self._modules else self._wanted.is_module_wanted(module))):
            return None
        given, taken = arguments.of_call(self._torch, func._schema, args, kwargs)
        return {
            "operator": operator,
            "overload": overload,
            "phase": phase,
            "inputs": [self._tensor(one) for one in taken],
            "arguments": given,
            "module": module,
            "function": function,
            "source": source,
            "sequence": sequence,
            "node": "" if node is None else node.name(),
            "thread": self._thread(),
        }

    def _after(self, call: dict[str, Any], outputs: Any, hidden: list[Any]) -> None:
        operator = call["operator"]
        results, made = arguments.of_results(self._torch, outputs)
        later = UNWRITTEN if operator in EMPTY else ""
        if operator.startswith(COLLECTIVES) and operator != WAIT:
            later = ASYNCHRONOUS
        shown = [self._tensor(one, later) for one in made]
        written = [index for one in hidden if (index := self._tensor(one)) not in shown]
        if later == ASYNCHRONOUS:  # who reads its results sees what has come since
            for one in (*made, *hidden):
                key = self._storage(one)
                self._generation[key] = self._generation.get(key, 0) + 1
        self._tables.add_call(**call, outputs=shown, results=results, written=written)

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call it, and remember what it has written."""
        outputs = func(*args, **kwargs)
        if func._schema.name.startswith(FUNCTIONAL):
            self._follow_collective(func._schema.name, outputs)
        for one in _given(self._torch, _written(func), args, kwargs):
            key = self._storage(one)
            self._generation[key] = self._generation.get(key, 0) + 1
        return outputs

    def _follow_collective(self, operator: str, outputs: Any) -> None:
        """Keep in mind what a functional collective writes until it is waited for."""
        for one in arguments.of_results(self._torch, outputs)[1]:
            key = self._storage(one)
            if operator == WAIT:
                self._pending.discard(key)
                self._generation[key] = self._generation.get(key, 0) + 1
            elif key != -1:
                self._pending.add(key)

    def _sequence(self) -> int:
        now = int(self._torch._C._autograd._get_sequence_nr())
        made, self._last = now != self._last, now
        return now - 1 if made and self._torch.is_grad_enabled() else -1

    def _where(self, phase: int, sequence: int) -> tuple[str, str, str]:
        if phase == BACKWARD:
            return self._sequences.get(sequence, ("", "", ""))
        found = (self._modules[-1][0] if self._modules else "", *self._sites.find_user_function(6))
        if sequence >= 0:
            self._sequences[sequence] = found
        return found

    def _storage(self, tensor: Any) -> int:
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # sparse, or a subclass without one
            return -1
        key = int(storage._cdata)
        if key not in self._holds:
            self._holds[key] = self._torch.multiprocessing.reductions.StorageWeakRef(storage)
        return key

    def _tensor(self, tensor: Any, reason: str = "") -> int:
        torch = self._torch
        storage = self._storage(tensor)
        if storage == -1 or tensor.is_meta or tensor.layout != torch.strided:
            return self._tables.add_tensor(self._row(tensor, storage, "it has no elements that could be read"), None)
        key = (
            storage,
            self._generation.get(storage, 0),
            _version(tensor),
            tensor.storage_offset(),
            tensor.shape,
            tensor.stride(),
            tensor.dtype,
            tensor.requires_grad,
        )
        index = self._tensors.get(key)
        if index is None:
            reason = reason or (ASYNCHRONOUS if storage in self._pending else "")
            row = self._row(tensor, storage, reason)
            row.version = key[1] + key[2]
            index = self._tables.add_tensor(row, None) if reason else self._measured(tensor, row)
            self._tensors[key] = index
        return index

    def _row(self, tensor: Any, storage: int, reason: str) -> Row:
        dense = storage != -1 and tensor.layout == self._torch.strided
        return Row(
            dims=[*tensor.shape, *(tensor.stride() if dense else [0] * tensor.dim())],
            dtype=str(tensor.dtype).removeprefix("torch."),
            device=str(tensor.device),
            storage=storage,
            offset=tensor.storage_offset() if dense else 0,
            elements=tensor.numel(),
            requires_grad=tensor.requires_grad,
            name=self._names.get(tensor.data_ptr(), "") if dense else "",
            reason=reason,
        )

    def _measured(self, tensor: Any, row: Row) -> int:
        level = self._wanted.level
        if tensor.device.type != "cpu" and level != layout.TENSOR:
            row.reason = "no reduction measures this dtype"
            index = self._tables.add_tensor(row, None)
            if self._reductions.measure_tensor(index, tensor):
                row.reason = ""
            return index
        plain = measure.narrow_expanded_dims(tensor.detach()).cpu()
        if plain.is_conj() or plain.is_neg():
            plain = plain.resolve_conj().resolve_neg()
        data, row_major = measure.flat_bytes(self._torch, plain)
        measured = measure.of_bytes(row.dtype, data, measure.count_repeats(tensor))
        if measured is None:
            row.reason = f"nothing here measures {row.dtype}"
        return self._tables.add_tensor(row, measured, data if level == layout.TENSOR else None, row_major)


def _signed(sequence: int) -> int:
    """AccumulateGrad, which no forward call made, has the largest number of 64 bits."""
    return int(sequence) if sequence < 1 << 63 else -1


def _version(tensor: Any) -> int:
    return -1 if tensor.is_inference() else int(tensor._version)


def _written(func: Any) -> list[tuple[int, str]]:
    """Places and names of the arguments that an operator writes."""
    written = [
        (place, argument.name)
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return written or ([*RUNNING] if func._schema.name.endswith(SILENT) else [])


def _hidden(torch: Any, func: Any, args: Any, kwargs: Any) -> list[Any]:
    """The tensors that a call writes and gives back in no result; none of a collective's, which come later."""
    schema = func._schema
    if schema.name.startswith("c10d::"):
        return []
    shown = [set(one.alias_info.before_set) for one in schema.returns if one.alias_info is not None]
    places = []
    for place, name in _written(func):
        alias = schema.arguments[place].alias_info
        if alias is None or set(alias.before_set) not in shown:
            places.append((place, name))
    return _given(torch, places, args, kwargs)


def _given(torch: Any, places: list[tuple[int, str]], args: Any, kwargs: Any) -> list[Any]:
    """The tensors among these arguments."""
    found = []
    for place, name in places:
        value = args[place] if place < len(args) else kwargs.get(name)
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(one, torch.Tensor):
                found.append(one)
    return found


def _mode(torch: Any, dispatch: Callable[[Any, Any, Any], Any]) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return dispatch(func, args, kwargs or {})

    return Mode()

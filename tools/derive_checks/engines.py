"""Which unit of a 910B runs an operator, from the kernels that its first phase adds.

A first phase calls functions of the layer below (l0op), each of which adds a kernel for the AI Core or, for some dtypes
or always, one for the device's CPU (ADD_TO_LAUNCHER_LIST_AICORE, ..._AICPU). What runs on the AI Core runs on the cube
units where its folder is one of products, convolutions and attention or its kernel asks for them, else on the vector
cores. Functions that only bring an operand into another dtype, layout or shape do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from conditions import NOTHING
from definitions import definitions
from evaluation import Evaluated
from expressions import Tree
from interpreter import Walk
from sources import Sources, Unit
from states import State, Value
from syntax import Function
from table import definition_of
from tokens import Macro
from words import BIT, NAMED_DTYPES, words

CHIP = "910B"
# The dtypes that torch has.
TORCH = sum(BIT[f"DT_{name}"] for name in ("BOOL", "FLOAT", "FLOAT16", "BF16", "DOUBLE")) | sum(
    BIT[name] for name in BIT if re.fullmatch(r"DT_U?INT(8|16|32|64)|DT_COMPLEX(32|64|128)", name)
)
PREPARE = {
    "Contiguous",
    "Cast",
    "CastOnlyForConvBackward",
    "ViewCopy",
    "Reshape",
    "Transpose",
    "ReFormat",
    "BroadcastTo",
    "UnsqueezeNd",
    "SqueezeNd",
    "TransData",
    "TransDataSpecial",
    "PickViewAsContiguous",
    "ReinterpretCast",
    "Copy",
}
CUBE_FOLDERS = re.compile(
    r"ops-nn/(matmul|conv)/|ops-transformer/(attention/(?!\w*(rope|scatter|cache|update|rotary|masked_softmax))"
    r"|gmm/|ffn/|mc2/)"
)
CUBE_KERNELS = re.compile(r"REGIST_MATMUL_OBJ|KERNEL_TYPE_MIX_AIC|KERNEL_TYPE_AIC_ONLY")
LAUNCH = re.compile(r"ADD_TO_LAUNCHER_LIST_(AICORE|AICPU)\b")


class KernelSources(Sources):
    """The trees; a macro of the layer below ends the statement that some files leave open behind it."""

    def macros(self, path: str) -> dict[str, Macro]:
        """The macros that a file sees."""
        return {**super().macros(path), "L0_DFX": Macro(("...",), (";",))}


@dataclass
class Kernel:
    """A function of the layer below: for which dtypes of its first tensor it uses which unit."""

    path: str
    core: int = 0
    device_cpu: int = 0
    cube: bool = False


class Launches(Walk):
    """The walk of a function of the layer below, which notes where it adds kernels."""

    def __init__(self, unit: Unit) -> None:
        super().__init__(unit, CHIP)
        self.found: list[tuple[str, State]] = []

    def call(self, tree: Tree, state: State) -> Evaluated:
        """A call; those that add a kernel succeed."""
        function = tree[1]
        if function[0] == "name" and (launch := LAUNCH.search(function[1])):
            self.found.append((launch[1], state))
            return [(("constant", "ACLNN_SUCCESS"), state)]
        return super().call(tree, state)


class Below(Walk):
    """The walk of a first phase, which notes what it calls of the layer below, and with what."""

    def __init__(self, unit: Unit) -> None:
        super().__init__(unit, CHIP)
        self.found: list[tuple[str, Value, State]] = []

    def below(self, name: str, arguments: Sequence[Tree], state: State) -> Evaluated:
        """A call of the layer below."""
        if name not in PREPARE:
            for values, after in self.each(arguments[:1], state):
                self.found.append((name, values[0] if values else NOTHING, after))
        return super().below(name, arguments, state)


def given(function: Function) -> list[Value]:
    """What is known of the arguments: which are tensors."""
    return [
        ("tensor", p.name, p.kind) if p.kind.startswith(("aclTensor", "aclScalar")) else NOTHING
        for p in function.parameters
    ]


@dataclass
class Layer:
    """The functions of the layer below."""

    sources: Sources
    kernels: dict[str, Kernel | None] = field(default_factory=dict)

    @cached_property
    def files(self) -> dict[str, list[str]]:
        """The sources that may define a function, by its name."""
        found: dict[str, list[str]] = {}
        for path in self.sources.paths:
            if path.endswith(".cpp") and "/arch35/" not in path:
                text = self.sources.text(path)
                if LAUNCH.search(text):
                    for name in set(re.findall(r"\b(\w+)\s*\(", text)):
                        found.setdefault(name, []).append(path)
        return found

    def kernel(self, name: str) -> Kernel | None:
        """What a function does; None for one that is not found or adds nothing."""
        if name not in self.kernels:
            self.kernels[name] = next(self.read(name), None)
        return self.kernels[name]

    def read(self, name: str) -> Iterator[Kernel]:
        for path in self.files.get(name, ()):
            unit = self.sources.unit(path)
            kernel = Kernel(path, cube=self.cube(path))
            for function in self.sources.declarations(path).functions.get(name, ()):
                walk = Launches(unit)
                walk.run(function, given(function), None, State({}, {}))
                first = next((p.name for p in function.parameters if p.kind.startswith("aclTensor")), None)
                for unit_name, state in walk.found:
                    dtypes = state.fact(first).dtypes.possible & NAMED_DTYPES if first else NAMED_DTYPES
                    if unit_name == "AICORE":
                        kernel.core |= dtypes
                    else:
                        kernel.device_cpu |= dtypes
            if kernel.core or kernel.device_cpu:
                yield kernel

    def cube(self, path: str) -> bool:
        """Whether the kernel that belongs to a file computes on the cube units."""
        if CUBE_FOLDERS.search(path):
            return True
        folder = self.sources.folder / "/".join(path.split("/")[:3]) / "op_kernel"
        return any(
            CUBE_KERNELS.search(file.read_text(encoding="utf-8", errors="replace"))
            for file in folder.glob("*.cpp")
            if not file.name.endswith("_apt.cpp")  # of later chips
        )


def engines(sources: Sources, signatures: dict[str, Any], only: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """A row per operator: engine, the first tensor's dtypes that go to the device's CPU, kernels and source."""
    layer = Layer(sources)
    phases = {name: path for path, names in sources.first_phases() for name in names}
    defined = dict(definitions(sources))
    rows = {}
    for name in sorted(only or signatures):
        if name in phases:
            rows[name] = of_phase(layer, name, phases[name])
        elif definition := definition_of(name, defined):
            engine = "cube" if layer.cube(definition.path) else "vector"
            rows[name] = {"engine": engine, "source": definition.path}
        else:
            rows[name] = {"engine": "unknown", "source": None}
    return rows


def of_phase(layer: Layer, name: str, path: str) -> dict[str, Any]:
    """The row of an operator whose first phase is written out."""
    unit = layer.sources.unit(path)
    function = unit.functions(name + "GetWorkspaceSize")[0]
    walk = Below(unit)
    walk.run(function, given(function), None, State({}, {}))
    first = next((p.name for p in function.parameters if p.kind.startswith("aclTensor")), "")
    core = device_cpu = 0
    kernels: dict[str, Kernel] = {}
    for called, value, state in walk.found:
        kernel = layer.kernel(called)
        if kernel is None:
            continue
        kernels[called] = kernel
        possible = state.fact(first).dtypes.possible & TORCH if first else TORCH
        cast = BIT.get(str(value[3][1]), 0) if len(value) > 3 and value[3][0] == "constant" else 0
        on_cpu = kernel.device_cpu & ~kernel.core
        if cast:
            device_cpu |= possible if on_cpu & cast else 0
            core |= 0 if on_cpu & cast else possible
        else:
            device_cpu |= possible & on_cpu
            core |= possible & ~on_cpu
    row: dict[str, Any] = {"engine": "unknown", "source": path}
    if kernels:
        row["kernels"] = " ".join(sorted(kernels))
        row["engine"] = "vector" if any(kernel.core for kernel in kernels.values()) else "device_cpu"
    if CUBE_FOLDERS.search(path) or any(kernel.cube for kernel in kernels.values()):
        row["engine"] = "cube"
    # Where one of several kernels may run on the core, it may be that which fails.
    if row["engine"] == "vector" and device_cpu & ~core:
        row["device_cpu"] = words(device_cpu & ~core)
    return row

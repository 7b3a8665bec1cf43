"""Environment variables that are wrong, missing, or do not do what they seem to."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from torchport import vnpu
from torchport.doctor.check import Check, Machine
from torchport.knowledge.environment import VISIBLE, load_variables, order_of
from torchport.vnpu.variables import VARIABLES

# Whole numbers that the reader of the variable takes, from and to.
_NUMBERS: Mapping[str, tuple[int, int, str]] = {
    "HCCL_CONNECT_TIMEOUT": (120, 7200, "seconds"),
    "HCCL_EXEC_TIMEOUT": (0, 2147483647, "seconds, 0 for no limit"),
    "HCCL_BUFFSIZE": (1, 1 << 20, "MiB"),
    "HCCL_WHITELIST_DISABLE": (0, 1, "off or on"),
    "HCCL_IF_BASE_PORT": (1024, 65520, "a port"),
    "TASK_QUEUE_ENABLE": (0, 2, "the task queue's mode"),
    "ASCEND_LAUNCH_BLOCKING": (0, 1, "off or on"),
    "ASCEND_GLOBAL_LOG_LEVEL": (0, 4, "debug to none"),
    "ASCEND_SLOG_PRINT_TO_STDOUT": (0, 1, "off or on"),
    "ASCEND_GLOBAL_EVENT_ENABLE": (0, 1, "off or on"),
    "COMBINED_ENABLE": (0, 1, "off or on"),
    "PTCOPY_ENABLE": (0, 1, "off or on"),
    "ACL_DUMP_DATA": (0, 1, "off or on"),
    "DUMP_GE_GRAPH": (1, 3, "all, without weights, or nodes alone"),
    "DUMP_GRAPH_LEVEL": (1, 4, "which graphs"),
    "OMP_NUM_THREADS": (1, 4096, "threads"),
    "MASTER_PORT": (1, 65535, "a port"),
}
_ALLOCATOR = "PYTORCH_NPU_ALLOC_CONF"
# Left from looking for a mistake: right results, at a fraction of the speed; of what values, and why.
_SLOW = {
    "ASCEND_LAUNCH_BLOCKING": (("1",), "makes every operator wait: for looking for a mistake only"),
    "ASCEND_GLOBAL_LOG_LEVEL": (("0", "1"), "writes every call of CANN into its log"),
    "ACL_DUMP_DATA": (("1",), "writes what operators read and give"),
    "DUMP_GE_GRAPH": (("1", "2", "3"), "writes each graph that is compiled"),
}
_FOLDERS = ("ASCEND_AICPU_PATH", "ASCEND_CUSTOM_OPP_PATH")
_OURS = ("VNPU_", "TORCHPORT_")


def list_checks(machine: Machine) -> Iterator[Check]:
    """One failed check per variable that is wrong; one that passes where none is."""
    subjects = (_numbers, _allocator, _of_cuda, _cann, _folders, _unknown, _slow)
    failed = [check for subject in subjects for check in subject(machine)]
    yield from failed or [Check("environment", True, "no variable is wrong")]


def _numbers(machine: Machine) -> Iterator[Check]:
    for name, (least, most, what) in _NUMBERS.items():
        value = machine.environ.get(name, "")
        if name == "HCCL_CONNECT_TIMEOUT" and machine.kind is vnpu.Kind.VNPU:
            least = 1  # CANN takes no less than 120
        if value and not (value.isdecimal() and least <= int(value) <= most):
            yield Check(name, False, f"{name}={value} is no number from {least} to {most} ({what})", f"unset {name}")


def _allocator(machine: Machine) -> Iterator[Check]:
    value = machine.environ.get(_ALLOCATOR, "")
    given = dict(pair.partition(":")[::2] for pair in value.split(",") if pair)
    together = {"max_split_size_mb", "garbage_collection_threshold"} & set(given)
    if given.get("expandable_segments", "").lower() == "true" and together:
        detail = f"expandable_segments:True does not go with {' and '.join(sorted(together))}: torch_npu refuses both"
        yield Check(_ALLOCATOR, False, detail, f"export {_ALLOCATOR}=expandable_segments:True")


def _of_cuda(machine: Machine) -> Iterator[Check]:
    """What CUDA or NCCL is told and the NPU is not; `torchport run` puts it over, plain `python` does not."""
    for variable in load_variables().values():
        value = machine.environ.get(variable.name, "")
        if not value or variable.npu in ("", variable.name) or variable.npu in machine.environ:
            continue
        right = variable.convert_value(value)
        if variable.npu == VISIBLE and order_of(value) is not None:
            right = ",".join(map(str, sorted({int(number) for number in value.split(",")})))
        note = f" ({variable.note})" if variable.note else ""
        yield Check(
            variable.npu,
            False,
            f"{variable.name} is set; on the NPU another variable is read{note}",
            f'unset {variable.name}; export {variable.npu}="{value if right is None else right}"',
            advice=True,
        )


def _cann(machine: Machine) -> Iterator[Check]:
    """What set_env.sh sets together; half of it stops torch_npu or breaks operators."""
    if machine.kind is not vnpu.Kind.CANN:
        return
    home = machine.environ.get("ASCEND_HOME_PATH", "")
    source = f"source {home or '/usr/local/Ascend/ascend-toolkit'}/set_env.sh"
    for name in ("ASCEND_HOME_PATH", "ASCEND_OPP_PATH"):
        value = machine.environ.get(name, "")
        if not value:
            yield Check(name, False, f"{name} is not set: the environment of CANN is missing or half there", source)
        elif not machine.resolve_path(value).is_dir() and name == "ASCEND_OPP_PATH":
            yield Check(name, False, f"{name}={value} is no folder: there are no operators", source)


def _unknown(machine: Machine) -> Iterator[Check]:
    """Variables of ours that nothing reads: a letter is wrong."""
    known = [variable.name for variable in VARIABLES]
    inner = ("TORCHPORT_RECORD", "TORCHPORT_KILLS", "TORCHPORT_EXITS", "TORCHPORT_GUIDE")
    for name in sorted(machine.environ):
        if name.startswith(_OURS) and name not in known and not name.startswith(inner):
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
            if close:
                value = machine.environ[name]
                yield Check(name, False, f"nothing reads {name}", f"unset {name}; export {close[0]}={value}")


def _slow(machine: Machine) -> Iterator[Check]:
    for name, (values, why) in _SLOW.items():
        if machine.environ.get(name) in values:
            fix = "export ASCEND_GLOBAL_LOG_LEVEL=3" if name == "ASCEND_GLOBAL_LOG_LEVEL" else f"unset {name}"
            yield Check(name, False, f"{name}={machine.environ[name]} {why}", fix, advice=True)


def _folders(machine: Machine) -> Iterator[Check]:
    for name in _FOLDERS:
        for folder in filter(None, machine.environ.get(name, "").split(":")):
            if not machine.resolve_path(folder).is_dir():
                yield Check(name, False, f"{name} names {folder}, which is no folder", f"unset {name}")
                break

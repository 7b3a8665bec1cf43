"""No exception leaves an exported C function: each body is guarded, or stands here with the reason why not."""

from __future__ import annotations

import re
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "csrc"
# A definition at the start of a line whose name is of CANN's libraries or of an operator macro, up to its body.
DEFINITION = re.compile(
    r"^(?:#define \w+\(\w+\) )?(?:[\w\"\[\]:*() ]+[ *])?"
    r"((?:acl|rt|drv|Hccl|Msprof|vnpu|NAME)[\w#]*|name)\(([^;{}]*)\)\s*(?:noexcept\s*)?\{(.*?)\n(?=\S|$)",
    re.MULTILINE | re.DOTALL,
)
GUARD = re.compile(
    r"\s*(?:using namespace [\w:]+;\s*)?"
    r"(?:const CallScope call\(__func__\);\s*)?"  # notes the time of a call; noexcept
    r"(?:return )?(?:static_cast<\w+>\(\s*)?"
    r"(?:VNPU_\w+\(|vnpu::opapi::(?:launch|answer_gap)\(|set(?:_attribute)?\(__func__|set_list<[\w:]+>\(__func__)"
)
UNGUARDED = {
    # They answer what went wrong and must not change it; fixed memory only.
    "aclGetRecentErrMsg",
    "aclrtGetLastError",
    "aclrtPeekAtLastError",
    "HcclGetErrorString",
    # It reads two counters.
    "vnpuDeviceLaunches",
    # Destructors of plain data, which the language lets throw nothing.
    "aclDestroyTensor",
    "aclDestroyScalar",
    "aclDestroyIntArray",
    "aclDestroyBoolArray",
    "aclDestroyFloatArray",
    "aclDestroyTensorList",
    "aclDestroyScalarList",
    "aclDestroyTensorDesc",
    "aclopDestroyAttr",
    "aclprofDestroyStepInfo",
    # One field, one counter, one clock, one constant: no code to answer with, nothing that can fail.
    "aclGetTensorDescType",
    "aclGetTensorDescFormat",
    "aclGetTensorDescName",
    "vnpuLaunches",
    "vnpuUnknownReads",
    "vnpuTimelineFlush",
    "vnpuAborts",
    "vnpuFailUnlessSeen",
    "vnpuOnWorkerThread",
    "MsprofSysCycleTime",
    "HcclGetCommConfigCapability",
    "aclDataTypeSize",
    "aclGetTensorDescDim",
    "aclrtGetTaskIdFromExceptionInfo",
    "aclrtGetStreamIdFromExceptionInfo",
    "aclrtGetThreadIdFromExceptionInfo",
    "aclrtGetDeviceIdFromExceptionInfo",
    "aclrtGetErrorCodeFromExceptionInfo",
    # Nothing but guarded ones.
    "aclGetTensorDescSize",
    "aclprofGetSupportedFeatures",
    # The driver's interface, whose codes are not CANN's: it catches everything itself.
    "drvGetDevNum",
    # Writes a line of the caller's; its arguments are variadic, so it has no room for a guard's lambda.
    "aclAppLog",
}


def definitions(source: str) -> dict[str, str]:
    """The exported functions that a file defines, with the bodies (their first lines at least)."""
    joined = source.replace("\\\n", " ")
    return {match[1]: match[3] for match in DEFINITION.finditer(joined)}


def unguarded(source: str) -> list[str]:
    """Exported functions of a file whose bodies do not begin with a guard."""
    return [name for name, body in definitions(source).items() if not GUARD.match(body)]


def files() -> list[Path]:
    folders = ("device", "ascendcl", "hccl", "opapi")
    return sorted(path for folder in folders for path in (SOURCES / folder).rglob("*") if path.suffix in (".cpp", ".h"))


def test_an_unguarded_function_is_found() -> None:
    assert unguarded("OP_EXPORT int aclBad(const int *a,\n              int b) {\n    return *a + b;\n}\n") == [
        "aclBad"
    ]
    assert unguarded("HcclResult HcclBad(HcclComm comm) { return communicator(comm)->size(); }\n") == ["HcclBad"]
    assert unguarded("#define OP(NAME) \\\n    OP_EXPORT int NAME##Size(P) { \\\n        return 0; \\\n    }\n") == [
        "NAME##Size"
    ]
    assert unguarded("const char *aclText() {\n    log();\n    return VNPU_API() { return text(); };\n}\n") == [
        "aclText"
    ]
    assert unguarded("aclError aclTimed(int a) {\n    const CallScope call(__func__);\n    use(a);\n}\n") == [
        "aclTimed"
    ]


def test_a_guarded_function_is_not() -> None:
    guarded = (
        "aclError aclGood(int *a) {\n    return VNPU_API(a) { *a = 1; };\n}\n"
        "aclError aclTimed() {\n    const CallScope call(__func__);\n    return VNPU_API() { use(); };\n}\n"
        "HcclResult HcclGood(HcclComm comm) {\n    return static_cast<HcclResult>(\n"
        "        VNPU_COLLECTIVE_API(comm) { use(comm); });\n}\n"
    )
    assert set(definitions(guarded)) == {"aclGood", "aclTimed", "HcclGood"}
    assert unguarded(guarded) == []


def test_every_exported_function_is_guarded() -> None:
    found = {name for path in files() for name in unguarded(path.read_text(encoding="utf-8"))}
    assert found - UNGUARDED == set()
    assert UNGUARDED - found == set(), "these are guarded or gone: take them out of the list"


def test_the_definitions_are_seen() -> None:
    """The reading above follows clang-format's style; were it changed, it would see nothing and find nothing."""
    names = {name for path in files() for name in definitions(path.read_text(encoding="utf-8"))}
    assert len(names) > 200
    assert {"aclrtMalloc", "aclrtMemcpyAsync", "HcclAllReduce", "aclCreateTensor", "NAME##GetWorkspaceSize"} <= names

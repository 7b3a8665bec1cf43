"""Extensions with CUDA sources: what is built, from what, how much work it is, and where Python uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchport.convert import convert_source, preview_tree
from torchport.findings import Finding, Severity
from torchport.rules.files.kernels import Effort, judge_effort


def found(text: str, code: str = "TP402", name: str = "a.py") -> list[Finding]:
    return [one for one in convert_source(text.encode(), name).findings if one.code == code]


@pytest.mark.parametrize(
    ("call", "severity", "says"),
    [
        ("load('m', ['m.cpp', 'm_kernel.cu'])", Severity.ERROR, "1 CUDA sources of 2"),
        ("load(name='m', sources=['m.cpp'])", Severity.INFO, "builds as before"),
        ("load('m', sources)", Severity.WARNING, "named elsewhere"),
        ("load_inline('m', cpp_sources='int f();')", Severity.INFO, "builds as before"),
        ("load_inline('m', '', '__global__ void add(float* x) {}')", Severity.ERROR, "the kernels add"),
        ("CUDAExtension('m', ['a.cpp', 'b.cu', 'c.cu'])", Severity.ERROR, "2 CUDA sources of 3"),
    ],
)
def test_what_is_built(call: str, severity: Severity, says: str) -> None:
    (finding,) = found(f"from torch.utils.cpp_extension import load, load_inline, CUDAExtension\nm = {call}\n")
    assert finding.severity is severity
    assert says in finding.message


def test_call_sites_of_what_is_built_in_place() -> None:
    (finding,) = found(
        "from torch.utils.cpp_extension import load\nm = load('m', ['m.cu'])\nm.forward(1)\nn.forward(2)\nm.back(3)\n"
    )
    assert "It is called: m.forward in line 3; m.back in line 5. Write" in finding.hint


def test_a_function_of_another_name_is_not_meant() -> None:
    assert found("# cpp_extension\nfrom json import load\nload('m', ['m.cu'])\n") == []


def test_call_sites_of_an_extension(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(
        "from torch.utils.cpp_extension import CUDAExtension\nCUDAExtension(name='pkg._ext', sources=['a.cu'])\n"
    )
    (tmp_path / "ops.py").write_text("from pkg import _ext\n_ext.forward(1)\n\n_ext.backward(2)\n")
    (tmp_path / "other.py").write_text("import extra\nextra.forward(1)\n")
    findings = preview_tree(tmp_path).findings
    used = [one for one in findings if one.code == "TP402" and one.location and one.location.path == "ops.py"]
    assert [one.severity for one in used] == [Severity.ERROR]
    assert "_ext.forward in line 2; _ext.backward in line 4" in used[0].hint
    assert not [one for one in findings if one.location and one.location.path == "other.py"]


@pytest.mark.parametrize(
    ("body", "effort"),
    [
        ("int i = threadIdx.x; y[i] = 2 * x[i];", Effort.SMALL),
        ("__shared__ float s[32]; __syncthreads();", Effort.MEDIUM),
        ("atomicAdd(y, x[i]);", Effort.MEDIUM),
        ('asm volatile("mma.sync");', Effort.LARGE),
        ("cub::BlockReduce<float, 32> r;", Effort.LARGE),
        ("reduce::block<reduce::ROpType::Add>(tb, warp, s);", Effort.MEDIUM),
        ("x = warpReduceSum(x);", Effort.MEDIUM),
    ],
)
def test_effort(body: str, effort: Effort) -> None:
    assert judge_effort(body)[0] is effort
    text = f"__global__ void k(float* x) {{\n  {body}\n}}\n__global__ void l(int* x) {{}}\n"
    first, second = found(text, "TP605", "k.cu")
    assert f"3 lines, effort {effort.name.lower()}" in first.message
    assert "1 lines, effort small" in second.message


@pytest.mark.parametrize(
    "head",
    [
        "__global__ void k(",
        "__global__ void\nk(",
        "static __global__\nvoid k (",
        "__global__ void\n__launch_bounds__(256)\nk(",
        "__global__ __launch_bounds__(256, 2) void k(",
        "template <typename T>\n__global__ static inline void k(",
    ],
)
def test_heads_of_kernels(head: str) -> None:
    (kernel,) = found(f"{head}float* x) {{\n  __shared__ float s[1];\n}}\n", "TP605", "k.cu")
    assert kernel.message.startswith("the CUDA kernel k has") and "effort medium" in kernel.message
    assert kernel.evidence["source"] == "k"


def test_native_sources() -> None:
    text = (
        "#include <c10/cuda/CUDAStream.h>\nvoid f() { cudaMalloc(&p, 8); }  // cudaFree(p)\n"
        'TORCH_LIBRARY(ours, m) {\n  m.def("roll(Tensor x) -> Tensor");\n  m.impl("roll", &roll);\n  m.def("tilt", &tilt);\n}\n'
    )
    calls, operator = found(text, "TP606", "a.cc")
    assert calls.message == "C++ code calls CUDA in 2 lines" and calls.severity is Severity.WARNING
    assert operator.message == "C++ code gives Python 2 operators: roll, tilt"
    assert operator.evidence["source"] == "roll, tilt" and operator.severity is Severity.INFO
    assert found("void add(float* a);\n", "TP606", "a.cc") == []


@pytest.mark.parametrize(
    ("call", "count"),
    [
        ("subprocess.run(['nvidia-smi', '-L'])", 1),
        ("subprocess.check_output('nvidia-smi --query-gpu=name', shell=True)", 1),
        ("os.popen(f'nvidia-smi -i {index}')", 1),
        ("os.system('nvcc -o ' + name)", 1),
        ("shutil.which('nvcc')", 1),
        ("subprocess.run(['echo', 'nvidia-smi'])", 0),
        ("log('nvidia-smi')", 0),
        ("subprocess.run(['my-nvcc'])", 0),
    ],
)
def test_programs_that_python_starts(call: str, count: int) -> None:
    findings = found(f"import os, shutil, subprocess\n{call}\n", "TP170")
    assert len(findings) == count
    assert all(finding.hint for finding in findings)


def test_effort_rests_on_the_functions_that_a_kernel_calls() -> None:
    text = """
__device__ int find(const int* s, int n) {
  while (s[n] != n) n = s[n];
  return n;
}
__device__ void union_(int* s, int a, int b) {
  int old = atomicMin(s + find(s, b), a);
}
__global__ void merge(int* s) {
  union_(s, 1, 2);
}
__global__ void compress(int* s) {
  s[0] = find(s, 0);
}
__global__ void count(const int* s, int* n) {
  n[threadIdx.x] = s[threadIdx.x];
}
"""
    said = [one.message.partition(" has to be replaced ")[2] for one in found(text, "TP605", "k.cu")]
    assert said == [
        "(3 lines, effort large: union-find, atomics, links that are followed)",
        "(3 lines, effort medium: links that are followed)",
        "(3 lines, effort small)",
    ]

"""A blocker is what a path from an entry point reaches without another way; the rest is optional, and grouped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchport.analyze import analyze_tree
from torchport.cli import main
from torchport.findings import Result, Severity
from torchport.results.conversion import Obstacle

KERNEL = "__global__ void k(float* x) {\n  x[threadIdx.x] = 0;\n}\n"
KERNELS = KERNEL + KERNEL.replace(" k(", " l(")
JIT = "from torch.utils.cpp_extension import load\ndef _init():\n    return load(name='plug', sources=['plug.cu'])\n"
SETUP = (
    "from setuptools import setup\nfrom torch.utils.cpp_extension import CUDAExtension\n"
    "setup(name='p', ext_modules=[CUDAExtension('p.plug', ['csrc/plug.cu'])])\n"
)
MAIN = "if __name__ == '__main__':\n    main()\n"


def weigh(folder: Path, files: dict[str, str]) -> Result:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return analyze_tree(folder)


def only(result: Result) -> Obstacle:
    (found,) = result.data["obstacles"]
    assert isinstance(found, Obstacle)
    return found


def jit(caller: str) -> dict[str, str]:
    return {
        "ops.py": f"{JIT}\n{caller}",
        "plug.cu": KERNELS,
        "train.py": f"from ops import op\ndef main(): op(1)\n{MAIN}",
    }


def built(use: str, train: str = "import p.ops\ndef main(): p.ops.op(1)\n") -> dict[str, str]:
    return {
        "setup.py": SETUP,
        "csrc/plug.cu": KERNELS,
        "p/__init__.py": "",
        "p/ops.py": use,
        "train.py": f"{train}{MAIN}",
    }


OPTIONAL = {
    "a condition on CUDA and on the plugin": jit(
        "def op(x):\n    if x.device.type == 'cuda' and _init():\n        return _init().f(x)\n    return x + 1\n"
    ),
    "an else": jit(
        "def op(x, use_fused=True):\n    if use_fused:\n        return _init().f(x)\n    else:\n        return x\n"
    ),
    "an early return": jit("def op(x):\n    if x.device.type != 'cuda':\n        return x\n    return _init().f(x)\n"),
    "a conditional expression": jit("def op(x):\n    return _init().f(x) if x.is_cuda else x + 1\n"),
    "a try in the caller": jit(
        "def op(x):\n    try:\n        return _init().f(x)\n    except Exception:\n        return x\n"
    ),
    "an import that may fail": built(
        "try:\n    from p import plug\nexcept ImportError:\n    plug = None\n"
        "def op(x):\n    if plug is not None:\n        return plug.f(x)\n    return x\n"
    ),
    "a module that may be missing": built(
        "from p import plug\ndef op(x): return plug.f(x)\n",
        "try:\n    from p.ops import op\nexcept ImportError:\n    op = None\n"
        "def main(fused=False):\n    if not fused:\n        x = 1\n    else:\n        op(1)\n",
    ),
    "a substitute": built(
        "try:\n    from p import plug\nexcept ImportError:\n    from p import plain as plug\n"
        "def op(x): return plug.f(x)\n"
    ),
}
BLOCKS = {
    "a call": jit("def op(x):\n    return _init().f(x)\n"),
    "a condition on something else": jit("def op(x):\n    if x.training:\n        return _init().f(x)\n    return x\n"),
    "the branch for the CPU is the plugin": jit(
        "def op(x):\n    if x.is_cuda:\n        return x\n    else:\n        return _init().f(x)\n"
    ),
    "a class that is made": jit(
        "class Op:\n    def forward(self, x):\n        return _init().f(x)\ndef op(x): return Op()(x)\n"
    ),
    "an import": built("from p import plug\ndef op(x): return plug.f(x)\n"),
    "a try that raises": built(
        "try:\n    from p import plug\nexcept ImportError as error:\n    raise RuntimeError('build it') from error\n"
        "def op(x): return plug.f(x)\n"
    ),
    "an import that may fail and a call without another way": built(
        "try:\n    from p import plug\nexcept ImportError:\n    plug = None\ndef op(x): return plug.f(x)\n"
    ),
}


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_plugin_with_another_way_is_optional(name: str, tmp_path: Path) -> None:
    result = weigh(tmp_path, OPTIONAL[name])
    found = only(result)
    assert (found.name, found.state) == ("plug", "optional")
    assert "goes on without it, lost is" in found.why
    assert found.work == "2 kernels, 6 lines: 2 small"
    assert result.data["summary"].blockers == 0
    assert not [one for one in result.findings if one.severity is Severity.ERROR]


@pytest.mark.parametrize("name", BLOCKS)
def test_a_plugin_without_another_way_blocks(name: str, tmp_path: Path) -> None:
    result = weigh(tmp_path, BLOCKS[name])
    found = only(result)
    assert (found.name, found.state) == ("plug", "blocks")
    assert found.why.endswith("needs it, without another way")
    assert found.place.rpartition(":")[0] in ("ops.py", "p/ops.py")
    assert result.data["summary"].blockers == 1  # one, not a row a kernel
    spoken = [one for one in result.findings if one.severity is Severity.ERROR and "part_of" not in one.evidence]
    assert len(spoken) == 1


@pytest.mark.parametrize(
    "path", ["tests/test_op.py", "benchmarks/run.py", "examples/a.py", "bench_op.py", ".github/x.py"]
)
def test_apart_from_the_training_path(path: str, tmp_path: Path) -> None:
    files = {"train.py": f"def main(): pass\n{MAIN}", "plug.cu": KERNEL}
    files[path] = f"from torch.utils.cpp_extension import load\nm = load(name='plug', sources=['plug.cu'])\n{MAIN}"
    assert only(weigh(tmp_path, files)).state == "apart"


def test_examples_are_the_training_path_where_nothing_else_is(tmp_path: Path) -> None:
    text = "from torch.utils.cpp_extension import load\nm = load(name='plug', sources=['plug.cu'])\n"
    assert only(weigh(tmp_path, {"examples/a.py": text, "examples/plug.cu": KERNEL})).state == "blocks"


def test_what_installs_by_force_is_said(tmp_path: Path) -> None:
    result = weigh(tmp_path, OPTIONAL["an import that may fail"])
    assert "setup.py:3 builds it unconditionally: leave it out of ext_modules" in only(result).why
    assert result.data["summary"].decisions == 1
    files = dict(OPTIONAL["an import that may fail"])
    files["setup.py"] = SETUP.replace("setup(", "import os\nif os.getenv('BUILD_OPS'):\n    setup(")
    (tmp_path / "b").mkdir()
    assert weigh(tmp_path / "b", files).data["summary"].decisions == 0


def test_a_name_in_an_except_is_reached_after_an_error(tmp_path: Path) -> None:
    text = "import torch\ndef main():\n    try:\n        print(1)\n    except torch.cuda.CudaError:\n        pass\n"
    found = only(weigh(tmp_path, {"train.py": text + MAIN}))
    assert found.state == "optional"
    assert "train.py:5 is reached after an error alone" in found.why


def test_a_package_that_is_listed_and_not_imported(tmp_path: Path) -> None:
    files = {"requirements.txt": "bitsandbytes==0.41\n", "train.py": f"def main(): pass\n{MAIN}"}
    result = weigh(tmp_path, files)
    assert (only(result).kind, only(result).why) == ("package", "it is listed, and nothing imports it")
    assert result.data["summary"].blockers == 0 and result.data["summary"].decisions == 1
    (library,) = result.data["libraries"]
    assert (library.name, library.version, library.status) == ("bitsandbytes", "==0.41", "unsupported")
    assert library.places == ("requirements.txt:1",)


def test_a_package_that_is_imported_is_one_obstacle(tmp_path: Path) -> None:
    files = {"requirements.txt": "spconv-cu118\nspconv\n", "a.py": "import spconv\n", "train.py": f"import a\n{MAIN}"}
    result = weigh(tmp_path, files)
    assert (only(result).state, only(result).place) == ("blocks", "a.py:1")
    assert result.data["summary"].blockers == 1


def test_a_class_that_a_configuration_names_is_reached(tmp_path: Path) -> None:
    files = built("from p import plug\nclass Op:\n    pass\n", "import p\ndef main(): pass\n")
    files["p/other.py"] = "def later():\n    import p.ops\n"
    (tmp_path / "a").mkdir()
    assert only(weigh(tmp_path / "a", files)).state == "unreached"  # no script leads to this part of a package
    library = {name: text for name, text in files.items() if name != "train.py"}
    (tmp_path / "d").mkdir()
    assert only(weigh(tmp_path / "d", library)).state == "blocks"  # a function of a library that users import
    files["p/__init__.py"] = "import importlib\nimportlib.import_module('p.other')\n"
    (tmp_path / "e").mkdir()
    assert only(weigh(tmp_path / "e", files)).state == "blocks"  # the package loads its parts by their names
    files["p/__init__.py"] = "from p import other\n"
    (tmp_path / "b").mkdir()
    assert only(weigh(tmp_path / "b", files)).state == "unreached"
    files["conf/model.yaml"] = "_target_: p.ops.Op\n"
    (tmp_path / "c").mkdir()
    assert only(weigh(tmp_path / "c", files)).state == "blocks"


def test_terminal_json_and_page_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p").mkdir()
    files = {**BLOCKS["an import"], "requirements.txt": "flash-attn>=2.5\n"}
    files["train.py"] = f"import torch\n{files['train.py']}\ndef more(x): return torch.copysign(x, x)\n"
    weigh(tmp_path / "p", files)
    page = tmp_path / "page.html"
    assert main(["analyze", str(tmp_path / "p"), "--html", str(page)]) == 1
    text, html = capsys.readouterr().out, page.read_text()
    assert main(["analyze", str(tmp_path / "p"), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)["data"]
    (obstacle,) = data["obstacles"]
    (operator,) = data["operators_without_kernel"]
    assert data["summary"]["blockers"] == 1
    for said in (text, html):
        for word in (
            obstacle["why"],
            obstacle["work"],
            "plugin plug",
            "flash_attn",
            "&gt;=2.5" if said is html else ">=2.5",
        ):
            assert word in said
        assert operator["name"] == "torch.copysign" and operator["name"] in said
        assert operator["places"][0] in said
        assert f"torch_npu {data['release']['torch_npu']}, CANN {data['release']['cann']}".lower() in said.lower()
    assert "1 blocks the port" in text and "1 blocker keeps this from running" in html
    assert " h" not in [line for line in text.splitlines() if "work" in line]
    assert text.count("plug.cu") == 0  # the kernels are told by their plugin


CHOSEN = """import glob
import torch
from setuptools import setup
from torch.utils.cpp_extension import CUDA_HOME, CppExtension, CUDAExtension

def extensions():
    extension = CppExtension
    if torch.cuda.is_available() and CUDA_HOME is not None:
        extension = CUDAExtension
    else:
        OTHERWISE
    return [extension("p.plug", glob.glob("csrc/*"))]

setup(name="p", ext_modules=extensions())
"""


@pytest.mark.parametrize("otherwise", ["return []", "raise NotImplementedError('no CUDA')"])
@pytest.mark.parametrize("use", ["plug.f(x)", "plug.f(x) if x.is_cuda else x"])
def test_an_extension_that_is_chosen_and_collects_its_files(otherwise: str, use: str, tmp_path: Path) -> None:
    files = built(f"try:\n    from p import plug\nexcept ImportError:\n    plug = None\ndef op(x): return {use}\n")
    result = weigh(tmp_path, {**files, "setup.py": CHOSEN.replace("OTHERWISE", otherwise)})
    assert only(result).state == ("optional" if "if" in use else "blocks")
    assert only(result).work == "2 kernels, 6 lines: 2 small"
    assert ("unconditionally" in only(result).why) is ("raise" in otherwise and "if" in use)


@pytest.mark.parametrize(
    ("test", "state"), [("x.device.type == 'cpu'", "optional"), ("str(x.device) == 'cpu'", "blocks")]
)
def test_a_way_for_the_cpu_alone(tmp_path: Path, test: str, state: str) -> None:
    use = f"def op(x):\n    if {test}:\n        return x\n    import plug\n    return plug.f(x)\n"
    result = weigh(tmp_path, built(use))
    assert only(result).state == state  # an NPU takes the way of CUDA, but where the question is edited
    edited = any(one.fix for one in result.findings if one.code == "TP123")
    assert edited is (state == "optional")


def test_weights_of_bitsandbytes_block(tmp_path: Path) -> None:
    main = "import torch\nfrom transformers import AutoModel\nm = AutoModel.from_pretrained('x', load_in_8bit={})\n"
    found = weigh(tmp_path / "on", {"main.py": main.format(True), "requirements.txt": "bitsandbytes\n"})
    assert (only(found).name, only(found).state) == ("bitsandbytes", "blocks")
    assert not weigh(tmp_path / "off", {"main.py": main.format(False)}).data["obstacles"]


def test_kernels_of_numba_block_and_its_loops_do_not(tmp_path: Path) -> None:
    loop = "from numba import cuda, jit\n@jit\ndef f(x):\n    return x\nf(1)\n"
    assert not weigh(tmp_path / "loop", {"main.py": loop}).data["obstacles"]
    assert only(weigh(tmp_path / "kernel", {"main.py": loop.replace("@jit", "@cuda.jit")})).state == "blocks"


def test_sources_of_a_plugin_that_a_list_joins(tmp_path: Path) -> None:
    build = (
        "import os\nfrom torch.utils.cpp_extension import load\nsources = ['cuda/a.cpp', 'cuda/a_kernel.cu']\n"
        "a = load(name='a', sources=[os.path.join('lib', path) for path in sources])\n"
    )
    files = {"lib/adam.py": build, "lib/cuda/a_kernel.cu": KERNEL, "run.py": f"from lib import adam\n{MAIN}"}
    found = only(weigh(tmp_path, files))
    assert (found.name, found.state, found.kind) == ("a", "blocks", "plugin")


@pytest.mark.parametrize(("package", "blocks"), [("flash_attn", True), ("torch_scatter", True), ("nvtx", False)])
def test_packages_that_cannot_be_used_block(tmp_path: Path, package: str, blocks: bool) -> None:
    files = {"main.py": f"import torch\nimport {package}\n{package}.f(torch.ones(1))\n"}
    assert [one.state for one in weigh(tmp_path, files).data["obstacles"]] == ["blocks"] * blocks
    files = {"main.py": f"import torch\ntry:\n    import {package}\nexcept ImportError:\n    {package} = None\n"}
    assert all(one.state == "optional" for one in weigh(tmp_path, files).data["obstacles"])


@pytest.mark.parametrize(
    ("choice", "state"),
    [
        ("add_argument('--wide', action='store_true')", "optional"),
        ("add_argument('--wide', type=int, default=1)", "blocks"),
    ],
)
def test_an_option_that_is_off_unless_it_is_given(tmp_path: Path, choice: str, state: str) -> None:
    main = (
        f"import argparse\nparser = argparse.ArgumentParser()\nparser.{choice}\nopt = parser.parse_args()\n"
        "if opt.wide:\n    from net_wide import Net\nelse:\n    from net import Net\nNet()\n"
    )
    files = {"net.py": "class Net: pass\n", "net_wide.py": "import tinycudann\nclass Net: pass\n", "main.py": main}
    assert only(weigh(tmp_path, files)).state == state


@pytest.mark.parametrize(("default", "state"), [("'other'", "optional"), ("'wide'", "blocks"), (None, "blocks")])
def test_a_parameter_that_is_something_else_unless_it_is_given(tmp_path: Path, default: str | None, state: str) -> None:
    given = f"how={default}" if default else "how"
    ops = f"def op(x, {given}):\n    if how == 'wide':\n        import plug\n        return plug.f(x)\n    return x\n"
    assert only(weigh(tmp_path, built(ops))).state == state


def test_a_package_beside_the_scripts_is_no_library(tmp_path: Path) -> None:
    files = {
        "ops/__init__.py": "import tinycudann\n",
        "net.py": "import ops\n",
        "train.py": f"def main(): pass\n{MAIN}",
    }
    main = "import sys\nif '--fused' in sys.argv and use_fused:\n    import net\nelse:\n    net = None\n"
    assert only(weigh(tmp_path / "a", {**files, "train.py": f"{main}{MAIN}"})).state == "optional"
    setup = "from setuptools import setup\nsetup(name='ops', packages=['ops'])\n"
    assert only(weigh(tmp_path / "b", {**files, "train.py": f"{main}{MAIN}", "setup.py": setup})).state == "blocks"


def test_one_plugin_under_two_names(tmp_path: Path) -> None:
    load = "from torch.utils.cpp_extension import load\n_backend = load(name='_plug', sources=['csrc/plug.cu'])\n"
    use = "try:\n    import plug as _backend\nexcept ImportError:\n    from backend import _backend\n"
    files = {**built(use), "backend.py": load}
    assert only(weigh(tmp_path, files)).state == "blocks"


def test_a_script_beside_the_sources_of_a_plugin_is_apart(tmp_path: Path) -> None:
    use = "try:\n    import plug\nexcept ImportError:\n    plug = None\n"
    files = {**built(use), "csrc/launch.py": f"import plug\n{MAIN}"}
    assert only(weigh(tmp_path, files)).state == "optional"


def test_a_switch_that_is_off_by_itself_is_optional(tmp_path: Path) -> None:
    use = "import os\nJIT = os.getenv('JIT')\nif JIT == 'True':\n    import plug\ndef op(x):\n    return x\n"
    assert only(weigh(tmp_path, built(use))).state == "optional"


def test_sources_that_setup_collects_belong_to_its_plugin(tmp_path: Path) -> None:
    files = built("def op(x):\n    import plug\n    return plug.f(x)\n")
    for number, found in enumerate(
        (
            "[os.path.join(r, f) for r, _, fs in os.walk('csrc') for f in fs if f.endswith('.cu')]",
            "glob.glob('{}/csrc/*.cu'.format(HERE))",
        )
    ):
        files["setup.py"] = (
            "import glob, os\nfrom setuptools import setup\nfrom torch.utils.cpp_extension import CUDAExtension\n"
            f"HERE = '.'\nsources = {found}\nsetup(name='p', ext_modules=[CUDAExtension('plug', sources=sources)])\n"
        )
        (tmp_path / str(number)).mkdir()
        one = only(weigh(tmp_path / str(number), files))
        assert (one.kind, one.name, one.state) == ("plugin", "plug", "blocks")
        assert "kernel" in one.work

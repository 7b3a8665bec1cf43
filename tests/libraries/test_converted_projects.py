"""Projects that run on the NPU unconverted run there converted, and say the same.

Each entry of entries/ trains or calls a package that has its own fallbacks, knows the NPU, or asks nothing of a device.
The package is converted as a project of its own, which imports each changed module before and after (`--try`).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import LIBRARIES, environment

from torchport.convert import convert_tree
from torchport.convert.stages import Extras
from torchport.convert.trial import CODE
from torchport.findings import Severity

ENTRIES = Path(__file__).with_name("entries")
# The packages of an entry that are converted.
PACKAGES = {
    "accelerate_loop": ["accelerate"],
    "diffusers_unet": ["diffusers"],
    "geometric_graph": ["torch_geometric"],
    "lightning_fit": ["lightning"],
    "metric_learning": ["pytorch_metric_learning"],
    "mmengine_run": ["mmengine"],
    "peft_lora": ["peft"],
    "quantize_vectors": ["vector_quantize_pytorch", "x_transformers"],
    "segmentation_unet": ["segmentation_models_pytorch"],
    "stable_baselines_ppo": ["stable_baselines3"],
    "timm_train": ["timm"],
    "torchdiffeq_node": ["torchdiffeq"],
    "transformers_trainer": ["transformers"],
    "ultralytics_model": ["ultralytics"],
}
# Their modules take more minutes to import one by one than all the rest.
LARGE = ("diffusers_unet", "transformers_trainer")


def run_entry(name: str, folder: Path, *before: Path) -> str:
    """The standard output of an entry that ends well, with packages from `before` in place of the libraries' own."""
    variables = environment(folder, *before, virtual_npu=True)
    shown = f"print([sys.modules[name].__file__ for name in {PACKAGES[name]}])"
    program = f"import runpy, sys; runpy.run_path({str(ENTRIES / f'{name}.py')!r}, run_name='__main__'); {shown}"
    ended = subprocess.run(
        [sys.executable, "-c", program], env=variables, cwd=folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    *said, files = ended.stdout.splitlines()
    assert all(str(place) in files for place in before or [LIBRARIES]), files
    return "\n".join(line for line in said if line.split(" ")[0] in ("device", "loss", "steps", "world", "codes"))


def test_every_entry_has_its_packages() -> None:
    assert {path.stem for path in ENTRIES.glob("*.py")} == PACKAGES.keys()


@pytest.mark.parametrize("name", PACKAGES)
def test_what_ran_runs_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    before = run_entry(name, tmp_path)
    assert before
    monkeypatch.setenv("PYTHONPATH", str(LIBRARIES))  # of the processes that import the modules
    out = tmp_path / "converted"
    for package in PACKAGES[name]:
        result = convert_tree(LIBRARIES / package, out / package, extras=Extras(tries=name not in LARGE))
        taken = [one for one in result.findings if one.code == CODE and one.severity is Severity.WARNING]
        assert not taken, [(one.location, one.message) for one in taken]
    assert run_entry(name, tmp_path, out) == before

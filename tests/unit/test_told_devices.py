"""The advice for a port that stayed on the CPU: it was told so, or an installed library chose it."""

import pytest
from recordings import losses, write

from torchport.compare import compare_recordings

CURVE = [2.3 * 0.97**step for step in range(20)]
# The original moves nothing to a GPU.
PLACED = {"kind": "parameters", "optimizer": 0, "step": 0, "names": ["a"], "sizes": [3], "devices": ["cpu"]}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--device", "cpu"], "by --device cpu."),
        (["--device=cpu"], "by --device=cpu."),
        (["trainer.accelerator=cpu"], "by trainer.accelerator=cpu."),
        (["--epochs", "1", "--cpu"], "by --cpu."),
        (["--no-cuda"], "by --no-cuda."),
        (["--name", "cpu-run"], "tell it the GPU's"),
    ],
)
def test_a_script_that_was_told_the_cpu(tmp_path, words, told):
    runs = []
    for name, launches in (("reference", None), ("npu", 0)):
        (tmp_path / name).mkdir()
        events = [PLACED, *losses(CURVE, device="cpu", launches=launches)]
        runs.append(write(tmp_path / name, events, command=["python", "train.py", *words]))
    (hint,) = [one.hint for one in compare_recordings(*runs, on_npu=True).findings if one.code == "TP345"]
    assert told in hint


@pytest.mark.parametrize(("folder", "package"), [("site-packages/yolo", "yolo is installed"), ("nets", "Look for")])
def test_a_library_that_moves_data_in_the_original_alone(tmp_path, folder, package):
    upload = {"kind": "upload", "site": f"/lib/{folder}/trainer.py:7", "visit": 0, "size": 1, "checksum": "a"}
    runs = []
    for name, events in (
        ("reference", [upload | {"sum": 1.0, "norm": 1.0}, *losses(CURVE, device="cpu", launches=None)]),
        ("npu", list(losses(CURVE, device="cpu", launches=0))),
    ):
        (tmp_path / name).mkdir()
        runs.append(write(tmp_path / name, events))
    (hint,) = [one.hint for one in compare_recordings(*runs, on_npu=True).findings if one.code == "TP345"]
    assert hint.startswith(package)


@pytest.mark.parametrize(
    ("path", "message", "said"),
    [
        ("{}/site-packages/ultralytics/utils/torch_utils.py", "ValueError: Invalid CUDA 'device=0'", True),
        ("{}/target/ultralytics/utils/torch_utils.py", "ValueError: Invalid CUDA 'device=0'", True),
        ("{}/site-packages/ultralytics/utils/torch_utils.py", "ValueError: no images", False),
        ("{}/train.py", "ValueError: Invalid CUDA 'device=0'", False),
    ],
)
def test_a_library_that_asks_torch_cuda(tmp_path, path, message, said):
    (tmp_path / "target" / "ultralytics-8.4.dist-info").mkdir(parents=True)
    runs = []
    for name, events, status in (
        ("reference", losses(CURVE, device="cpu", launches=None), 0),
        ("npu", [{"kind": "error", "error": message, "path": path.format(tmp_path), "line": 7}], 1),
    ):
        (tmp_path / name).mkdir()
        runs.append(write(tmp_path / name, events, status=status, messages=message if status else ""))
    (hint,) = [one.hint for one in compare_recordings(*runs, on_npu=True).findings if one.code == "TP310"]
    assert hint.startswith("ultralytics is installed and asks torch.cuda. `torchport run`") == said

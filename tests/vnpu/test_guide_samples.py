"""The porting guide's code samples, by what they call, on today's torch_npu with `import torchport.legacy`.

tests/unit/guide_samples.toml lists the samples, with the test of each or the reason why there is nothing to run.
"""

from __future__ import annotations

import copy
import json
import re
import sys
import types
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn

import torchport.legacy
from torchport import standins

DEVICE = "npu:0"


@pytest.fixture(autouse=True)
def _old_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    torchport.legacy.install()
    standins.install()
    yield
    standins.uninstall()
    torchport.legacy.uninstall()


def small() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    return model.to(DEVICE), torch.randn(4, 1, 4, 4).to(DEVICE), torch.tensor([0, 1, 2, 0])


def train_one_step(model: nn.Module, x: torch.Tensor, target: torch.Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = nn.CrossEntropyLoss().to(DEVICE)(model(x), target.to(torch.int32).to(DEVICE))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


# --- "single device", "device interfaces", "tensors by type"


def test_devices_and_tensors() -> None:
    import torch.npu

    torch.npu.set_device(DEVICE)
    assert torch.npu.is_available() and torch.npu.current_device() == 0 and torch.npu.device_count() >= 1
    x = torch.tensor([1, 2, 3]).npu()
    assert x.is_npu and torch.tensor([1, 2, 3]).to("npu").is_npu and not torch.tensor([1]).is_npu
    with torch.npu.device(0), torch.npu.stream(torch.npu.Stream(DEVICE)):
        torch.npu.current_stream().synchronize()
    assert torch.npu.default_stream() == torch.npu.current_stream()
    assert torch.npu.Event() is not None
    for kind, dtype in (
        ("Bool", torch.bool),
        ("Float", torch.float32),
        ("Int", torch.int32),
        ("Long", torch.int64),
        ("Half", torch.float16),
    ):
        tensor = getattr(torch.npu, f"{kind}Tensor")([1, 2, 3])
        assert (tensor.dtype, tensor.device.type) == (dtype, "npu")
    for dtype in (torch.long, torch.int, torch.half, torch.float, torch.bool):
        assert torch.tensor([1, 2, 3], dtype=dtype, device="npu").dtype == dtype


def test_int32_targets_and_hooks() -> None:
    model, x, target = small()
    seen: list[str] = []
    for name, module in model.named_modules():
        module.register_forward_hook(lambda *args, name=name: seen.append(name))
    train_one_step(model, x, target)
    assert len(seen) == 6
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            assert module.running_mean.abs().sum() > 0 and module.weight.grad is not None


def test_cpu_and_npu_agree_on_a_model() -> None:
    model, x, _ = small()
    twin = copy.deepcopy(model).cpu().eval()
    assert (twin(x.cpu()) - model.eval()(x).cpu()).abs().mean() < 1e-4


# --- "mixed precision": apex


def test_apex_with_combined_gradients_and_a_fused_optimizer() -> None:
    from apex import amp
    from apex.optimizers import NpuFusedSGD

    losses = []
    for make in (torch.optim.SGD, NpuFusedSGD):
        model, x, target = small()
        optimizer = make(model.parameters(), lr=0.05, momentum=0.9)
        model, optimizer = amp.initialize(
            model, optimizer, opt_level="O2", loss_scale=1024.0, combine_grad=True, verbosity=0
        )
        criterion = nn.CrossEntropyLoss().to(DEVICE)
        for _ in range(5):
            loss = criterion(model(x), target.to(torch.int32).to(DEVICE))
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
            losses.append(loss.item())
        checkpoint = {"state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "amp": amp.state_dict()}
        torch.save(checkpoint, "checkpoint.pth.tar")
        loaded = torch.load("checkpoint.pth.tar", map_location=DEVICE)
        model.load_state_dict(loaded["state_dict"])
        optimizer.load_state_dict(loaded["optimizer"])
        amp.load_state_dict(loaded["amp"])
        amp.initialize(nn.Linear(1, 1), enabled=False)
    assert losses[4] < 0.8 * losses[0]
    assert np.allclose(losses[:5], losses[5:], rtol=1e-3)


def test_amp_of_torch_npu() -> None:
    from torch_npu.npu import amp

    model, x, target = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = amp.GradScaler(init_scale=1024.0)
    with amp.autocast():
        loss = nn.CrossEntropyLoss().to(DEVICE)(model(x), target.to(DEVICE))
    optimizer.zero_grad()
    before = model[4].weight.detach().clone()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(before, model[4].weight)


# --- "profiling"


def test_autograd_profiler_with_use_npu() -> None:
    model, x, target = small()
    with torch.autograd.profiler.profile(use_npu=True, record_shapes=True, profile_memory=True) as prof:
        train_one_step(model, x, target)
    names = {event.key for event in prof.key_averages()}
    assert {"aten::linear", "aten::addmm"} <= names
    assert "NPU total" in str(prof.key_averages().table()) and print(prof) is None
    assert any(event.input_shapes for event in prof.function_events)
    prof.export_chrome_trace("all.json")
    with torch.autograd.profiler.profile(use_npu=True, use_npu_simple=True) as simple:
        train_one_step(model, x, target)
    simple.export_chrome_trace("simple.json")
    leaves = {event.key for event in simple.key_averages()}
    assert any(name.startswith("aclnn") for name in leaves)
    assert "aten::linear" not in leaves and "aten::addmm" not in leaves
    kept = {event["name"] for event in json.loads(Path("simple.json").read_text())}
    assert "aten::linear" not in kept and kept and Path("all.json").stat().st_size > 0
    with torch.autograd.profiler.profile(use_device="npu") as today:  # what convert makes of use_cuda=True
        train_one_step(model, x, target)
    assert "NPU total" in str(today.key_averages().table())
    with torch.autograd.profiler.profile() as plain:
        train_one_step(model, x, target)
    assert plain.key_averages().table(sort_by="self_cpu_time_total")


@pytest.mark.filterwarnings("ignore:There is no libmsprofiler.so")
def test_cann_profiling_of_a_step() -> None:
    model, x, target = small()
    with torch.npu.profile("once", torch.npu.profileConfig(ACL_PROF_L2CACHE=True)):
        train_one_step(model, x, target)
    assert rows("once")


@pytest.mark.filterwarnings("ignore:There is no libmsprofiler.so")
def test_cann_profiling_of_chosen_steps() -> None:
    model, x, target = small()
    for i in range(5):
        if i == 1:
            torch.npu.prof_init("steps")
            torch.npu.prof_start(torch.npu.profileConfig())
        if 1 <= i <= 2:
            torch.npu.iteration_start()
            train_one_step(model, x, target)
            torch.npu.iteration_end()
        if i == 3:
            torch.npu.prof_stop()
            torch.npu.prof_finalize()
    names = [event["name"] for event in trace("steps") if event.get("ph") == "X"]
    assert {name for name in names if name.startswith("iteration#")} == {"iteration#0", "iteration#1"}
    assert names.count("aten::addmm") == 2


def trace(folder: str) -> list[dict[str, Any]]:
    (file,) = Path(folder).rglob("trace_view.json")
    return json.loads(file.read_text())  # type: ignore[no-any-return]


def rows(folder: str) -> list[str]:
    (file,) = Path(folder).rglob("operator_details.csv")
    return file.read_text().splitlines()[1:]


def test_profiling_calls_out_of_order_are_refused() -> None:
    for call in (
        torch.npu.prof_stop,
        torch.npu.prof_start,
        torch.npu.prof_finalize,
        torch.npu.iteration_start,
        torch.npu.iteration_end,
    ):
        with pytest.raises(RuntimeError, match=call.__name__):
            call()
    torch.npu.prof_init("here")
    with pytest.raises(RuntimeError, match="prof_init"):
        torch.npu.prof_init("there")
    torch.npu.prof_finalize()
    with pytest.raises(ValueError, match="aiCoreMetricsType"):
        torch.npu.profileConfig(aiCoreMetricsType=9)


# --- "dumps", "comparison of operators", "overflow"


def test_dump_on_one_device_and_load_on_the_other() -> None:
    model, x, target = small()
    twin = copy.deepcopy(model).cpu()
    with torch.utils.dumper(use_dump=True, dump_path="./model_cpu.h5"):
        nn.functional.cross_entropy(twin(x.cpu()), target).backward()
    with torch.no_grad():
        model[4].weight.add_(100.0)  # a fault that loading has to make invisible further down
    with torch.utils.dumper(use_dump=True, load_file_path="./model_cpu.h5", dump_path="./model_npu.h5"):
        nn.functional.cross_entropy(model(x), target.to(DEVICE)).backward()
    with h5py.File("model_cpu.h5") as wanted, h5py.File("model_npu.h5") as found:
        shared = {name: set(wanted[name]) & set(found[name]) for name in set(wanted) & set(found)}
        assert {"convolution", "addmm", "mm", "threshold_backward"} <= set(shared)
        for name in ("convolution", "addmm", "mm", "_log_softmax"):
            for call in shared[name]:
                a, b = wanted[f"{name}/{call}/output"], found[f"{name}/{call}/output"]
                assert set(a) == set(b)
                for index in a:
                    assert np.allclose(a[index][()], b[index][()], atol=1e-5), (name, call)
        assert found["addmm/1/output/0"].attrs["dtype"] == "torch.float32"
    assert not list(Path().glob("*.partial"))


def test_dump_holds_inputs_as_they_were() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.bfloat16, device=DEVICE)
    with torch.utils.dumper(use_dump=True, dump_path="folder/") as dump:
        x.add_(1.0)
        x.mul_(2.0)
    (file,) = Path("folder").glob("dump_*.h5")
    with h5py.File(file) as found:
        assert found["add_/1/input/0"][()].tolist() == [1.0, 2.0]
        assert found["add_/1/output/0"][()].tolist() == [2.0, 3.0]
        assert found["mul_/1/output/0"][()].tolist() == [4.0, 6.0]
        assert found["mul_/1/output/0"].attrs["dtype"] == "torch.bfloat16"
    assert dump.overflows == []
    with torch.utils.dumper(use_load=True, load_file_path=str(file)):
        y = torch.zeros(2, dtype=torch.bfloat16, device=DEVICE).add_(1.0)
    assert y.tolist() == [2.0, 3.0], "what an operator writes to is loaded in place"


def test_overflow_is_found_where_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.full((2,), 300.0, dtype=torch.float16, device=DEVICE)
    with torch.utils.dumper(check_overflow=True, dump_path="overflow.h5", load_file_path="") as dump:
        ((x + 1) * x * 2).sum()
    assert dump.overflows == ["mul/1"]
    assert "[check_overflow] mul/1" in capsys.readouterr().out
    with h5py.File("overflow.h5") as found:
        assert list(found) == ["mul"] and np.isinf(found["mul/1/output/0"][()]).all()


def test_dumper_refuses_half_a_request() -> None:
    with pytest.raises(ValueError, match="dump_path"):
        torch.utils.dumper(use_dump=True)
    with pytest.raises(ValueError, match="load_file_path"):
        torch.utils.dumper(use_load=True)
    with pytest.raises(FileNotFoundError, match=r"no_such\.h5"):
        torch.utils.dumper(use_dump=True, dump_path="a.h5", load_file_path="no_such.h5")


def test_dump_of_single_operators() -> None:
    configuration = {"dump_list": [], "dump_path": "output", "dump_mode": "all", "dump_op_switch": "on"}
    Path("dump.json").write_text(json.dumps({"dump": configuration}))
    torch.npu.set_device(DEVICE)
    torch.npu.init_dump()
    torch.npu.set_dump("dump.json")
    a = torch.tensor([2, 2]).to(DEVICE)
    a.add_(1)
    torch.npu.finalize_dump()
    a.mul_(5)
    files = {file.name.split(".")[0]: file for file in Path("output").rglob("*.*")}
    assert {file.parent.name for file in files.values()} == {"0"}
    assert all(re.fullmatch(r"\w+\.\w+_\d+(\.\d+){3}", file.name) for file in files.values())
    dumped = torchport.legacy.read_dump(files["InplaceAdds"])
    assert [tensor.tolist() for tensor in dumped["input"]] == [[2, 2]]
    assert [tensor.tolist() for tensor in dumped["output"]] == [[3, 3]]
    assert "InplaceMuls" not in files


def test_operators_of_a_dump_go_to_cann_dumps_too() -> None:
    """The guide's way from an operator of a dump to the kernels behind it: load_with_acl_dump."""
    Path("acl.json").write_text(
        json.dumps({"dump": {"dump_path": "kernels", "dump_mode": "all", "dump_op_switch": "on"}})
    )
    x = torch.ones(3, device=DEVICE)
    with torch.utils.dumper(use_dump=True, dump_path="input.h5"):
        x.exp()
    with torch.utils.dumper(use_load=True, dump_path="./", load_file_path="input.h5", load_with_acl_dump=True):
        x.exp()
        x.sin()
    names = {file.name.split(".")[0] for file in Path("kernels").rglob("*.*")}
    assert names == {"Exp"}


# --- "compile options", "AOE"


@pytest.mark.filterwarnings("ignore:ACL_OP")
def test_options() -> None:
    values = {
        "ACL_OP_SELECT_IMPL_MODE": ("high_precision", "high_performance"),
        "ACL_OPTYPELIST_FOR_IMPLMODE": ("Pooling", "SoftmaxV2"),
        "ACL_OP_DEBUG_LEVEL": (0, 1, 2, 3, 4),
        "ACL_DEBUG_DIR": (".",),
        "ACL_OP_COMPILER_CACHE_MODE": ("enable", "disable", "force"),
        "ACL_OP_COMPILER_CACHE_DIR": (".",),
    }
    for key, choices in values.items():
        for value in choices:
            torch.npu.set_option({key: value})
    with pytest.raises(ValueError, match="ACL_OP_DEBUG_LEVEL"):
        torch.npu.set_option({"ACL_OP_DEBUG_LEVEL": 9})
    torch.npu.set_aoe("tuning/operators")
    assert Path("tuning/operators").is_dir()
    assert (torch.ones(2, device=DEVICE) + 1).tolist() == [2, 2]


# --- "ShuffleNet": index_select in place of a transpose, formats, a function with a backward of its own


class ShuffledCat(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x1: Any, x2: Any, forth: Any, back1: Any, back2: Any) -> Any:
        torch.npu.current_stream().synchronize()
        ctx.back = back1, back2
        return torch.cat([x1, x2], dim=1).index_select(1, forth)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        torch.npu.current_stream().synchronize()
        grad.data = grad.data.npu_format_cast(0)
        return grad.index_select(1, ctx.back[0]), grad.index_select(1, ctx.back[1]), None, None, None


def test_channel_shuffle_by_index() -> None:
    channels = 8
    order = torch.arange(channels).view(2, channels // 2).t().flatten()
    forth, back1, back2 = (
        index.to(torch.int32).to(DEVICE)
        for index in (order, torch.arange(0, channels, 2), torch.arange(1, channels, 2))
    )
    halves = [torch.randn(2, channels // 2, 3, 3, requires_grad=True) for _ in range(2)]
    there = [half.detach().to(DEVICE).requires_grad_() for half in halves]
    direction = torch.randn(2, channels, 3, 3)
    joined = torch.cat(halves, 1)
    want = joined.view(2, 2, channels // 2, 3, 3).transpose(1, 2).reshape(2, channels, 3, 3)
    got = ShuffledCat.apply(*there, forth, back1, back2)
    assert torch.equal(got.cpu(), want)
    (want * direction).sum().backward()
    (got * direction.to(DEVICE)).sum().backward()
    assert all(torch.equal(a.grad, b.grad.cpu()) for a, b in zip(halves, there, strict=True))
    assert torch.equal(torch.npu_format_cast(there[0].detach(), 2).cpu(), halves[0].detach())


# --- "single operator samples": TestCase with prec


def test_single_operator_test_case(monkeypatch: pytest.MonkeyPatch) -> None:
    # torch's own TestCase wants expecttest, of which these samples use nothing but unittest's TestCase.
    expecttest = types.ModuleType("expecttest")
    expecttest.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "expecttest", expecttest)
    from torch.testing._internal.common_utils import TestCase

    class TestMax(TestCase):
        def test_max(self) -> None:
            x = torch.randn(10, 20).to(torch.int64)
            self.assertEqual(  # noqa: PT009  the sample's own
                torch.max(x).to("cpu").numpy(), torch.max(copy.deepcopy(x).npu()), prec=1e-4
            )

        def test_difference(self) -> None:
            self.assertEqual(torch.ones(2), torch.ones(2).npu() + 2e-4, prec=1e-4)  # noqa: PT009

    result = unittest.TestResult()
    TestMax("test_max").run(result)
    assert (result.failures, result.errors) == ([], [])
    TestMax("test_difference").run(result)
    assert len(result.failures) == 1


# --- "saving": state dictionaries with a prefix


def test_saving_and_renaming() -> None:
    model, x, _ = small()
    torch.save(model.state_dict(), "state_dict_model.pt")
    again, _, _ = small()
    again.load_state_dict(torch.load("state_dict_model.pt"))
    assert torch.equal(model.eval()(x), again.eval()(x))
    prefixed = {f"module.{key}": value for key, value in model.state_dict().items()}
    torch.save({"epoch": 3, "state_dict": prefixed}, "checkpoint.pth.tar")
    loaded = torch.load("checkpoint.pth.tar", map_location=torch.device("cpu"))
    again.cpu().load_state_dict({key[7:]: value for key, value in loaded["state_dict"].items()})
    assert torch.allclose(again.eval()(x.cpu()), model(x).cpu(), atol=1e-5)


# --- "frequent questions"


def test_a_device_is_chosen_after_a_backward_pass_on_the_cpu() -> None:
    def backward(device: str) -> torch.Tensor:
        x = torch.randn(200, 100).to(device).detach().requires_grad_()
        total = torch.sum(x)
        total.backward(torch.ones_like(total))
        assert x.grad is not None and bool((x.grad == 1).all())
        return x

    backward("cpu")
    torch.npu.set_device("npu:1")
    try:
        assert backward("npu").device.index == 1
    finally:
        torch.npu.set_device(DEVICE)


def test_types_that_differ_can_be_stacked() -> None:
    points, boxes = torch.rand(20, 8).npu(), torch.rand(20, 8, 4).npu().half()
    left, right = points - boxes[..., 0], boxes[..., 2] - points
    assert torch.stack((left, right), -1).sum().isfinite()


def test_everything_is_taken_away_again() -> None:
    torchport.legacy.uninstall()
    assert not hasattr(torch.utils, "dumper") and not hasattr(torch.npu, "prof_init")
    assert not hasattr(torch.Tensor, "npu_format_cast")
    with pytest.raises(RuntimeError, match="deprecated"):
        torch.npu_format_cast(torch.ones(1, device=DEVICE), 2)
    with pytest.raises(TypeError, match="use_npu"):
        torch.autograd.profiler.profile(use_npu=True)

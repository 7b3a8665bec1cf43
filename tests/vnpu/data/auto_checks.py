"""A CUDA script: each `check_` is one thing that CUDA scripts do, written as they are. Run by test_auto.py under
`torchport run` in one process, with CUDA_VISIBLE_DEVICES=3,1. Prints {check: traceback or ""} as JSON.

The checks of each block are the rows of one table: what torch_npu's own transfer_to_npu gets wrong, and what is in
torch.cuda; auto_patterns.py has what scripts do that is hard to see.
"""

import contextlib
import json
import os
import pickle
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import auto_patterns
import pytest
import torch
from torch.cuda import nvtx

# What transfer_to_npu gets wrong.


def check_load_from_a_folder_called_cuda():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cuda_dir", "cuda:0.pt")
        path.parent.mkdir()
        torch.save(torch.ones(2, device="cuda"), path)
        assert torch.load(str(path)).is_cuda
        assert torch.load(path, map_location="cpu").device.type == "cpu"


def check_type_of_a_named_device():
    assert torch.device("cuda").type == "cuda"
    assert (
        str(torch.device("cuda:1")) == "cuda:1"
        and repr(torch.device("cuda", 1)) == "device(type='cuda', index=1)"
    )
    assert f"{torch.device('cuda')}" == "cuda"
    assert torch.device("cpu").type == "cpu" and str(torch.device("cpu")) == "cpu"
    assert {"cuda": 1}[torch.device("cuda").type] == 1
    assert torch.device(type="cuda", index=0) == torch.device(0) == torch.device("cuda:0")


def check_device_of_a_tensor():
    x = torch.empty(1, device="cuda")
    assert x.device == torch.device("cuda:0") and x.device.type == "cuda" and str(x.device) == "cuda:0"
    assert next(torch.nn.Linear(2, 2).cuda().parameters()).device.type == "cuda"
    assert isinstance(x.device, torch.device) and type(x.device) is torch.device
    assert pickle.loads(pickle.dumps(x.device)) == x.device


def check_scripts_that_know_the_npu_are_right_too():
    x = torch.empty(1, device="npu")
    assert x.device.type == "npu" and x.is_npu and x.device == torch.device("npu:0")
    assert x.device.type not in ("cpu", "xpu") and x.device.type in ("npu",) and torch.npu.is_available()


def check_type_as_text():
    x = torch.ones(2, device="cuda")
    assert x.type() == "torch.cuda.FloatTensor"
    assert x.cpu().type("torch.cuda.HalfTensor").type() == "torch.cuda.HalfTensor"
    assert x.cpu().type(torch.cuda.FloatTensor).is_cuda and x.type("torch.FloatTensor").device.type == "cpu"


def check_default_tensor_type():
    for given in ("torch.cuda.FloatTensor", torch.cuda.FloatTensor):
        torch.set_default_tensor_type(given)
        assert torch.zeros(1).is_cuda and torch.zeros(1).dtype == torch.float32
        torch.set_default_tensor_type("torch.FloatTensor")
        assert not torch.zeros(1).is_cuda
    torch.set_default_tensor_type("torch.cuda.HalfTensor")
    assert torch.zeros(1).dtype == torch.float16
    torch.set_default_tensor_type(torch.FloatTensor)
    assert torch.zeros(1).dtype == torch.float32


def check_double_tensor():
    assert torch.cuda.DoubleTensor(1).dtype == torch.zeros(1, dtype=torch.float64, device="cuda").dtype


def check_capability():
    assert torch.cuda.get_device_capability()[0] >= 8
    properties = torch.cuda.get_device_properties("cuda:0")
    assert (properties.major, properties.minor) == torch.cuda.get_device_capability(0) == (8, 0)
    assert (
        properties.multi_processor_count > 0
        and properties.total_memory > 2**30
        and properties.warp_size == 32
    )
    assert torch.cuda.get_arch_list() == ["sm_80"] and properties.name == torch.cuda.get_device_name()


def check_names_of_arguments():
    """Those of CUDA's functions, where the NPU's have others; one that is not there may only ask for nothing."""
    with pytest.raises(NotImplementedError, match="takes no include_traces"):
        torch.cuda.memory_snapshot(include_traces=True)
    assert isinstance(torch.cuda.memory_snapshot(include_traces=False), list)
    assert torch.cuda.get_device_name(device=0) == torch.cuda.get_device_name(0)
    assert isinstance(torch.cuda.can_device_access_peer(device=0, peer_device=1), bool)
    assert torch.cuda.get_device_properties(device=0).total_memory > 0
    stream = torch.cuda.Stream()
    with torch.cuda.StreamContext(stream=stream):
        assert torch.cuda.current_stream() == stream
    assert isinstance(torch.cuda.StreamContext(stream), torch.cuda.StreamContext)


def check_default_devices():
    """Functions that are patched for another reason make what the default device says."""
    with torch.device("cuda"):
        made = [torch.ones(2), torch.empty(2), torch.hann_window(4), torch.nn.Linear(2, 2).weight]
    assert all(one.is_cuda for one in made)
    assert not torch.empty(2).is_cuda


def check_asarray():
    assert torch.asarray([1], device="cuda").is_cuda


def check_nvtx():
    assert nvtx.range_push("a") == 0 and nvtx.range_push("b") == 1
    assert torch.cuda.nvtx.range_pop() == 1 and nvtx.range_pop() == 0
    nvtx.mark("here")
    nvtx.range_end(nvtx.range_start("c"))
    with torch.cuda.nvtx.range("step {}", 3):
        pass


def check_profiler_tables():
    x = torch.ones(8, 8, device="cuda")
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profile:
        x @ x
    averages = profile.key_averages()
    for column in ("cuda_time_total", "self_cuda_time_total", "cpu_time_total"):
        assert "aten::matmul" in averages.table(sort_by=column)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the names are old ones
        assert averages[0].cuda_time_total >= 0 and averages[0].self_cuda_time_total >= 0
        with torch.autograd.profiler.profile(use_cuda=True) as old:
            x @ x
    assert "aten::matmul" in old.key_averages().table()
    with torch.profiler.profile(schedule=torch.profiler.schedule(wait=0, warmup=1, active=1)) as stepped:
        for _ in range(2):
            x @ x
            stepped.step()


def check_versions():
    assert torch.version.cuda and int(torch.version.cuda.split(".")[0]) >= 11
    assert torch.backends.cudnn.version() >= 8000 and torch.backends.cudnn.is_available()
    assert torch.backends.cuda.is_built() and torch.cuda.nccl.version() >= (2, 10)


def check_default_generators():
    assert len(torch.cuda.default_generators) == torch.cuda.device_count()
    torch.cuda.default_generators[0].manual_seed(7)
    first = torch.rand(3, device="cuda")
    torch.cuda.manual_seed(7)
    assert torch.equal(first.cpu(), torch.rand(3, device="cuda").cpu())


# What torch_npu 2.13.0 itself gets wrong.


def check_fused_optimizers_with_torch_npu_s_scaler():
    for scaler in (torch.cuda.amp.GradScaler(), torch.amp.GradScaler("cuda")):
        weights = []
        for fused in (True, False):
            torch.manual_seed(3)
            model = torch.nn.Linear(4, 4).cuda()
            optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
            for factor in (1.0, float("inf"), 1.0):  # the second step is left out
                optimizer.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(torch.ones(2, 4, device="cuda")).float().square().mean() * factor
                scaler.scale(loss).backward()
                with contextlib.redirect_stdout(sys.stderr):  # torch_npu's tells of steps that it leaves out
                    scaler.step(optimizer)
                    scaler.update()
            assert getattr(optimizer, "_step_supports_amp_scaling", False) is fused
            weights.append(model.weight.detach().cpu())
        torch.testing.assert_close(*weights, rtol=1e-3, atol=1e-5)


def check_windows_without_a_dtype():
    for name in ("bartlett", "blackman", "hamming", "hann", "kaiser"):
        window = getattr(torch, f"{name}_window")
        assert window(8, device="cuda").device.type == "npu"
        for options in ({}, {"dtype": torch.float32}, {"periodic": False}):
            torch.testing.assert_close(window(8, device="cuda", **options).cpu(), window(8, **options))
        assert window(8, dtype=torch.float64).dtype == torch.float64
    assert torch.kaiser_window(8, device="cuda", requires_grad=True).requires_grad


def check_sparse_adam():
    """Rows that a step does not name stay; the first step finds a state of zeros."""
    weights = torch.randn(6, 3)
    trained = []
    for device in ("cuda", "cpu"):
        table = torch.nn.Embedding(6, 3, sparse=True, _weight=weights.clone().to(device))
        optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
        for rows in ([1, 4, 1], [4, 0], [1]):
            optimizer.zero_grad()
            (table(torch.tensor(rows, device=device)) ** 2).sum().backward()
            optimizer.step()
        trained.append(table.weight.detach().cpu())
    torch.testing.assert_close(*trained, rtol=1e-5, atol=1e-6)
    assert torch.equal(trained[0][[2, 3, 5]], weights[[2, 3, 5]])
    mask = torch.sparse_coo_tensor([[0, 2], [1, 1]], torch.ones(2), (6, 3)).cuda()
    for named, coalesced in ((mask, False), (mask.coalesce(), True)):
        kept = torch.eye(6, 3).cuda().sparse_mask(named)
        assert kept._values().tolist() == [0, 0] and kept.is_coalesced() is coalesced


def check_memory_formats():
    images, last = torch.randn(2, 3, 6, 5), torch.channels_last
    copies = (
        images.cuda().to(memory_format=last),
        images.cuda().contiguous(memory_format=last),
        images.to("cuda", memory_format=last),
        images.cuda(memory_format=last),
        images.cuda().float(memory_format=last),
    )
    for copy in copies:
        assert copy.is_cuda and copy.is_contiguous() and torch.equal(copy.cpu(), images)
    host = images.cuda().cpu(memory_format=last)
    assert host.is_contiguous(memory_format=last) and torch.equal(host, images)
    assert images.to(memory_format=last).is_contiguous(memory_format=last)
    assert torch.empty(2, 3, 4, 4, memory_format=last).is_contiguous(memory_format=last)
    assert torch.empty(2, 3, 4, 4, device="cuda", memory_format=last).is_cuda
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.GELU("tanh"))
    expected = model(images)
    ported = model.cuda().to(memory_format=last)(images.to(memory_format=last).cuda())
    torch.testing.assert_close(ported.cpu(), expected, rtol=1e-3, atol=1e-3)
    permuted = images.cuda().permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    expected = torch.nn.functional.gelu(images, approximate="tanh")
    torch.testing.assert_close(
        torch.nn.functional.gelu(permuted, approximate="tanh").cpu(), expected, rtol=1e-3, atol=1e-3
    )
    assert "gelu" in torch.fx.symbolic_trace(model).code.lower() or len(torch.fx.symbolic_trace(model).graph.nodes) == 4


def check_forward_over_reverse():
    def curvature(x, weight):
        return torch.func.hessian(lambda x: (torch.nn.functional.linear(x, weight) ** 3).sum())(x)

    def slope(x, weight):
        return torch.func.jvp(torch.func.grad(lambda x: ((x @ weight.t()) ** 3).sum()), (x,), (x,))[1]

    x, weight = torch.randn(2, 4), torch.randn(3, 4)
    for function in (curvature, slope):
        found, expected = function(x.cuda(), weight.cuda()).cpu(), function(x, weight)
        assert expected.abs().max() > 0.1
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    with torch.profiler.profile() as profile:
        x.cuda() @ weight.cuda().t()
    assert not {"aten::mm", "aten::bmm"} & {event.name for event in profile.events()}, "torch_npu's own again"


# The module torch.cuda.


def check_memory():
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated("cuda:0")
    x = torch.zeros(1 << 20, device="cuda")
    assert (
        torch.cuda.memory_allocated() - before >= x.nbytes and torch.cuda.max_memory_allocated(0) >= x.nbytes
    )
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == torch.cuda.memory_allocated()
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total and "memory summary" in torch.cuda.memory_summary()
    torch.cuda.empty_cache()
    torch.cuda.memory.empty_cache()
    assert torch.cuda.memory.memory_allocated() == torch.cuda.memory_allocated()


def check_streams():
    side = torch.cuda.Stream()
    x = torch.ones(16, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
        y = x * 2
        y.record_stream(side)
    torch.cuda.current_stream().wait_stream(side)
    event = side.record_event()
    event.synchronize()
    assert event.query() and y.sum().item() == 32 and torch.cuda.default_stream() != side
    assert isinstance(torch.cuda.current_stream(), torch.cuda.Stream)
    assert torch.Stream("cuda").device.type == "cuda" and torch.Event("cuda") is not None
    assert torch.Stream(device="cuda:1").device_index == 1


def check_random_numbers():
    torch.cuda.manual_seed_all(3)
    state = torch.cuda.get_rng_state("cuda:0")
    first = torch.randn(4, device="cuda")
    torch.cuda.set_rng_state(state, "cuda:0")
    assert torch.equal(first.cpu(), torch.randn(4, device="cuda").cpu()) and torch.cuda.initial_seed() == 3
    generator = torch.Generator(device="cuda").manual_seed(1)
    assert generator.device.type == "cuda" and isinstance(generator, torch.Generator)
    values = torch.rand(3, generator=generator, device="cuda")
    assert torch.equal(
        values.cpu(), torch.rand(3, generator=torch.Generator("cuda").manual_seed(1), device="cuda").cpu()
    )
    with torch.random.fork_rng():
        torch.rand(1, device="cuda")
    with torch.random.fork_rng(devices=[0], device_type="cuda"):
        forked = torch.rand(2, device="cuda")
    assert torch.equal(forked.cpu(), torch.rand(2, device="cuda").cpu())


def check_devices():
    with torch.cuda.device(1):
        assert torch.cuda.current_device() == 1 and torch.zeros(1, device="cuda").get_device() == 1
    with torch.cuda.device("cuda:1"):
        assert torch.cuda.current_device() == 1
    with torch.cuda.device_of(torch.zeros(1, device="cuda:1")):
        assert torch.cuda.current_device() == 1
    torch.cuda.set_device("cuda:0")
    torch.cuda.set_device(torch.device("cuda", 0))
    assert torch.cuda.current_device() == 0 and torch.cuda.is_initialized() and torch.cuda.is_bf16_supported()
    with torch.device("cuda"):
        assert torch.zeros(1).is_cuda
    torch.set_default_device("cuda")
    assert torch.ones(1).is_cuda and torch.get_default_device().type == "cuda"
    torch.set_default_device(None)
    assert (
        torch.get_device_module("cuda") is torch.cuda
        and torch.accelerator.current_accelerator().type == "cuda"
    )


def check_refusals_name_themselves():
    for function in (torch.cuda.memory_usage, torch.cuda.power_draw, torch.cuda.temperature):
        with pytest.raises(RuntimeError, match=f"{function.__name__} does not exist on the NPU"):
            function()


def check_storages():
    assert torch.UntypedStorage(4, device="cuda").is_cuda and torch.ones(2).untyped_storage().cuda().is_cuda


# Compilers.


@torch.jit.script
def scripted(x):
    device = torch.device("cuda")
    y = torch.zeros([2], device=device)
    if x.is_cuda and x.device.type == "cuda":
        y = y + torch.ones([2], device="cuda:0")
    return y


def check_torchscript():
    assert isinstance(scripted, torch.jit.ScriptFunction)
    assert scripted(torch.ones(1, device="cuda")).tolist() == [1, 1] and scripted(torch.ones(1)).tolist() == [
        0,
        0,
    ]
    module = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()).cuda())
    traced = torch.jit.trace(torch.nn.Linear(2, 2).cuda(), torch.ones(1, 2, device="cuda"))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cuda.pt")
        module.save(path)
        assert next(torch.jit.load(path, map_location="cuda:1").parameters()).get_device() == 1
    assert module(torch.ones(1, 2, device="cuda")).is_cuda and traced(torch.ones(1, 2, device="cuda")).is_cuda


def check_torch_compile():
    @torch.compile(fullgraph=True)
    def function(x):
        scale = 2.0 if x.is_cuda and x.device.type == "cuda" else 1.0
        return (x * scale + torch.ones(3, device="cuda") + torch.zeros(3, device=x.device)).to("cuda")

    assert function(torch.ones(3, device="cuda")).tolist() == [3, 3, 3]
    model = torch.compile(torch.nn.Linear(2, 2).cuda(), mode="reduce-overhead")
    model(torch.ones(1, 2, device="cuda")).sum().backward()
    assert model.weight.grad.is_cuda


def check_mocked_builtins():
    from unittest import mock

    with (
        mock.patch("builtins.open", side_effect=AssertionError),
        mock.patch("os.environ", {}),
        mock.patch("os.path.join"),
    ):
        assert torch.zeros(1, device="cuda").cuda().device.type == "cuda" and torch.cuda.is_available()


def main():
    results = {}
    for name, check in {**globals(), **vars(auto_patterns)}.items():
        if name.startswith("check_"):
            try:
                check()
                results[name] = ""
            except BaseException:
                results[name] = traceback.format_exc()
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()

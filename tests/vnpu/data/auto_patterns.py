"""What CUDA scripts do that is hard to see: `check_pattern_` and the section of the survey. Run by auto_checks.py."""

import importlib
import os
import tempfile
import zipfile
from pathlib import Path

import pytest
import torch
import torch.cuda as tc
import torch.distributed as dist
from torch import cuda as also_cuda
from torch.cuda import Event, amp, is_available
from torch.nn.utils.rnn import pack_sequence


def check_pattern_1_built_names():
    rank = 1
    for name in (f"cuda:{rank}", "cuda:%d" % rank, "{}:{}".format("cuda", rank), "cu" + "da:1"):  # noqa: UP031
        assert torch.zeros(1, device=name).get_device() == 1
    message = "please install cuda: see https://example.org/whl/torch.cuda.html"
    assert message.count("cuda") == 2


def check_pattern_2_branches():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Linear(2, 2).to(device)
    on_gpu = [p for p in model.parameters() if p.device.type == "cuda"]
    assert device == "cuda" and len(on_gpu) == 2


def check_pattern_3_dynamic_names():
    assert torch.cuda.device_count() == torch.__dict__["cuda"].device_count() > 0
    module = importlib.import_module("torch.cuda.amp")
    with module.autocast():
        assert (torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")).dtype == torch.float16


def check_pattern_4_aliases():
    assert is_available() and tc.is_available() and also_cuda.is_available()
    start, end = Event(enable_timing=True), tc.Event(enable_timing=True)
    start.record()
    end.record()
    tc.synchronize()
    assert start.elapsed_time(end) >= 0 and isinstance(start, torch.cuda.Event)


def check_pattern_5_autocast():
    x = torch.ones(4, 4, device="cuda", requires_grad=True)
    for context in (
        torch.autocast("cuda"),
        amp.autocast(),
        torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16),
    ):
        with context:
            assert (x @ x).dtype in (torch.float16, torch.bfloat16) and torch.is_autocast_enabled()
            assert torch.is_autocast_enabled("cuda")
    assert not torch.is_autocast_enabled()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.get_autocast_gpu_dtype() == torch.get_autocast_dtype("cuda") == torch.bfloat16

    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, grad):
            return grad * 2

    with torch.autocast("cuda"):
        y = Double.apply(x.half())
    assert y.dtype == torch.float32
    y.sum().backward()
    assert x.grad.eq(2).all()


def check_pattern_5_scaler():
    for scaler in (
        torch.cuda.amp.GradScaler(),
        torch.amp.GradScaler("cuda"),
        torch.amp.GradScaler(),
        amp.GradScaler(init_scale=4.0),
    ):
        parameter = torch.nn.Parameter(torch.ones(2, device="cuda"))
        optimizer = torch.optim.SGD([parameter], lr=1.0)
        scaler.scale(parameter.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert parameter.eq(0).all() and scaler.is_enabled()


def check_pattern_6_visible_devices():
    assert os.environ["ASCEND_RT_VISIBLE_DEVICES"] == "1,3" and torch.cuda.device_count() == 2


def check_pattern_8_flags_and_own_classes():
    class Mine:
        is_cuda = "mine"
        CUDA = 3

        def cuda(self):
            return self

    assert Mine().is_cuda == "mine" and Mine().cuda().CUDA == 3
    x = torch.ones(1)
    assert (
        x.cuda().is_cuda
        and not x.is_cuda
        and x.cuda("cuda:1").get_device() == 1
        and x.cuda(1).get_device() == 1
    )
    assert (
        x.cuda().storage().is_cuda and x.cuda().untyped_storage().is_cuda and not x.untyped_storage().is_cuda
    )
    assert pack_sequence([torch.ones(2)]).cuda().is_cuda and pack_sequence([torch.ones(2)]).to("cuda").is_cuda

    class Net(torch.nn.Linear):
        def cuda(self, device=None):
            self.seen = True
            return super().cuda(device)

    net = Net(1, 1).cuda()
    assert net.seen and net.weight.is_cuda


def check_pattern_9_typed_tensors():
    x = torch.cuda.FloatTensor([1.0, 2.0])
    assert x.is_cuda and isinstance(x, torch.cuda.FloatTensor) and not isinstance(x, torch.cuda.LongTensor)
    assert torch.cuda.LongTensor(3).dtype == torch.int64 and torch.cuda.ByteTensor(2, 2).shape == (2, 2)


def check_pattern_10_backend_settings():
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.deterministic = False
    torch.backends.cuda.matmul.allow_tf32 = True
    assert torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        pass


def check_pattern_11_where_things_go():
    x = torch.arange(4.0)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x), 2, pin_memory=True, pin_memory_device="cuda"
    )
    assert [batch[0].cuda().sum().item() for batch in loader] == [1.0, 5.0]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.pt")
        torch.save({"x": x.cuda()}, path)
        places = {
            "cuda:1": 1, torch.device("cuda", 1): 1, None: 0, "cpu": -1, "cuda": 0,
        }  # fmt: skip
        for place, index in places.items():
            assert torch.load(path, map_location=place)["x"].get_device() == index, place
        assert torch.load(path, map_location=lambda storage, location: storage.cuda(1))["x"].get_device() == 1
        assert torch.load(path, map_location=lambda storage, location: storage)["x"].get_device() == -1
        asked = []
        torch.load(path, map_location=lambda storage, location: asked.append(location))
        assert asked == ["cuda:0"]
        assert torch.load(path, map_location={"cuda:0": "cuda:1"})["x"].get_device() == 1
        assert torch.load(path, map_location={"cuda:0": "cpu"})["x"].get_device() == -1
        assert torch.load(path, map_location={"cuda:1": "cpu"})["x"].get_device() == 0
    gpu = torch.device("cuda")
    assert x.to(0).is_cuda and x.to(device=gpu).is_cuda and x.to("cuda", torch.float16).dtype == torch.float16
    assert (
        torch.nn.Linear(1, 1).to(1).weight.get_device() == 1
        and torch.nn.Linear(1, 1, device="cuda").weight.is_cuda
    )
    assert torch.nn.Linear(1, 1).to_empty(device="cuda").weight.is_cuda and x.to(x.cuda()).is_cuda
    assert x.pin_memory("cuda").is_pinned("cuda") and x.cuda().new_zeros(1, device="cuda:1").get_device() == 1


def check_pattern_11_checkpoint_of_a_gpu():
    """A file that says cuda:0, as a GPU machine writes it."""
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder, "npu.pt"), Path(folder, "gpu.pt")
        torch.save(torch.ones(3, device="cuda"), ours)
        with zipfile.ZipFile(ours) as source, zipfile.ZipFile(theirs, "w") as target:
            for name in source.namelist():
                data = source.read(name).replace(b"X\5\0\0\0npu:0", b"X\6\0\0\0cuda:0")
                target.writestr(name.replace("npu/", "gpu/"), data)
        assert b"cuda:0" in theirs.read_bytes()
        assert (
            torch.load(theirs).is_cuda
            and torch.load(theirs, map_location={"cuda:0": "cuda:1"}).get_device() == 1
        )
        assert torch.load(theirs, map_location="cpu").get_device() == -1


def check_pattern_14_graph_classes():
    assert torch.cuda.CUDAGraph is torch.npu.NPUGraph and torch.cuda.graph is torch.npu.graph
    assert isinstance(torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph)
    torch.cuda.cudart().cudaProfilerStart()
    with torch.cuda.profiler.profile():
        pass


def check_pattern_15_backend_names():
    assert dist.is_nccl_available() and dist.Backend.NCCL == "nccl" and dist.is_backend_available("nccl")
    assert dist.get_default_backend_for_device("cuda") == "nccl"


def check_pattern_15_out_of_memory():
    with pytest.raises(torch.cuda.OutOfMemoryError, match="full"):
        raise torch.OutOfMemoryError("full")

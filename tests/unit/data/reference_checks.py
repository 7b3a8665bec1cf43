"""Checks of the reference's pretence, run by test_reference.py in a process of its own: they need plain torch on the CPU.

Prints {check: traceback or ""} as JSON.
"""

import contextlib
import copy
import io
import json
import sys
import tempfile
import traceback
import warnings

import torch
import torch.nn.functional as functional
from torch import nn

from torchport.record import reference
from torchport.record.reference import cast_policy, parallel

CUDA = "cuda"
HALVES = (torch.float16, torch.bfloat16)


@contextlib.contextmanager
def patched():
    """The reference patch for the length of a block."""
    patches = reference.apply_reference_patches(torch)
    try:
        yield patches
    finally:
        patches.undo()


def registered(key):
    return set(torch._C._dispatch_get_registrations_for_dispatch_key(key))


# -- queries -------------------------------------------------------------------------------------------------------


def check_accelerator_is_the_cuda_device():
    assert not torch.accelerator.is_available()
    with patched():
        device = torch.accelerator.current_accelerator()
        assert torch.accelerator.is_available()
        assert device == torch.accelerator.current_accelerator(check_available=True) == torch.device(CUDA)
        assert torch.device(1) == torch.device(device=1) == torch.device("cuda:1")
        assert torch._C._nn._parse_to(1)[0] == torch._C._nn._parse_to(device=1)[0] == torch.device("cuda:1")
        assert (device.type, device.index) == ("cuda", None)
        assert nn.Linear(2, 2).to(device).weight.device.type == "cpu"
        assert torch.accelerator.device_count() == torch.cuda.device_count() == 1
        torch.accelerator.synchronize()
        torch.accelerator.empty_cache()
        assert torch.accelerator.memory_allocated() == torch.accelerator.max_memory_allocated() == 0
        assert torch.accelerator.get_memory_info()[1] > 2**28
        assert torch.accelerator.memory.memory_reserved() == 0
        assert isinstance(torch.Stream(), torch.Stream)
        assert not isinstance(3, torch.Stream)
        assert not torch.accelerator.current_stream().is_capturing()
        start, end = torch.Event(enable_timing=True), torch.Event(enable_timing=True)
        start.record()
        end.record()
        assert start.elapsed_time(end) >= 0
    assert not torch.accelerator.is_available()


def check_selected_device_is_remembered():
    import os

    with patched():
        os.environ["LOCAL_WORLD_SIZE"] = "4"
        try:
            assert torch.cuda.device_count() == torch.accelerator.device_count() == 4
        finally:
            del os.environ["LOCAL_WORLD_SIZE"]
        torch.cuda.set_device(2)
        assert torch.cuda.current_device() == torch.accelerator.current_device_index() == 2
        with torch.cuda.device("cuda:1"):
            assert torch.cuda.current_device() == 1
        torch.accelerator.set_device_index("cuda:3")
        assert torch.cuda.current_device() == 3
        torch.cuda.set_device(torch.device("cuda"))  # without an index: as it was
        assert torch.cuda.current_device() == 3
    with patched():
        assert torch.cuda.current_device() == 0


def check_default_device():
    with patched():
        assert torch.get_default_device() == torch.device("cpu")
        with torch.device(CUDA):
            assert torch.get_default_device() == torch.device("cuda:0")
            assert torch.ones(2).device.type == "cpu"
        with torch.device("cpu"):
            assert torch.get_default_device() == torch.device("cpu")
        torch.set_default_device("cuda:1")
        try:
            assert torch.get_default_device() == torch.device("cuda:1")
            assert nn.Linear(2, 2).weight.device.type == "cpu"
        finally:
            torch.set_default_device(None)
        assert torch.get_default_device() == torch.device("cpu")


def check_backends():
    with patched():
        assert torch.backends.cuda.is_built()
        assert torch.backends.cudnn.is_available()
        assert torch.backends.cudnn.version() >= 8000
    assert not torch.backends.cuda.is_built()


def check_pinned_memory_is_a_copy_that_says_so():
    with patched():
        x = torch.ones(3)
        pinned = x.pin_memory()
        x.zero_()
        assert pinned.sum() == 3
        assert pinned.is_pinned()
        assert pinned.pin_memory() is pinned
        assert not x.is_pinned()
        data = torch.utils.data.TensorDataset(torch.arange(8.0))
        for workers in (0, 1):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                loader = torch.utils.data.DataLoader(data, 4, pin_memory=True, num_workers=workers)
                batches = [batch for (batch,) in loader]
            assert torch.equal(torch.cat(batches), torch.arange(8.0))
            assert all(batch.is_pinned() for batch in batches)
    with warnings.catch_warnings(record=True) as told:  # the warning exists
        warnings.simplefilter("always")
        next(iter(torch.utils.data.DataLoader(data, 4, pin_memory=True)))
    assert "pin_memory" in str(told[0].message)


def check_backends_of_process_groups():
    for backend in (None, "nccl", "NCCL", "cpu:gloo,cuda:nccl", "cuda:nccl", "undefined"):
        assert parallel.to_gloo_backend(backend) == "gloo", backend
    assert parallel.to_gloo_backend("mpi") == "mpi"
    with patched(), tempfile.NamedTemporaryFile() as file:
        distributed = torch.distributed
        distributed.init_process_group(
            "nccl", init_method=f"file://{file.name}x", rank=0, world_size=1, device_id=torch.device("cuda:0")
        )
        try:
            group = distributed.new_group([0], backend="nccl")
            x = torch.ones(2, device=CUDA)
            distributed.all_reduce(x, group=group)
            assert x.tolist() == [1, 1]
            assert distributed.get_backend() == distributed.get_backend(group) == "nccl"
            assert distributed.get_backend(distributed.new_group([0], backend="gloo")) == "gloo"
            mesh = distributed.device_mesh.init_device_mesh(CUDA, (1,))
            assert mesh.size() == 1
            model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1), device_ids=[0], output_device=0)
            model(x).sum().backward()
            assert model.module.weight.grad.tolist() == [[1, 1]]
        finally:
            distributed.destroy_process_group()


# -- torch.compile -------------------------------------------------------------------------------------------------


def check_compiled_module_runs_eagerly_under_its_names():
    with patched():
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        compiled = torch.compile(model, mode="max-autotune", fullgraph=True)
        assert type(compiled).__name__ == "OptimizedModule"
        assert compiled._orig_mod is model
        assert list(compiled.state_dict()) == ["_orig_mod.0.weight", "_orig_mod.0.bias"]
        x = torch.rand(2, 3)
        assert torch.equal(compiled(x), model(x))
        assert compiled.eval() is compiled
        assert not model.training
        compiled.train()
        called = []
        model[0].register_forward_hook(lambda *_: called.append(torch.compiler.is_compiling()))
        compiled(x).sum().backward()
        assert called == [False]
        assert model[0].weight.grad is not None
        clone = copy.deepcopy(compiled)
        assert torch.equal(clone(x), compiled(x))
        model.compile(backend="inductor")
        assert torch.equal(model(x), compiled(x))

        @torch.compile(fullgraph=True)
        def twice(value):
            return value * 2

        assert twice(torch.ones(1)).item() == 2
        assert torch.compile(torch.compile(twice))(torch.ones(1)).item() == 2
        assert twice.__name__ == "twice"
        try:
            torch.compile(3)
        except (RuntimeError, AssertionError, TypeError):
            pass
        else:
            raise AssertionError("torch.compile(3) is an error")


# -- mixed precision -----------------------------------------------------------------------------------------------


def check_policy_is_cuda_s():
    ours = (
        cast_policy.LOWER_PRECISION
        | cast_policy.FLOAT32
        | cast_policy.FLOAT32_RESULT
        | cast_policy.FLOAT32_OVERLOAD.keys()
        | cast_policy.WIDEST
        | cast_policy.REFUSED
    )
    cuda = {name.removeprefix("aten::") for name in registered("AutocastCUDA")}
    assert ours == cuda - {"cudnn_convolution", "cudnn_convolution_transpose"}
    assert registered("AutocastCPU") - registered("AutocastCUDA")  # the lists differ: it matters whose are followed


def check_kernels_are_taken_back():
    before = {key: registered(key) for key in ("AutocastCPU", "CPU")}
    x = torch.rand(4, 4)
    with patched():
        with torch.autocast(CUDA):
            assert (x @ x).dtype == torch.float16
            assert functional.conv2d(x[None, None], x[None, None, :2, :2]).dtype == torch.float16
    assert before == {key: registered(key) for key in before}
    assert (x.half() @ x.half()).dtype == torch.float16
    with torch.autocast("cpu"):
        assert (x @ x).dtype == torch.bfloat16
        assert functional.mse_loss(x.bfloat16(), x.bfloat16()).dtype == torch.float32
    with torch.autocast(CUDA):
        assert (x @ x).dtype == torch.float32


def check_autocast_state_answers_as_on_a_gpu():
    with patched():
        assert not torch.is_autocast_enabled()
        assert torch.get_autocast_dtype(CUDA) == torch.get_autocast_gpu_dtype() == torch.float16
        with torch.autocast(CUDA, dtype=torch.bfloat16):
            assert torch.is_autocast_enabled()
            assert torch.is_autocast_enabled(CUDA)
            assert torch.get_autocast_dtype(CUDA) == torch.get_autocast_gpu_dtype() == torch.bfloat16
            with torch.autocast(CUDA, enabled=False):
                assert not torch.is_autocast_enabled()
            # What libraries write: tensors of the device say "cpu".
            with torch.autocast(torch.ones(1, device=CUDA).device.type, enabled=False):
                assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
        assert not torch.is_autocast_enabled("cpu")
        with torch.cuda.amp.autocast():
            assert torch.is_autocast_cpu_enabled()
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float16
        torch.set_autocast_gpu_dtype(torch.bfloat16)
        assert torch.get_autocast_cpu_dtype() == torch.get_autocast_dtype(CUDA) == torch.bfloat16
        torch.set_autocast_dtype(CUDA, torch.float16)
        torch.set_autocast_enabled(True)  # without a device: CUDA
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float16
        torch.set_autocast_enabled("cuda", False)
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def check_autocast_casts_as_cuda_does():
    with patched():
        x = torch.rand(4, 4)
        half = x.half()
        image = torch.rand(1, 2, 6, 6)
        labels = torch.zeros(4, dtype=torch.long)
        for dtype in HALVES:
            with torch.autocast(CUDA, dtype=dtype):
                low = x.to(dtype)
                lower = [
                    x @ x, functional.linear(x, x), torch.bmm(x[None], x[None]), torch.einsum("ij,jk->ik", x, x),
                    functional.conv2d(image, torch.rand(3, 2, 3, 3)), nn.ConvTranspose2d(2, 3, 2)(image),
                    functional.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
                    nn.LSTM(4, 4)(x)[0], nn.GRU(4, 4)(x)[0], nn.LSTMCell(4, 4)(x)[0], torch.addmm(x, x, x),
                    functional.gelu(low), functional.relu(low), low + low, functional.max_pool2d(low[None], 2),
                    nn.BatchNorm2d(2)(image.to(dtype)), functional.dropout(low, 0.5), torch.addcmul(low, low, low),
                    nn.MultiheadAttention(4, 2)(x[None], x[None], x[None])[0],
                ]
                full = [
                    functional.softmax(low, -1), functional.log_softmax(low, -1), functional.layer_norm(low, (4,)),
                    functional.group_norm(image.to(dtype), 2), low.exp(), low.log(), low.pow(2), low.sum(),
                    low.sum(0), low.prod(), low.cumsum(0), low.norm(), torch.norm(low, dim=1), functional.mse_loss(low, low),
                    functional.cross_entropy(low, labels), functional.interpolate(image.to(dtype), scale_factor=2),
                    functional.binary_cross_entropy_with_logits(low, low), torch.cdist(low, low), low.rsqrt(),
                    torch.cat([x, low]), torch.stack([x, low]), x + low, torch.addcmul(x, low, low), low.cosh(),
                ]
                assert [one.dtype for one in lower] == [dtype] * len(lower)
                assert [one.dtype for one in full] == [torch.float32] * len(full)
                assert low.sum(dtype=torch.float64).dtype == torch.float64
                assert (x.double() @ x.double()).dtype == torch.float64
                raises(RuntimeError, "unsafe to autocast", functional.binary_cross_entropy, x, x)
        with torch.autocast(CUDA, dtype=torch.bfloat16):
            raises(RuntimeError, "prioritize", torch.addcmul, half, half, half)


def check_weights_are_cast_once_in_a_region():
    """The gradient of a weight that is used twice is added up in half precision, as on a GPU."""
    with patched():
        weight = torch.ones(1, 1, requires_grad=True)
        first, second = torch.tensor([[2048.0]]), torch.tensor([[1.0]])
        with torch.autocast(CUDA, dtype=torch.float16):
            (first @ weight + second @ weight).float().sum().backward()
        assert weight.grad.dtype == torch.float32
        assert weight.grad.item() == 2048  # 2049 is no float16
        weight.grad = None
        with torch.autocast(CUDA, dtype=torch.float16, cache_enabled=False):
            (first @ weight + second @ weight).float().sum().backward()
        assert weight.grad.item() == 2049
        with torch.autocast(CUDA, dtype=torch.float16):
            before = torch.ones(1, 1) @ weight
        with torch.no_grad():
            weight += 1
        with torch.autocast(CUDA, dtype=torch.float16):
            assert (torch.ones(1, 1) @ weight).item() == before.item() + 1  # a new region casts anew


def check_checkpointing_recomputes_under_the_same_autocast():
    with patched():
        net, x = nn.Linear(4, 4), torch.rand(2, 4, requires_grad=True)
        seen = []

        def part(value):
            out = net(value)
            seen.append(out.dtype)
            return out

        for reentrant in (False, True):
            with torch.autocast(CUDA, dtype=torch.bfloat16):
                out = torch.utils.checkpoint.checkpoint(part, x, use_reentrant=reentrant)
            out.float().sum().backward()
        assert seen == [torch.bfloat16] * 3, seen  # one of the recomputations stops at what it needs


def check_custom_functions_cast_what_is_on_the_device():
    with patched():

        class Wide(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type=CUDA, cast_inputs=torch.float32)
            def forward(ctx, x):
                return x @ x

            @staticmethod
            @torch.amp.custom_bwd(device_type=CUDA)
            def backward(ctx, grad):
                return grad

        with torch.autocast(CUDA):
            assert Wide.apply(torch.ones(2, 2, dtype=torch.float16)).dtype == torch.float32


def check_scaler_scales_skips_and_grows():
    with patched():
        for make in (lambda **k: torch.amp.GradScaler(CUDA, **k), lambda **k: torch.cuda.amp.GradScaler(**k)):
            weight = torch.ones(1, requires_grad=True)
            optimizer = torch.optim.SGD([weight], lr=1.0)
            scaler = make(init_scale=8.0, growth_interval=2)
            assert scaler.is_enabled()
            scales = []
            for factor in (1.0, float("inf"), 1.0, 1.0):
                optimizer.zero_grad()
                scaler.scale((weight * factor).sum()).backward()
                scaler.unscale_(optimizer)
                if factor == 1:
                    assert weight.grad.item() == 1
                scaler.step(optimizer)
                scaler.update()
                scales.append(scaler.get_scale())
            assert scales == [8, 4, 4, 8]
            assert weight.item() == 1 - 3  # one of four was skipped
        assert not torch.amp.GradScaler(CUDA, enabled=False).is_enabled()


def check_training_in_half_precision_learns():
    with patched():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 1)).cuda()
        optimizer, scaler = torch.optim.Adam(net.parameters(), 1e-2), torch.amp.GradScaler(CUDA)
        x = torch.rand(64, 4).cuda()
        losses = []
        for _ in range(40):
            with torch.autocast(CUDA, dtype=torch.float16):
                loss = functional.mse_loss(net(x), x.sum(1, keepdim=True))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        assert losses[-1] < losses[0] / 10


# -- half precision ------------------------------------------------------------------------------------------------

ROUNDED_ONCE = 0.51  # of a unit in the last place; one more rounding can make it 1


def rounding(result, exact):
    """The largest error of `result` in units of its last place, against float64."""
    result, exact, eps = result.detach().double(), exact.detach().double(), torch.finfo(result.dtype).eps
    # The unit of a binade is eps times its lower end. Values far below the mean carry the error of their sum.
    unit = 2.0 ** exact.abs().clamp_min(exact.abs().mean() * 0.1 + 1e-30).log2().floor() * eps
    return ((result - exact).abs() / unit).max().item()


CASES = {
    "linear": (functional.linear, (16, 300), (32, 300), (32,)),
    "matmul": (torch.matmul, (4, 16, 200), (4, 200, 8)),
    "conv2d": (lambda x, w, b: functional.conv2d(x, w, b, 2, 1), (8, 16, 12, 12), (24, 16, 3, 3), (24,)),
    "conv_transpose2d": (lambda x, w: functional.conv_transpose2d(x, w), (4, 16, 6, 6), (16, 8, 3, 3)),
    "layer_norm": (lambda x, w, b: functional.layer_norm(x, (64,), w, b), (32, 64), (64,), (64,)),
    "group_norm": (lambda x, w, b: functional.group_norm(x, 4, w, b), (8, 16, 5, 5), (16,), (16,)),
    "batch_norm": (
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, True), (8, 16, 5, 5), (16,), (16,)
    ),
    "embedding": (lambda w: functional.embedding(torch.zeros(300, dtype=torch.long), w), (5, 8)),
    "indexing": (lambda w: w[torch.zeros(300, dtype=torch.long)], (5, 8)),
    "interpolate": (lambda x: functional.interpolate(x, scale_factor=1.7, mode="bilinear"), (2, 3, 8, 8)),
    "avg_pool2d": (lambda x: functional.avg_pool2d(x, 3, 1), (2, 3, 8, 8)),
    "avg_pool3d": (lambda x: functional.avg_pool3d(x, 2), (2, 3, 8, 8, 8)),
    "unfold": (lambda x: functional.unfold(x, 3), (2, 3, 8, 8)),
    "rrelu": (lambda x: functional.rrelu(x, 0.125, 0.125, True), (20, 8)),
    "multi_margin_loss": (lambda x: functional.multi_margin_loss(x, torch.zeros(20, dtype=torch.long)), (20, 8)),
    "gelu": (functional.gelu, (200, 8)),
    "sum": (lambda x: x.sum(0), (300, 8)),
}


def errors(name):
    """Roundings of the result and of each gradient of a case, against float64, for both dtypes."""
    function, *shapes = CASES[name]
    found = []
    for dtype in HALVES:
        torch.manual_seed(0)
        given = [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]
        exact = [one.detach().double().requires_grad_() for one in given]
        result, expected = function(*given), function(*exact)
        assert result.dtype is dtype
        gradient = torch.randn(result.shape).to(dtype)
        result.backward(gradient)
        expected.backward(gradient.double())
        assert {one.grad.dtype for one in given} == {dtype}
        found.append(rounding(result, expected))
        found += [rounding(one.grad, other.grad) for one, other in zip(given, exact, strict=True)]
    return found


def check_half_precision_is_rounded_once():
    with patched():
        found = {name: errors(name) for name in CASES}
    bad = {name: each for name, each in found.items() if max(each) > ROUNDED_ONCE}
    assert bad == {}, bad


def check_attention_in_half_precision():
    with patched():
        for dtype in HALVES:
            q, k, v = (torch.randn(2, 4, 32, 16).to(dtype) for _ in range(3))
            result = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            exact = functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
            assert rounding(result, exact) < ROUNDED_ONCE


def check_without_the_kernels_it_is_not():
    """The bound notices what the CPU does by itself."""
    assert max(errors("embedding")) > 1
    assert max(errors("avg_pool2d")) > ROUNDED_ONCE


def check_results_in_place_and_out():
    with patched():
        x = torch.rand(3, 3).half()
        for change, functional_form in (
            (lambda y: y.addmm_(x, x), lambda y: y + x @ x),
            (lambda y: y.index_add_(0, torch.tensor([0, 0]), x[:2]), lambda y: y + torch.stack([x[0] + x[1], x[2] * 0, x[2] * 0])),
            (lambda y: y.index_put_((torch.tensor([0, 0]),), x[:2], accumulate=True), lambda y: y + torch.stack([x[0] + x[1], x[2] * 0, x[2] * 0])),
        ):
            y = x.clone()
            assert change(y) is y
            assert torch.allclose(y.float(), functional_form(x.double()).float(), atol=2e-3)
        out = torch.empty(0, dtype=torch.float16)
        assert torch.mm(x, x, out=out) is out
        assert torch.equal(out, x @ x)
        y = x.clone()
        y[torch.tensor([0, 2])] = 5.0  # a number in place of a tensor
        assert y[0].tolist() == [5, 5, 5]
        running = torch.zeros(3, dtype=torch.float16)
        functional.batch_norm(x + 1, running, torch.ones(3, dtype=torch.float16), training=True)
        assert running.abs().sum() > 0


def check_other_dtypes_are_left_alone():
    x = torch.rand(5, 5)
    plain = [x @ x, x.double() @ x.double(), functional.layer_norm(x, (5,)), functional.conv1d(x[None], x[:, :, None])]
    with patched():
        torch.ones(1).half()
        again = [x @ x, x.double() @ x.double(), functional.layer_norm(x, (5,)), functional.conv1d(x[None], x[:, :, None])]
        assert all(map(torch.equal, plain, again))


def check_kernels_come_with_the_first_half():
    """A script in float32 does not pay for them."""
    def replaced():
        return "half.py" in str(torch.library.get_kernel(torch.ops.aten.mm.default, "CPU"))

    starts = (
        lambda: torch.ones(1).half(),
        lambda: torch.ones(1).to(torch.bfloat16),
        lambda: torch.zeros(1, dtype=torch.float16),
        lambda: nn.Linear(2, 2).to(torch.bfloat16),
        lambda: nn.Linear(2, 2).half(),
        lambda: torch.autocast(CUDA).__enter__().__exit__(None, None, None),
        lambda: torch.ones(1).type("torch.cuda.HalfTensor"),
        lambda: load_half(),
    )
    for start in starts:
        with patched():
            torch.ones(2, 2) @ torch.ones(2, 2)
            nn.Linear(2, 2).to(CUDA)
            assert not replaced()
            start()
            assert replaced()
        assert not replaced()


HALF_FILE = io.BytesIO()
torch.save({"weights": [torch.ones(2, dtype=torch.float16)]}, HALF_FILE)


def load_half():
    HALF_FILE.seek(0)
    return torch.load(HALF_FILE)


def raises(kind, text, function, *args):
    try:
        function(*args)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"{function} raised nothing")


if __name__ == "__main__":
    results = {}
    for name, check in [(name, value) for name, value in globals().items() if name.startswith("check_")]:
        try:
            check()
            results[name] = ""
        except Exception:
            results[name] = traceback.format_exc()
    json.dump(results, sys.stdout)

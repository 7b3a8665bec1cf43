"""What programs do with random numbers beside drawing them: seeds, states, checkpoints, compilers, transforms."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, random_split

from torchport.patches import Patches
from torchport.record.draws import Draws

DEVICES = pytest.mark.parametrize("device", ["cpu", "npu"])


def test_lines_visits_and_seeds_give_different_numbers(draws):
    drawn = [torch.rand(5, device="npu") for _ in range(3)]
    drawn.append(torch.rand(5, device="npu"))
    drawn.append(torch.rand(5))
    torch.manual_seed(1)
    drawn.append(torch.rand(5))
    assert len({tuple(one.tolist()) for one in drawn}) == len(drawn)


def test_the_seed_of_the_run_decides_what_the_script_does_not_seed(told):
    def first(seed):
        patches = Patches()
        Draws(torch, seed, lambda: "here", lambda *what: told.append(what)).install(patches)
        chance = torch.Generator().seed()
        drawn = torch.rand(5), torch.rand(5, generator=torch.Generator().manual_seed(chance))
        patches.undo()
        return [tuple(one.tolist()) for one in drawn]

    assert first(1) == first(1)
    assert not set(first(1)) & set(first(2))


@DEVICES
def test_the_same_seed_gives_the_same_weights_on_another_line(device, draws):
    torch.manual_seed(3)
    one = nn.Linear(4, 4, device=device)
    torch.manual_seed(3)
    other = nn.Linear(4, 4, device=device)
    assert torch.equal(one.weight, other.weight)
    assert not torch.equal(one.weight, nn.Linear(4, 4, device=device).weight)


@pytest.mark.parametrize("name", ["manual_seed", "manual_seed_all"])
def test_a_seed_for_the_device(name, draws):
    seed = getattr(torch.npu, name)

    def draw(host, device):
        torch.manual_seed(host)
        seed(device)
        return torch.rand(5, device="npu")

    assert torch.equal(draw(3, 3), draw(3, 3))
    assert torch.equal(draw(3, 4), draw(3, 4))
    assert not torch.equal(draw(3, 3), draw(3, 4))
    assert not torch.equal(draw(5, 4), draw(3, 4))  # ranks that differ in the host's seed alone


@DEVICES
def test_a_state_is_returned_to(device, draws):
    module = torch if device == "cpu" else torch.npu
    torch.manual_seed(3)
    torch.rand(7, device=device)
    state = module.get_rng_state()
    one = torch.rand(5, device=device), functional.dropout(torch.ones(9, device=device))
    module.set_rng_state(state)
    again = torch.rand(5, device=device), functional.dropout(torch.ones(9, device=device))
    assert all(map(torch.equal, one, again))
    assert not torch.equal(torch.rand(5, device=device), one[0])
    assert not torch.equal(module.get_rng_state(), state)


def test_a_state_in_a_loop(draws):
    torch.manual_seed(3)
    seen = set()
    for _ in range(4):
        state = torch.get_rng_state()
        one = torch.rand(5)
        torch.set_rng_state(state)
        other = torch.rand(5)
        assert torch.equal(one, other)
        seen.add(tuple(one.tolist()))
    assert len(seen) == 4


def test_a_state_from_a_file_of_another_process(told):
    """It gives what follows: the same from equal files, another from another file."""

    def continued(state):
        patches = Patches()
        Draws(torch, 0, lambda: "here", lambda *what: told.append(what)).install(patches)
        torch.set_rng_state(torch.load(io.BytesIO(state)))
        drawn = torch.rand(5, device="npu")
        patches.undo()
        return drawn

    def saved(draws_made):
        patches = Patches()
        Draws(torch, 0, lambda: "here", lambda *what: told.append(what)).install(patches)
        torch.manual_seed(3)
        for _ in range(draws_made):
            torch.rand(5)
        file = io.BytesIO()
        torch.save(torch.get_rng_state(), file)
        patches.undo()
        return file.getvalue()

    assert torch.equal(continued(saved(1)), continued(saved(1)))
    assert not torch.equal(continued(saved(1)), continued(saved(2)))


def test_fork_rng_leaves_no_trace(draws):
    def draw(fork):
        torch.manual_seed(3)
        torch.rand(5)
        if fork:
            with torch.random.fork_rng(devices=[0], device_type="npu"):
                torch.manual_seed(9)
                torch.rand(5, device="npu")
        return torch.rand(5, device="npu")

    assert torch.equal(draw(fork=False), draw(fork=True))


@DEVICES
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_drops_the_same_again(device, reentrant, draws):
    masks = []
    layer = nn.Linear(8, 8).to(device)

    def block(x):
        out = functional.dropout(layer(x))
        masks.append((out != 0).cpu())
        return out

    more = {} if reentrant else {"early_stop": False}
    x = torch.ones(4, 8, device=device, requires_grad=True)
    for _ in range(2):
        out = x
        for _ in range(3):
            out = checkpoint(block, out, use_reentrant=reentrant, **more)
        before = torch.rand(5)
        out.sum().backward()
        assert not torch.equal(before, torch.rand(5))
    first, second = masks[:6], masks[6:]
    for run in (first, second):
        assert len(run) == 6
        assert all(torch.equal(made, again) for made, again in zip(run[:3], run[:2:-1], strict=True))
    assert len({tuple(mask.flatten().tolist()) for mask in masks}) == 6


def test_generators_of_the_device_have_their_own_stream(draws):
    generator = torch.Generator("npu").manual_seed(5)
    one = torch.rand(5, device="npu", generator=generator)
    state = generator.get_state()
    two = torch.rand(5, device="npu", generator=generator)
    generator.set_state(state)
    assert torch.equal(torch.rand(5, device="npu", generator=generator), two)
    torch.manual_seed(5)
    other = torch.Generator("npu").manual_seed(5)
    assert torch.equal(torch.rand(5, device="npu", generator=other), one)
    assert not torch.equal(one, two)
    assert not torch.equal(torch.rand(5, device="npu"), one)


def test_generators_that_the_reference_pretends_are_the_devices(draws, both):
    class Pretended(type):
        def __call__(cls, device="cpu"):
            return type(torch.default_generator)("cpu")

    patches = Patches()
    patches.set(torch, "Generator", Pretended("Generator", (), {}))
    draws.generators._watch_pretended(patches)
    pretended = torch.Generator("cuda").manual_seed(5)
    one = torch.rand(5, generator=pretended)
    host = torch.rand(5, generator=torch.Generator("cpu").manual_seed(5))
    patches.undo()
    device = torch.Generator("npu").manual_seed(5)
    assert torch.equal(torch.rand(5, generator=device, device="npu").cpu(), one)
    assert not torch.equal(one, host)


def test_generators_of_the_host_are_torchs(draws):
    split = random_split(range(50), [25, 25], torch.Generator().manual_seed(1))[0].indices
    assert split == torch.randperm(50, generator=torch.Generator().manual_seed(1))[:25].tolist()


def test_the_order_of_data_does_not_follow_the_device(draws):
    def order(noise):
        torch.manual_seed(3)
        batches = []
        for batch in DataLoader(range(40), batch_size=4, shuffle=True, num_workers=2):
            batches.append(batch.tolist())
            for _ in range(noise):
                torch.rand(5, device="npu")
        return [batches, *(batch.tolist() for batch in DataLoader(range(40), shuffle=True))]

    assert order(0) == order(3)


@DEVICES
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_code_draws_the_same(device, backend, draws, told):
    def work(x):
        y = functional.dropout(x, 0.5) + torch.rand_like(x) * torch.randn(8, device=x.device)
        return functional.scaled_dot_product_attention(y, y, y, dropout_p=0.2)

    def train(function, device):
        torch.manual_seed(3)
        x = torch.ones(2, 3, 4, 8, device=device, requires_grad=True)
        out = function(x)
        out.square().sum().backward()
        return torch.stack([out, x.grad]).detach().cpu()

    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = train(torch.compile(work, backend=backend), device)
    assert torch.allclose(compiled, train(torch.compile(work, backend=backend), "cpu"), atol=1e-5)
    if backend == "eager":
        assert torch.allclose(compiled, train(work, "cpu"), atol=1e-5)
    assert told == []


@DEVICES
def test_code_between_compiled_graphs_draws_the_same(device, draws):
    def work(x):
        torch._dynamo.graph_break()
        return functional.dropout(x, 0.5)

    class Model(nn.Module):
        def forward(self, x):
            return work(x * 2)

    def called(module, inputs):  # a hook for all modules breaks the graph, as that of a recorder does
        pass

    torch._dynamo.reset()
    hook = torch.nn.modules.module.register_module_forward_pre_hook(called)
    try:
        model = nn.Sequential(Model(), nn.Dropout(0.5))
        torch.manual_seed(3)
        compiled = torch.compile(model, backend="aot_eager")(torch.ones(50, device=device)).cpu()
        torch.manual_seed(3)
        assert torch.equal(compiled, model(torch.ones(50)))
    finally:
        hook.remove()


@DEVICES
@pytest.mark.parametrize("requires_grad", [False, True])
def test_compiled_code_draws_anew_in_each_call(device, requires_grad, draws):
    torch._dynamo.reset()
    work = torch.compile(lambda x: functional.dropout(x, 0.5), backend="aot_eager")
    x = torch.ones(50, device=device, requires_grad=requires_grad)
    assert len({tuple(work(x).tolist()) for _ in range(3)}) == 3


@DEVICES
def test_traced_code_draws_the_same(device, draws):
    traced = torch.jit.trace(lambda x: functional.dropout(x, 0.5), torch.ones(9), check_trace=False)
    torch.manual_seed(3)
    one = traced(torch.ones(9, device=device)).cpu()
    torch.manual_seed(3)
    assert torch.equal(one, functional.dropout(torch.ones(9), 0.5))


@DEVICES
def test_gradients_of_samples_have_masks_of_their_own(device, draws):
    gradients = torch.func.vmap(torch.func.grad(lambda x: functional.dropout(x).square().sum()), randomness="different")
    first, second = gradients(torch.ones(2, 50, device=device))
    assert set(first.tolist()) == {0.0, 8.0}
    assert not torch.equal(first, second)


@DEVICES
def test_vmap_decides_whether_samples_share_a_mask(device, draws):
    def masks(randomness):
        return torch.func.vmap(lambda x: functional.dropout(x), randomness=randomness)(torch.ones(3, 50, device=device))

    assert torch.equal(*masks("same")[:2])
    assert not torch.equal(*masks("different")[:2])
    with pytest.raises(RuntimeError, match="randomness error mode"):
        masks("error")


def test_fake_and_meta_tensors_draw_nothing(draws):
    from torch._subclasses.fake_tensor import FakeTensorMode

    torch.manual_seed(3)
    torch.rand(5, device="meta").normal_()
    with FakeTensorMode():
        functional.dropout(torch.rand(5, device="npu"))
    mark = draws.generators.default.mark
    assert mark == 0
    torch.rand(5)
    assert draws.generators.default.mark != mark


def test_a_captured_graph_draws_by_itself_and_is_named(draws, told):
    x = torch.ones(100, device="npu")
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        out = x * torch.empty(100, device="npu").uniform_()
    graph.replay()
    torch.npu.synchronize()
    assert ((out.cpu() >= 0) & (out.cpu() < 1)).all()
    assert [operator for operator, _ in told] == ["aten::uniform_, while a graph is captured"]
    assert "test_programs.py" in told[0][1]


def test_a_captured_dropout_is_the_devices_and_is_named(draws, told):
    x = torch.ones(1000, device="npu")
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        out = functional.dropout(x, 0.5)
    graph.replay()
    torch.npu.synchronize()
    assert set(out.tolist()) == {0.0, 2.0}
    assert [operator for operator, _ in told] == ["aten::native_dropout, while a graph is captured"]


def test_a_draw_that_does_not_fit_is_torchs_and_is_named(draws, told):
    torch.randperm(300, dtype=torch.bfloat16)  # more numbers than the dtype holds
    assert [operator for operator, _ in told] == ["aten::randperm.generator_out"]
    draws.step_done()
    with pytest.raises(RuntimeError):
        torch.empty(5).normal_(0, -1)
    torch.randperm(300, dtype=torch.bfloat16, generator=torch.Generator())
    torch.rand(5, generator=torch.Generator())
    assert len(told) == 1


def test_an_operator_that_draws_inside_is_named(draws, told):
    import torch_npu

    x = torch.ones(2, 4, 16, 16, device="npu", dtype=torch.float16)
    torch_npu.npu_fusion_attention(x, x, x, 4, "BNSD", keep_prob=1.0)
    assert told == []
    for _ in range(2):
        torch_npu.npu_fusion_attention(x, x, x, 4, "BNSD", keep_prob=0.5)
    assert [operator for operator, _ in told] == ["npu::npu_fusion_attention"]
    assert "test_programs.py" in told[0][1]


def test_a_draw_that_nobody_saw_is_noticed_at_the_step(draws, told):
    torch.rand(5, device="npu")
    draws.step_done()
    functional.dropout(torch.ones(5, device="npu"))
    torch.manual_seed(3)
    torch.npu.set_rng_state(torch.npu.get_rng_state())
    draws.step_done()
    draws.step_done()
    assert told == []
    generator = torch.npu.default_generators[torch.npu.current_device()]
    generator.set_offset(generator.get_offset() + 4)  # as an operator in C++ would
    draws.step_done()
    assert told == [("an operator that moves the generator of npu:0", "between two steps")]
    draws.step_done()
    assert len(told) == 1


def test_without_the_functions_that_it_needs_it_says_so(told, monkeypatch):
    patches = Patches()
    monkeypatch.setattr(torch, "__version__", "2.0.1")
    Draws(torch, 0, lambda: "here", lambda *what: told.append(what)).install(patches)
    patches.undo()
    assert [operator.split(":")[0] for operator, _ in told] == ["every draw"]


def test_undo_puts_the_devices_numbers_back(told):
    def native():
        torch.manual_seed(3)
        return [
            torch.rand(5),
            torch.rand(5, device="npu").cpu(),
            functional.dropout(torch.ones(50, device="npu")).cpu(),
            functional.dropout(torch.ones(50)),
        ]

    before, patches = native(), Patches()
    kind = type(torch.default_generator)
    methods = kind.get_state, kind.set_state, kind.manual_seed, kind.seed, torch.npu.manual_seed
    Draws(torch, 0, lambda: "here", lambda *what: told.append(what)).install(patches)
    assert not any(map(torch.equal, before, native()))
    patches.undo()
    assert all(map(torch.equal, before, native()))
    assert methods == (kind.get_state, kind.set_state, kind.manual_seed, kind.seed, torch.npu.manual_seed)


LATE = """
from torchport import vnpu

vnpu.activate(force=True)
import torch
from torchport.patches import Patches
from torchport.record.draws import Draws

patches, told = Patches(), []
Draws(torch, 0, lambda: "here", lambda *what: told.append(what)).install(patches)
import torch_npu

found = []
for device in ("cpu", "npu"):
    torch.manual_seed(1)
    torch.npu.manual_seed(2)
    found.append(torch.nn.functional.dropout(torch.rand(50, device=device)).cpu())
assert torch.equal(*found)
assert told == []
patches.undo()
torch.manual_seed(1)
assert not torch.equal(torch.rand(50), found[0])
print("done")
"""


def test_torch_npu_may_come_after_torch():
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-W", "ignore", "-c", LATE]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert run.stdout == "done\n", run.stderr

"""Graph capture: torch.npu.NPUGraph, torch.npu.graph and make_graphed_callables on the virtual NPU."""

from __future__ import annotations

import ctypes
import json

import pytest
import torch
import torch_npu  # noqa: F401
from ascendcl import code, message


def test_capture_runs_nothing_and_replay_takes_new_inputs() -> None:
    x = torch.ones(4, device="npu")
    out = torch.zeros(4, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        out.copy_(x * 2 + 1)
    assert out.cpu().tolist() == [0.0] * 4  # captured, not run
    graph.replay()
    assert out.cpu().tolist() == [3.0] * 4
    x.copy_(torch.arange(4.0))
    graph.replay()
    assert out.cpu().tolist() == [1.0, 3.0, 5.0, 7.0]


def test_tensors_of_a_capture_keep_their_memory() -> None:
    """What was allocated in the capture is in its private pool: nothing else may get it before the graph is gone."""
    x = torch.full((64,), 2.0, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        inside = x + 1
        result = inside * x
        del inside
    others = [torch.full((64,), -1.0, device="npu") for _ in range(50)]
    graph.replay()
    assert result.cpu().tolist() == [6.0] * 64
    assert all(bool((t == -1).all()) for t in others)


def test_a_training_step() -> None:
    def model() -> torch.nn.Sequential:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))

    data = [torch.randn(5, 3, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    reference = model().double()
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):  # the warm-up below
        optimizer.zero_grad()
        reference(data[0].double()).square().mean().backward()
        optimizer.step()
    for x in data:
        optimizer.zero_grad()
        reference(x.double()).square().mean().backward()
        optimizer.step()

    net = model().npu()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    static = data[0].npu()
    side = torch.npu.Stream()
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            net(static).square().mean().backward()
            optimizer.step()
    torch.npu.current_stream().wait_stream(side)
    graph = torch.npu.NPUGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.npu.graph(graph):
        loss = net(static).square().mean()
        loss.backward()
        optimizer.step()
    for x in data:
        static.copy_(x)
        graph.replay()
    for actual, expected in zip(net.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(actual.cpu().double(), expected, rtol=1e-4, atol=1e-6)


def test_streams_that_join_a_capture() -> None:
    x = torch.ones(8, device="npu")
    result = torch.zeros(8, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        origin = torch.npu.current_stream()
        side = torch.npu.Stream()
        half = x / 2
        side.wait_stream(origin)
        with torch.npu.stream(side):
            other = half + 10
        origin.wait_stream(side)
        result.copy_(other + half)
    for value in (1.0, 6.0):
        x.fill_(value)
        graph.replay()
        assert result.cpu().tolist() == [value + 10] * 8


def test_random_numbers_differ_between_replays_and_repeat_with_the_seed() -> None:
    out = torch.zeros(1000, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        out.copy_(torch.nn.functional.dropout(torch.ones(1000, device="npu"), 0.5))

    def replays() -> list[torch.Tensor]:
        torch.npu.manual_seed(3)
        drawn = []
        for _ in range(2):
            graph.replay()
            drawn.append(out.cpu().clone())
        return drawn

    first, second = replays(), replays()
    assert not torch.equal(first[0], first[1])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert 400 < int((first[0] == 2).sum()) < 600


def test_graphed_callables() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    wide = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()).double()
    wide.load_state_dict(layer.state_dict())
    layer = layer.npu()
    graphed = torch.npu.make_graphed_callables(layer, (torch.randn(2, 4, device="npu", requires_grad=True),))
    for seed in range(3):
        x = torch.randn(2, 4, generator=torch.Generator().manual_seed(seed))
        a, b = x.npu().requires_grad_(), x.double().requires_grad_()
        y, expected = graphed(a), wide(b)
        torch.testing.assert_close(y.detach().cpu().double(), expected.detach(), rtol=1e-5, atol=1e-6)
        layer.zero_grad()
        wide.zero_grad()
        y.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(a.grad.cpu().double(), b.grad, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(layer[0].weight.grad.cpu().double(), wide[0].weight.grad, rtol=1e-4, atol=1e-6)


def test_waiting_inside_a_capture_is_refused() -> None:
    x = torch.ones(2, device="npu")
    stream = torch.npu.Stream()
    graph = torch.npu.NPUGraph()
    torch.npu.synchronize()
    with torch.npu.stream(stream):
        graph.capture_begin()
        try:
            y = x + 1
            with pytest.raises(RuntimeError, match=r"107027|captured into graph"):
                stream.synchronize()
        finally:
            graph.capture_end()
    graph.replay()
    assert y.cpu().tolist() == [2.0, 2.0]
    assert not torch.npu.is_current_stream_capturing()


def test_a_graph_tells_its_operators(tmp_path) -> None:
    x = torch.ones(4, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        (x * 2).exp()
    graph.debug_dump(str(tmp_path / "graph.json"))
    names = [event["name"] for event in json.loads((tmp_path / "graph.json").read_text())]
    assert [name for name in names if name.startswith("aclnn")] == ["aclnnMuls", "aclnnExp"]


def test_a_group_of_tasks_is_replaced_between_replays() -> None:
    """As vLLM does with attention's lengths: the graph waits for an event that says that the update is made."""
    x, out, behind = (torch.zeros(4, device="npu") for _ in range(3))
    scale, other = torch.full((4,), 3.0, device="npu"), torch.full((4,), 5.0, device="npu")
    graph, side, ready = torch.npu.NPUGraph(), torch.npu.Stream(), torch.npu.ExternalEvent()
    with torch.npu.graph(graph):
        stream = torch.npu.current_stream()
        ready.wait(stream)
        ready.reset(stream)
        torch.npu.graph_task_group_begin(stream)
        torch.add(x, scale, out=out)
        group = torch.npu.graph_task_group_end(stream)
        torch.add(out, 1, out=behind)

    def replay(addend: torch.Tensor | None) -> list[float]:
        with torch.npu.stream(side):
            if addend is not None:
                torch.npu.graph_task_update_begin(side, group)
                torch.add(x, addend, out=out)
                torch.npu.graph_task_update_end(side)
            ready.record(side)
        graph.replay()
        return behind.cpu().tolist()

    x.fill_(1)
    torch.npu.synchronize()
    assert replay(None) == [5.0] * 4
    assert replay(other) == [7.0] * 4
    assert replay(scale) == [5.0] * 4
    x.fill_(2)
    torch.npu.synchronize()
    assert replay(None) == [6.0] * 4


def test_a_replay_waits_for_its_event() -> None:
    out, ready, graph = torch.zeros(2, device="npu"), torch.npu.ExternalEvent(), torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        ready.wait(torch.npu.current_stream())
        ready.reset(torch.npu.current_stream())
        out.add_(1)
    side = torch.npu.Stream()
    for times in (1, 2):
        with torch.npu.stream(side):
            graph.replay()
        assert not side.query()
        ready.record(torch.npu.current_stream())
        side.synchronize()
        assert out.cpu().tolist() == [float(times)] * 2


def test_an_update_has_the_tasks_of_its_group() -> None:
    """What does not fit changes nothing; the stream computes again afterwards."""
    x, out = torch.ones(2, device="npu"), torch.zeros(2, device="npu")
    graph, side = torch.npu.NPUGraph(), torch.npu.Stream()
    with torch.npu.graph(graph):
        stream = torch.npu.current_stream()
        with pytest.raises(RuntimeError, match="No task group has begun"):
            torch.npu.graph_task_group_end(stream)
        torch.npu.graph_task_group_begin(stream)
        with pytest.raises(RuntimeError, match="has begun on stream"):
            torch.npu.graph_task_group_begin(stream)
        torch.add(x, 1, out=out)
        group = torch.npu.graph_task_group_end(stream)
    for wrong, said in (
        (lambda: torch.mul(x, 9, out=out), "in its group it is aclnnAdd"),
        (lambda: [torch.add(x, 9, out=out) for _ in range(2)], "has 2 tasks, its group has 1"),
    ):
        with torch.npu.stream(side):
            torch.npu.graph_task_update_begin(side, group)
            wrong()
            with pytest.raises(RuntimeError, match=said):
                torch.npu.graph_task_update_end(side)
    # Who waited for a record that stands for a task of the graph would wait for ever.
    event, handle = torch.npu.Event(), ctypes.c_void_p(side.npu_stream)
    event.record(torch.npu.current_stream())
    torch.npu.graph_task_update_begin(side, group)
    assert code("aclrtRecordEvent", ctypes.c_void_p(event.npu_event), handle) != 0
    assert "no event is recorded there" in message()
    with torch.npu.stream(side):
        torch.add(x, 1, out=out)
        torch.npu.graph_task_update_end(side)
    event.synchronize()
    with pytest.raises(RuntimeError, match="is not captured"):
        torch.npu.graph_task_group_begin(side)
    with pytest.raises(RuntimeError, match="No update of a task group"):
        torch.npu.graph_task_update_end(side)
    graph.replay()
    assert out.cpu().tolist() == [2.0, 2.0]
    with torch.npu.stream(side):
        assert torch.add(x, 3).cpu().tolist() == [4.0, 4.0]
    del graph
    torch.npu.synchronize()

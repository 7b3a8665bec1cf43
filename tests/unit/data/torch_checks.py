"""Checks of rooms that patch torch, run by test_live_process.py in a process of its own: they need plain torch on the
CPU, whatever the process that runs the tests has loaded. Prints {check: traceback or ""} as JSON.
"""

import copy
import json
import sys
import tempfile
import traceback
from pathlib import Path

import numpy
import torch
import torch.nn.functional as functional

from torchport.findings import Result
from torchport.record import reference
from torchport.record.equal import EqualStart
from torchport.record.limit import Finished, Limit
from torchport.record.recorder import Recorder
from torchport.record.recording import HEAD, VERSION, Journal, Recording, read_journal
from torchport.record.sites import Sites

CUDA = torch.device("cuda:0")


class Patched:
    """The reference patch for the length of a block."""

    def __enter__(self):
        self.patches = reference.apply_reference_patches(torch)

    def __exit__(self, *error):
        self.patches.undo()


def everything():
    """Identity of each attribute of whatever torch module or class is loaded."""
    owners = {
        name: module
        for name, module in sys.modules.items()
        if name.split(".")[0] in ("torch", "numpy", "random")
    }
    for module in list(owners.values()):
        owners |= {f"{module.__name__}:{n}": v for n, v in vars(module).items() if isinstance(v, type)}
    return {(name, key): id(value) for name, owner in owners.items() for key, value in vars(owner).items()}


def changed(before):
    after = everything()
    # How many hooks there ever were is torch's own to count.
    same = {key for key in before if key[1] == "next_id" and key[0].endswith(":RemovableHandle")}
    return {key for key in before.keys() & after.keys() - same if before[key] != after[key]} | {
        key for key in after.keys() - before.keys() if (key[0], "__name__") in before
    }


def check_undo_restores_every_attribute():
    with Patched():
        pass  # whatever importing on the way adds to packages is there now
    before = everything()
    with Patched():
        assert len(changed(before)) > 100
    assert changed(before) == set()


def check_recorder_undo_restores_every_attribute():
    recording(train)
    before = everything()
    recording(train)
    assert changed(before) == set()


def check_undo_twice_is_harmless():
    patches = reference.apply_reference_patches(torch)
    patches.undo()
    patches.undo()
    assert not torch.cuda.is_available()


def check_queries_answer_for_one_device():
    with Patched():
        assert torch.cuda.is_available()
        assert torch.cuda.device_count() == 1
        assert torch.cuda.current_device() == 0
        assert torch.cuda.get_device_properties(0).total_memory > 2**28
        assert torch.cuda.get_device_capability() >= (8, 0)
        assert torch.cuda.memory_allocated() == 0
        torch.cuda.set_device(0)
        torch.cuda.empty_cache()
        torch.cuda.synchronize()
    assert not torch.cuda.is_available()


def check_every_way_to_a_device_ends_on_the_cpu():
    with Patched():
        x = torch.ones(2, 3)
        moved = [
            x.cuda(), x.cuda(0, non_blocking=True), x.to("cuda"), x.to(CUDA), x.to(0), x.to("cuda", torch.float64),
            x.to(device="cuda:0", dtype=torch.float16), x.to(torch.float64), x.to(x), x.type("torch.cuda.FloatTensor"),
            torch.zeros(3, device="cuda"), torch.tensor([1.0], device=CUDA), torch.arange(3, device=0),
            torch.zeros_like(x, device="cuda"), torch.as_tensor(numpy.ones(2), device="cuda"),
            x.new_zeros(2, device=CUDA),
            torch.rand(2, device="cuda"), torch.randint(0, 5, (2,), device="cuda"), torch.cuda.FloatTensor([1.0, 2.0]),
            torch.nn.Linear(2, 2, device="cuda").weight, torch.nn.Linear(2, 2).cuda().weight,
            torch.nn.Linear(2, 2).to(0).weight, torch.nn.Linear(2, 2).to(CUDA, torch.float64).weight,
            x.pin_memory(), torch.nn.DataParallel(torch.nn.Linear(3, 2)).cuda()(x),
        ]
        with torch.device("cuda"):
            moved.append(torch.empty(2))
        assert {tensor.device.type for tensor in moved} == {"cpu"}
        assert CUDA.type == "cuda"
        assert torch.Generator(device="cuda").device.type == "cpu"
        assert isinstance(torch.Generator(), torch.Generator)


def check_moving_copies_as_between_devices():
    with Patched():
        x = torch.ones(3)
        for copy in (x.cuda(), x.cpu(), x.to("cuda"), x.to("cpu")):
            copy.zero_()
        assert x.sum() == 3
        weight = torch.ones(3, requires_grad=True)
        assert weight.cuda() is weight


def check_streams_and_events():
    with Patched():
        stream = torch.cuda.Stream(priority=-1)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(stream):
            assert torch.cuda.current_stream() is stream
            begin.record()
            stream.wait_stream(torch.cuda.default_stream())
            end.record(stream)
        assert torch.cuda.current_stream() is torch.cuda.default_stream()
        torch.ones(1).record_stream(stream)
        end.synchronize()
        assert begin.elapsed_time(end) > 0
        assert stream.query()
        with torch.cuda.device(0), torch.cuda.stream(None):
            pass


def check_mixed_precision_can_be_switched_off():
    patches = reference.apply_reference_patches(torch, mixed_precision=False)
    try:
        scaler, old = torch.amp.GradScaler("cuda"), torch.cuda.amp.GradScaler(init_scale=8.0)
        for context in (torch.autocast("cuda", dtype=torch.float16), torch.cuda.amp.autocast()):
            with context:
                assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
        loss = torch.tensor(2.0, requires_grad=True)
        assert scaler.scale(loss) is loss
        assert old.scale(loss) is loss
        assert not scaler.is_enabled()
        with torch.autocast("cpu", dtype=torch.bfloat16):  # what is meant for the CPU stays
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    finally:
        patches.undo()


def check_checkpoints_load_on_the_cpu():
    with Patched(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "checkpoint.pt")
        torch.save({"weight": torch.ones(2)}, path)
        for location in ("cuda:0", CUDA, None, {"cpu": "cuda:0"}, lambda storage, place: storage.cuda()):
            assert torch.load(path, map_location=location)["weight"].device.type == "cpu"


class Net(torch.nn.Module):
    """A parameter, a buffer and dropout."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.fc = torch.nn.Linear(3, 1)
        self.register_buffer("noise", torch.randn(3))
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, x):
        return self.fc(self.dropout(x + self.noise))


def train(dropout=0.0, steps=3, draw=0, scaler=None):
    torch.rand(draw)
    net = Net(dropout)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.nn.init.normal_(net.fc.weight)  # after the optimizer was built
    losses = []
    for _ in range(steps):
        loss = net(torch.rand(8, 3)).square().mean()
        optimizer.zero_grad()
        (loss if scaler is None else scaler.scale(loss)).backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def recording(run, weights=None, load=False, steps=None, noise=0):
    """Run `run` recorded; the recording of this process and what `run` returned."""
    folder = Path(tempfile.mkdtemp())
    Result("record", data={"recording": VERSION}).write(folder / HEAD)
    journal = Journal(folder)

    def equal(torch, key):
        return EqualStart(torch, weights, key, journal, load=load, noise=noise)

    def stop(why, steps):
        journal.write_event("stop", why=why, steps=steps)

    limit = Limit(folder, steps, None, stop)
    prepare = lambda torch, patches: patches.on_undo(reference.apply_reference_patches(torch).undo)  # noqa: E731
    recorder = Recorder(journal, Sites(), limit, 0, prepare, equal if weights else None)
    recorder.install()
    returned = None
    try:
        returned = run()
    except Finished:
        pass
    finally:
        recorder.undo()
        journal.close()
    (process,) = Recording.from_directory(folder).processes
    return process, returned


def values(process):
    return [event["value"] for event in process.of_kind("loss")]


def check_losses_and_steps_are_recorded_with_their_places():
    recorded, losses = recording(train)
    assert values(recorded) == losses
    (site,) = recorded.collect_curves()
    assert site.startswith(__file__)
    steps = recorded.of_kind("step")
    assert [step["device"] for step in steps] == [step["gradient"] for step in steps] == ["cpu"] * 3
    assert steps[0]["seconds"] is None
    assert all(step["seconds"] > 0 for step in steps[1:])
    assert recorded.step_kind == "optimizer step"
    assert recorded.of_kind("random") == []
    assert len(recorded.of_kind("memory")) == 1


def check_settings_are_recorded_when_they_change():
    def run():
        weight = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([weight], lr=0.5, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.1)
        for _ in range(4):
            weight.sum().backward()
            optimizer.step()
            schedule.step()

    recorded, _ = recording(run)
    found = [(event["optimizer"], event["step"], event["groups"][0]["lr"]) for event in recorded.of_kind("settings")]
    assert found == [(0, 0, 0.5), (0, 2, 0.05)]
    assert recorded.of_kind("settings")[0]["groups"][0]["momentum"] == 0.9
    assert "foreach" not in recorded.of_kind("settings")[0]["groups"][0]


def check_a_run_ends_after_so_many_steps():
    recorded, losses = recording(lambda: train(steps=30), steps=4)
    assert losses is None
    assert len(recorded.of_kind("step")) == 4
    assert [(stop["why"], stop["steps"]) for stop in recorded.of_kind("stop")] == [("steps", 4)]


def check_a_gradient_without_an_optimizer_is_a_step():
    def run(steps=9):
        weight = torch.ones(3, requires_grad=True)
        for _ in range(steps):
            torch.autograd.grad((weight * 2).sum(), weight)
        return "whole"

    recorded, returned = recording(run)
    assert (recorded.step_kind, len(recorded.steps), returned) == ("gradient", 9, "whole")
    recorded, returned = recording(run, steps=5)
    assert (len(recorded.steps), returned) == (5, None)


def check_a_backward_pass_without_an_optimizer_is_a_step():
    def run():
        for _ in range(3):
            torch.ones(2, requires_grad=True).sum().backward()

    recorded, _ = recording(run)
    assert (recorded.step_kind, len(recorded.steps)) == ("backward", 3)


def check_an_outermost_call_is_a_step_where_nothing_is_trained():
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())

    def run():
        with torch.no_grad():
            return [net(torch.full((4, 3), float(step))).norm().item() for step in range(3)]

    recorded, norms = recording(run)
    assert recorded.step_kind == "call"
    ((site, found),) = recorded.collect_curves().items()
    assert site.endswith(" Sequential")
    assert all(abs(one - other) < 1e-6 for one, other in zip(found, norms, strict=True))
    assert len(recording(run, steps=2)[0].steps) == 2


def check_every_call_site_is_a_curve():
    def run():
        first, second = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
        optimizer = torch.optim.SGD([first, second], lr=0.1)
        for _ in range(4):
            first.sum().backward()
            second.prod().backward()
            optimizer.step()

    recorded, _ = recording(run)
    assert [len(curve) for curve in recorded.collect_curves().values()] == [4, 4]
    assert len(recorded.steps) == 4


def check_a_function_transform_is_left_alone():
    gradient = recording(lambda: torch.func.grad(lambda x: (x * x).sum())(torch.ones(3)))[1]
    assert gradient.tolist() == [2.0, 2.0, 2.0]


def check_seeding_makes_runs_repeatable():
    assert recording(train)[1] == recording(train)[1]
    first, second = (recording(lambda: numpy.random.default_rng().random())[1] for _ in range(2))
    assert first == second
    recorded, _ = recording(lambda: torch.manual_seed(7) and None)
    assert recorded.of_kind("seed")[-1]["value"] == "7"


def check_scaled_losses_are_recorded_unscaled():
    plain, _ = recording(train)
    scaled, _ = recording(lambda: train(scaler=torch.amp.GradScaler("cpu", init_scale=1024.0)))
    assert torch.amp.GradScaler("cpu").is_enabled()
    assert values(scaled)[0] == values(plain)[0]


def check_reentrant_backward_is_one_step():
    def run():
        x = torch.ones(2, requires_grad=True)
        torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=True).sum().backward()

    assert len(recording(run)[0].of_kind("loss")) == 1


def check_equal_start_gives_weights_buffers_and_order():
    weights = Path(tempfile.mkdtemp(), "weights")
    saved, losses = recording(train, weights)
    loaded, same = recording(lambda: train(draw=5), weights, load=True)
    _, other = recording(lambda: train(draw=5))
    assert same == losses != other
    assert [event["action"] for event in saved.of_kind("weights")] == ["saved", "saved"]
    assert [event["action"] for event in loaded.of_kind("weights")] == ["loaded", "loaded"]


def starts(run, weights, noise=0):
    """What of the start of `run` is not that of the run that saved `weights`."""
    recorded = recording(run, weights, load=True, noise=noise)[0]
    return {event["tensor"]: event["difference"] for event in recorded.of_kind("start")}


def check_a_start_from_other_weights_is_recorded_before_they_are_overwritten():
    weights = Path(tempfile.mkdtemp(), "weights")

    def run(seed=0, first=False, loaded=None, zeroed=False):
        torch.manual_seed(seed)
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
        if zeroed:
            torch.nn.init.zeros_(net[2].weight)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1) if first else None
        if loaded is not None:
            net.load_state_dict(loaded)
        optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.1)
        net(torch.randn(5, 3)).square().sum().backward()
        optimizer.step()
        return {name: value.clone() for name, value in net.state_dict().items()}

    _, state = recording(run, weights)
    assert starts(run, weights) == {}
    assert starts(lambda: run(zeroed=True), weights).keys() == {"2.weight"}
    # A control run moves what it loads by its noise, which is no other start.
    assert all(difference < 1e-6 for difference in starts(run, weights, noise=1).values())
    noisy = starts(lambda: run(zeroed=True), weights, noise=1)
    assert [name for name, difference in noisy.items() if difference > 1e-3] == ["2.weight"]
    for first in (False, True):
        weights = Path(tempfile.mkdtemp(), "weights")
        recording(lambda first=first: run(first=first, loaded=state), weights)
        assert starts(lambda first=first: run(first=first, loaded=state), weights) == {}
        lost = starts(lambda first=first: run(first=first), weights)
        assert {"0.weight", "1.running_mean", "2.weight"} <= lost.keys()
        assert lost["1.num_batches_tracked"] == "inf" and 0.01 < lost["0.weight"] < 10


def check_what_a_checkpoint_overwrites_is_no_other_start():
    weights = Path(tempfile.mkdtemp(), "weights")

    def run(value):
        net = torch.nn.Linear(3, 1)
        torch.nn.init.constant_(net.weight, value)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net.load_state_dict({"weight": torch.ones(1, 3), "bias": torch.ones(1)})
        net(torch.ones(2, 3)).sum().backward()
        optimizer.step()

    recording(lambda: run(2.0), weights)
    assert starts(lambda: run(5.0), weights) == {}


def check_other_weights_of_an_optimizer_without_a_module_are_recorded():
    weights = Path(tempfile.mkdtemp(), "weights")

    def run(value):
        weight = torch.full((3,), value, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        weight.sum().backward()
        optimizer.step()

    recording(lambda: run(1.0), weights)
    assert starts(lambda: run(1.5), weights) == {"optimizer 0, parameter 0": 1 / 3}


def check_a_training_that_goes_on_has_the_optimizers_state_of_the_original():
    weights = Path(tempfile.mkdtemp(), "weights")

    def run(loaded=None, factor=1.0):
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 1)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        if loaded is not None:
            optimizer.load_state_dict(copy.deepcopy(loaded))
            optimizer.state[net.bias]["exp_avg"] *= factor
        for _ in range(2):
            optimizer.zero_grad()
            net(torch.ones(2, 3)).sum().backward()
            optimizer.step()
        return optimizer.state_dict()

    _, state = recording(run, Path(tempfile.mkdtemp(), "weights"))
    recording(lambda: run(state), weights)
    assert starts(lambda: run(state), weights) == {}
    (changed,) = starts(lambda: run(state, 1.5), weights)
    assert changed == "exp_avg of parameter 1 of optimizer 0", changed
    assert starts(run, weights) == {"state of optimizer 0": "inf"}


def check_other_weights_are_a_mismatch():
    weights = Path(tempfile.mkdtemp(), "weights")
    recording(lambda: torch.optim.SGD([torch.ones(3, requires_grad=True)]) and None, weights)
    loaded, _ = recording(
        lambda: torch.optim.SGD([torch.ones(4, requires_grad=True)]) and None, weights, load=True
    )
    assert loaded.of_kind("weights")[0]["action"] == "mismatch"


def check_damaged_weights_are_named_and_do_not_end_the_script():
    weights = Path(tempfile.mkdtemp(), "weights")
    recording(train, weights)
    (folder,) = weights.iterdir()
    (folder / "module-0.pt").write_bytes((folder / "module-0.pt").read_bytes()[:99])
    (folder / "optimizer-0.pt").write_bytes(b"")
    loaded, losses = recording(train, weights, load=True)
    assert len(losses) == len(values(loaded)) > 0
    for event in loaded.of_kind("weights"):
        assert event["action"] == "mismatch"
        assert f"{event['name']}.pt is damaged" in event["detail"]


def check_training_is_never_overwritten():
    weights = Path(tempfile.mkdtemp(), "weights")

    def run():
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        net(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        value = net.fc.weight.detach().clone()
        torch.optim.SGD(net.parameters(), lr=0.1)  # a second phase
        net(torch.ones(1, 3))
        return torch.equal(net.fc.weight, value)

    recording(run, weights)
    assert recording(run, weights, load=True)[1]


def check_forked_children_write_nothing():
    import os

    folder = Path(tempfile.mkdtemp())
    journal = Journal(folder)
    if os.fork() == 0:
        journal.write_event("note", text="x")
        os._exit(0)
    os.wait()
    assert list(folder.iterdir()) == []
    journal.write_event("note", text="x")
    assert len(list(read_journal(folder / "processes" / str(os.getpid()) / "steps.jsonl"))) == 1


def check_a_forked_child_exchanges_no_weights():
    """Workers of a data loader call modules: SimCLR blurs with a convolution. Two of them wrote one file at once."""
    import os

    folder, weights = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
    equal = EqualStart(torch, weights, lambda: "MainProcess", Journal(folder), load=False)
    equal.install()
    net = torch.nn.Linear(2, 2)
    try:
        if os.fork() == 0:
            try:
                net(torch.ones(1, 2))
                equal.optimizer_built(torch.optim.SGD(net.parameters(), 0.1))
            finally:
                os._exit(0)
        os.wait()
        assert list(weights.rglob("*.pt")) == []
        net(torch.ones(1, 2))
        assert [path.name for path in weights.rglob("*.pt")] == ["module-0.pt"]
    finally:
        equal.remove_hook()


if __name__ == "__main__":
    results = {}
    for name, check in [(name, value) for name, value in globals().items() if name.startswith("check_")]:
        try:
            check()
            results[name] = ""
        except Exception:
            results[name] = traceback.format_exc()
    json.dump(results, sys.stdout)

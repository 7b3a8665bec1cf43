"""The control run of a port: what it leaves, and that nothing is left of it when port is ended."""

import json
import os
import signal
import subprocess

import pytest
from test_driver import TRAIN, command, interruptible, place, port, prints, processes, script
from waiting import until

from torchport.findings import Result
from torchport.launch import parse_launch
from torchport.port import controls
from torchport.port.plan import REFERENCE, STEPS, Plan
from torchport.port.progress import Progress
from torchport.record.recording import COMMAND, HEAD, VERSION, Journal, Recording

__all__ = ["place"]


def faults(recording):
    return [(event["name"], event["step"]) for event in recording.of_kind("fault")]


def trains(place):
    script(place, "INPUTS = 3", "shapes.py")
    (place / "data.txt").write_text("DATA")
    return script(place, TRAIN)


def test_a_port_that_adds_in_another_order(place):
    run = port(trains(place), "--reordered", "25")
    assert run.returncode == 0, run.stderr + run.stdout
    sums = Result.read(place / "torchport-out" / "train" / "result.json").data["sums"]
    assert sums["seed"] == 1
    assert sums["results"] > 10
    assert sums["results"] / 4 < sums["unequal"] < sums["results"]
    assert f"of {sums['results']} results of operators in step 0 have other bits" in " ".join(run.stdout.split())
    assert not list((place / "torchport-out" / "train" / "compare").glob("sums*"))


def test_a_control_run_of_twenty_steps_with_three_faults(place):
    run = port(trains(place), "25")
    assert run.returncode == 0, run.stderr + run.stdout
    out = place / "torchport-out" / "train"
    result = Result.read(out / "control" / "result.json")
    assert {key: result.data[key] for key in ("status", "steps", "why", "formats", "faults")} == {
        "status": 0,
        "steps": 20,
        "why": "",
        "formats": {},
        "faults": True,
    }
    recording = Recording.from_directory(out / "control")
    assert faults(recording) == [("update", 6), ("gradient", 12), ("sample", 19)]
    assert [event["action"] for event in recording.of_kind("weights")] == ["loaded"] * 2
    assert recording.of_kind("torch")[0]["threads"] == 1
    assert recording.of_kind("note") == recording.of_kind("random") == []
    # The port ran beside it, and its recording is there as ever.
    assert Recording.from_directory(out / "npu").steps == 25
    assert Recording.from_directory(out / "npu").of_kind("device")[0]["settings"]["virtual"] is True
    assert not list((out / "control").glob("view*"))
    assert Result.read(out / "result.json").data["runs"]["control"]["steps"] == 20

    # `--from npu` keeps it.
    journal = next((out / "control" / "processes").glob("*/steps.jsonl"))
    kept = journal.stat().st_mtime_ns
    again = port("train.py", "--from", "npu", "25")
    assert again.returncode == 0
    assert [line.split()[1] for line in again.stderr.splitlines()] == ["npu", "compare"]
    assert journal.stat().st_mtime_ns == kept

    quiet = port("train.py", "--from", "control", "--no-control", "25")
    assert quiet.returncode == 0
    assert [line.split()[1] for line in quiet.stderr.splitlines()] == ["control", "npu", "compare"]
    assert faults(Recording.from_directory(out / "control")) == []
    assert Recording.from_directory(out / "control").steps == 20


def test_a_control_run_that_fails_is_no_failure_of_the_port(place):
    name = trains(place)
    text = TRAIN.replace("    loss.backward()", "    assert not CONTROLLED\n    loss.backward()")
    head = "import os, json\nCONTROLLED = json.loads(os.environ['TORCHPORT_RECORD'])['faults']\n"
    script(place, head + text)
    run = port(name, "5", "--json")
    data = json.loads(run.stdout)["data"]
    assert data["runs"]["npu"]["steps"] == 5
    control = data["runs"]["control"]
    assert (control["status"], control["steps"]) == (1, 0)
    assert control["why"] == "it ended with exit status 1 after 0 of 5 steps"
    assert "AssertionError" in control["messages"][-1]
    assert any("the control run" in note for note in data["notes"])


WAITS = """
import json, os, time
options = json.loads(os.environ["TORCHPORT_RECORD"])
if options["load"]:
    import subprocess, sys
    subprocess.Popen(["setsid", sys.executable, "-c",
                      "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(3600)"])
    print("waits", flush=True)
    time.sleep(3600)
import torch
w = torch.ones(3, device="cuda", requires_grad=True)
for _ in range(3):
    w.square().sum().backward()
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_ending_port_ends_both_runs(place, monkeypatch, number, status):
    monkeypatch.setenv("MARK_OF_THIS_TEST", str(place))
    out = place / "torchport-out" / "train"
    driver = subprocess.Popen(
        command(script(place, WAITS)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    )
    for step in ("control", "npu"):
        prints(driver, out / f"{step}.unfinished" / "stdout.txt")
    driver.send_signal(number)
    _, messages = driver.communicate()
    assert driver.returncode == status
    assert "Traceback" not in messages
    until(lambda: processes(f"MARK_OF_THIS_TEST={place}") == [])
    if number != signal.SIGKILL:
        assert sorted(path.name for path in out.iterdir()) == [".lock", "convert", "reference"]


def test_without_the_memory_one_run_comes_after_the_other(tmp_path):
    plan = Plan(parse_launch(["python", "-c", "pass"], command=True), tmp_path, tmp_path)
    folder = plan.kept_in(REFERENCE)
    folder.mkdir()
    Result(COMMAND, data={"recording": VERSION}).write(folder / HEAD)
    assert not controls.has_room(plan)  # nothing is known
    for resident, room in ((1 << 20, True), (1 << 50, False)):
        journal = Journal(folder)
        journal.write_event("memory", resident=resident, machine=1 << 60)
        journal.close()
        assert controls.has_room(plan) is room


@pytest.mark.parametrize(
    ("words", "ranks", "beside"),
    [
        ("python train.py", [None], True),
        ("python train.py", [None, None], True),  # processes of no job
        ("bash loop.sh", [0, 1], False),
        ("python -m torch.distributed.run --standalone --nproc-per-node 2 train.py", [0, 1], True),
        ("python -m torch.distributed.run --master-port 29500 --nproc-per-node 2 train.py", [0, 1], False),
    ],
)
def test_ranks_that_would_meet_those_of_the_other_run_come_after_it(tmp_path, words, ranks, beside):
    (tmp_path / "train.py").write_text("")
    plan = Plan(parse_launch(words.split(), command=True, folder=tmp_path), tmp_path, tmp_path)
    folder = plan.kept_in(REFERENCE)
    folder.mkdir()
    Result(COMMAND, data={"recording": VERSION}).write(folder / HEAD)
    for number, rank in enumerate(ranks):
        journal = Journal(folder)
        journal.write_event("process", pid=number, name="MainProcess", rank=rank, world=None if rank is None else 2)
        journal.write_event("loss", site="train.py:1", by="backward", value=1.0, device="cpu", launches=None)
        journal.write_event("memory", resident=1 << 20, machine=1 << 60)
        journal.close()
        (folder / "processes" / str(os.getpid())).rename(folder / "processes" / str(number))
    assert controls.may_run_beside(plan) is beside


def test_steps_forced_from_the_states_of_the_reference(place):
    """With a rate at which one unit in the last place decides within a few steps where the training goes."""
    (place / "data.txt").write_text("DATA")
    script(place, "INPUTS = 3", "shapes.py")
    name = script(place, TRAIN.replace("SGD(model.parameters(), lr=0.1)", "Adadelta(model.parameters(), lr=30.0)"))
    port(name, "9")
    out = place / "torchport-out" / "train"
    plan = Plan(parse_launch([name, "9"]), out, place)
    with open(os.devnull, "w") as stream:
        found = controls.run_forced_steps(plan, out / "forced", Progress(stream, STEPS), controls.assume_formats())
    assert found is not None
    assert found.bytes > 1000
    assert [one.steps for one in (found.reference, found.control, found.port)] == [9, 9, 9]
    assert faults(found.control) == [("update", 2), ("gradient", 5), ("sample", 8)]
    reference, control, ported = (
        [event["value"] for event in one.of_kind("loss")] for one in (found.reference, found.control, found.port)
    )
    assert reference == [event["value"] for event in Recording.from_directory(out / "reference").of_kind("loss")]
    assert ported == pytest.approx(reference, rel=1e-5)
    assert control[:-1] == pytest.approx(reference[:-1], rel=1e-5)
    assert all(one.of_kind("note") == [] for one in (found.reference, found.control, found.port))
    assert sorted(path.name for path in (out / "forced").iterdir()) == ["control", "npu", "reference"]

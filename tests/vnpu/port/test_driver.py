"""The driver of a port: its steps, its files, and what it does with scripts that do not behave."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import until

from torchport.findings import Result

TRAIN = """
import os, sys
import torch
import shapes
torch.manual_seed(1)
model = torch.nn.Linear(shapes.INPUTS, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(sys.argv[1])):
    x = torch.rand(16, shapes.INPUTS, device="cuda")
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.save(model.state_dict(), "model.pt")
print(f"final loss {loss.item():.4f}", open(os.path.join(os.path.dirname(__file__), "data.txt")).read())
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCHPORT_BACKEND", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*words):
    return [sys.executable, "-m", "torchport", "port", *words]


def port(*words, stdin=""):
    return subprocess.run(command(*words), capture_output=True, text=True, check=False, input=stdin)


def interruptible():
    """A shell's background job ignores Ctrl-C, and what it starts does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def script(place, text, name="train.py"):
    (place / name).write_text(text)
    return name


def processes(mark):
    """Living processes whose environment holds `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                found += [int(entry.name)] if state not in "ZX" and int(entry.name) != os.getpid() else []
        except OSError:  # it ended meanwhile, or is somebody else's
            continue
    return found


def prints(driver, path):
    """Wait until the run of this driver has printed, into `path`."""

    def printed():
        assert driver.poll() is None, "it has ended before"
        return path.exists() and path.read_text()

    until(printed)


def test_a_script_that_ports(place):
    script(place, "INPUTS = 3", "shapes.py")
    (place / "data.txt").write_text("DATA")
    before = sorted(path.name for path in place.iterdir())
    run = port(script(place, TRAIN), "9")
    assert run.returncode == 0, run.stderr + run.stdout
    assert "train.py: holds (9 optimizer steps compared one by one, float32; would have noticed 5 %" in " ".join(
        run.stdout.split()
    )
    assert [line.split()[:2] for line in run.stderr.splitlines()] == [
        ["1/5", "convert"],
        ["2/5", "reference"],
        ["3/5", "control"],
        ["4/5", "npu"],
        ["5/5", "compare"],
    ]
    out = place / "torchport-out" / "train"
    result = Result.read(out / "result.json")
    assert result.data["verdict"] == "holds"
    assert result.data["comparison"]["steps"] == {"kind": "optimizer step", "reference": 9, "port": 9}
    assert result.data["comparison"]["worst"]["run"] <= 1e-6
    assert result.data["runs"]["npu"]["evidence"]["steps_with"] == 9
    assert (out / "reference" / "stdout.txt").read_text().endswith("DATA\n")
    assert (out / "convert" / "tree" / "shapes.py").exists()
    assert not list(out.glob("*.unfinished"))

    # Each run wrote in a view of its own; the folder is as it was.
    assert sorted(path.name for path in place.iterdir()) == sorted([*before, "train.py", "torchport-out"])
    assert [row["name"] for row in result.data["files"]] == ["model.pt"]
    assert result.data["files"][0]["equal"] is True
    for side in ("reference", "npu"):
        assert [path.name for path in (out / side / "files").iterdir()] == ["model.pt"]
        assert result.data["runs"][side]["outside"] == []
        assert not list((out / side).glob("view*"))

    journal = next((out / "npu" / "processes").glob("*/steps.jsonl"))
    kept = journal.stat().st_mtime_ns
    again = port("train.py", "--from", "compare", "--json", "9")
    assert json.loads(again.stdout)["data"]["verdict"] == "holds"
    assert journal.stat().st_mtime_ns == kept

    whole = (out / "reference" / "result.json").read_text()
    for damage in (whole[:100], whole.replace('"status": 0', '"status": "?"'), whole.replace('"ended"', '"e"'), "[]"):
        assert damage != whole
        (out / "reference" / "result.json").write_text(damage)
        damaged = port("train.py", "--from", "compare", "9")
        assert damaged.returncode == 2
        assert "reference/result.json" in damaged.stderr
        assert "internal error" not in damaged.stderr
    (out / "reference" / "result.json").write_text(whole)

    assert port("train.py", "--from", "compare", "8").returncode == 2
    for name, text, original in (("shapes.py", "INPUTS = 2", "INPUTS = 3"), ("train.py", TRAIN + "#", TRAIN)):
        script(place, text, name)
        changed = port("train.py", "--from", "compare", "9")
        assert changed.returncode == 2
        assert f"result.json was made: {place / name}\n" in changed.stderr
        script(place, original, name)
    assert port("train.py", "--from", "compare", "9").returncode == 0

    # What a person changed in the port is not lost.
    tree = out / "convert" / "tree"
    mine = tree.joinpath("train.py").read_text() + "# mine\n"
    tree.joinpath("train.py").write_text(mine)
    refused = port("train.py", "9")
    assert refused.returncode == 2
    assert "was changed since torchport wrote it: train.py" in refused.stderr
    assert tree.joinpath("train.py").read_text() == mine
    assert port("train.py", "--force", "9").returncode == 0
    assert "# mine" not in tree.joinpath("train.py").read_text()


def test_a_missing_script(place):
    run = port("absent.py")
    assert (run.returncode, run.stdout) == (2, "")
    assert "absent.py" in run.stderr
    assert not (place / "torchport-out").exists()


def test_a_syntax_error(place):
    run = port(script(place, "import torch\nfor x in\n"))
    assert run.returncode == 2
    assert "train.py:2: the script has a syntax error" in run.stderr
    assert not (place / "torchport-out").exists()


@pytest.mark.parametrize("text", ["\0", "# coding: nonsense\n", "x = '\\ud800'\nb'\xff"])
def test_what_is_not_python(place, text):
    run = port(script(place, text))
    assert run.returncode == 2
    assert "train.py" in run.stderr
    assert "None" not in run.stderr
    assert "Traceback" not in run.stderr


def test_an_output_folder_that_cannot_be_one(place):
    name = script(place, "print()")
    for folder, says in (
        ("train.py", "train.py is a file"),
        ("/proc/x", "cannot write into the output folder /proc/x"),
    ):
        run = port(name, "--out", folder)
        assert run.returncode == 2
        assert says in run.stderr
        assert "internal error" not in run.stderr


def test_no_device(place, monkeypatch):
    monkeypatch.setenv("VNPU_LIBRARIES", "nowhere")
    run = port(script(place, "print()"))
    assert run.returncode == 2
    assert "no NPU backend" in run.stderr
    assert not (place / "torchport-out").exists()


def test_from_without_files(place):
    run = port(script(place, "print()"), "--from", "npu")
    assert run.returncode == 2
    assert "--from npu needs the step convert" in run.stderr


def test_a_script_that_fails(place):
    text = "import sys\nprint('words', file=sys.stderr)\ndef main():\n    raise ValueError('no good')\nmain()\n"
    run = port(script(place, text))
    assert run.returncode == 4
    assert "undecided: the original fails here before the first step" in " ".join(run.stdout.split())
    assert "ValueError: no good" in run.stdout
    assert "| words" in run.stdout
    assert "torchport/record" not in run.stdout  # no frame of ours in the script's traceback
    result = Result.read(place / "torchport-out" / "train" / "result.json")
    (failed, not_run) = result.findings
    assert (failed.code, failed.location.path, failed.location.line, not_run.code) == ("TP340", "train.py", 4, "TP312")


TRAINS = """
import torch
w = torch.ones(3, device="cuda", requires_grad=True)
for _ in range(3):
    w.square().sum().backward()
"""


def test_a_port_that_fails_where_the_original_does_not(place):
    run = port("--no-control", script(place, TRAINS + "import os\nif w.device.type == 'npu': os._exit(4)\n"))
    assert run.returncode == 1
    assert "the port ends with exit status 4, the original with exit status 0" in " ".join(run.stdout.split())


def test_a_script_that_crashes(place):
    run = port(script(place, "import ctypes\nctypes.string_at(0)\n"))
    assert run.returncode == 4
    assert "signal SIGSEGV" in run.stdout


def test_a_script_that_exits_0_and_trains_nothing(place):
    run = port(script(place, "print('hello')"))
    assert run.returncode == 4
    assert "no step was reached" in run.stdout


def test_a_run_does_not_find_what_the_other_left(place):
    text = "import os, sys\nfound = os.path.exists('last.pt')\nopen('last.pt', 'w').close()\n"
    run = port(script(place, text + TRAINS + "sys.exit(3 * found)\n"))
    assert run.returncode == 0, run.stdout
    assert not (place / "last.pt").exists()


HANG = """
import os, subprocess, sys, time
subprocess.Popen(["setsid", sys.executable, "-c",
                  "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(3600)"])
print("started", flush=True)
def stuck():
    time.sleep(3600)
stuck()
"""


def test_a_script_that_hangs(place, monkeypatch):
    monkeypatch.setenv("MARK_OF_THIS_TEST", str(place))
    for seconds in (2, 20, 200):  # a busy machine takes more than two to start it
        run = port(script(place, HANG), "--timeout", str(seconds))
        assert run.returncode == 4
        assert f"did not reach a step within {seconds} s" in run.stdout
        result = Result.read(place / "torchport-out" / "train" / "result.json")
        found = result.findings[0]
        line = found.location and found.location.line
        if line == 7:
            break
    assert (found.code, line) == ("TP341", 7)
    assert processes(f"MARK_OF_THIS_TEST={place}") == []


ENDLESS = TRAINS.replace("range(3)", "iter(int, 1)").replace("backward()", "backward(); time.sleep(0.05)")


def test_a_script_that_never_ends_is_judged_as_far_as_it_came(place):
    for seconds in (15, 60, 240):  # a busy machine comes to no step in fifteen
        run = port(script(place, "import time" + ENDLESS), "--timeout", str(seconds), "--json")
        data = json.loads(run.stdout)["data"]
        if data["verdict"] != "undecided":
            break
    assert data["verdict"] == "holds", data["reason"]
    assert data["runs"]["reference"]["ended"] == "timeout"
    assert data["comparison"]["steps"]["port"] >= 3


def test_a_number_of_steps_ends_both_runs_in_order(place):
    text = "import atexit, time\natexit.register(lambda: print('handlers ran'))" + ENDLESS
    run = port("--steps", "5", script(place, text), "--json")
    data = json.loads(run.stdout)["data"]
    assert data["verdict"] == "holds", data["reason"]
    assert data["comparison"]["steps"] == {"kind": "backward", "reference": 5, "port": 5}
    out = place / "torchport-out" / "train"
    assert [(out / side / "stdout.txt").read_text() for side in ("reference", "npu")] == ["handlers ran\n"] * 2


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)]
)
def test_an_interrupt_leaves_whole_files_and_no_process(place, monkeypatch, number, status):
    monkeypatch.setenv("MARK_OF_THIS_TEST", str(place))
    out = place / "torchport-out" / "train"
    driver = subprocess.Popen(
        command(script(place, HANG)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    )
    prints(driver, out / "reference.unfinished" / "stdout.txt")
    driver.send_signal(number)
    _, messages = driver.communicate()
    assert driver.returncode == status
    assert "Traceback" not in messages
    words = {130: "torchport port: interrupted", -9: ""}.get(status, f"torchport port: ended by {number.name}")
    assert words in messages
    assert Result.read(out / "convert" / "result.json").command == "convert"
    # After SIGKILL no clean-up of ours can run: the keeper does it.
    until(lambda: processes(f"MARK_OF_THIS_TEST={place}") == [])
    if number != signal.SIGKILL:
        assert sorted(path.name for path in out.iterdir()) == [".lock", "convert"]


KILLS = int(os.environ.get("TORCHPORT_KILLS", "1"))


@pytest.mark.timeout(600 + 120 * KILLS)
def test_kills_at_any_moment_leave_nothing_that_stops_the_next_run(place, monkeypatch):
    """`make kills` does thirty of these."""
    monkeypatch.setenv("MARK_OF_THIS_TEST", str(place))
    name = script(place, TRAINS)
    draw = random.Random(int(os.environ.get("TORCHPORT_KILLS_SEED", "0")))
    for _ in range(KILLS):
        driver = subprocess.Popen(command(name), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(draw.uniform(0.1, 12.0))
        driver.kill()
        driver.wait()
        until(lambda: processes(f"MARK_OF_THIS_TEST={place}") == [])
        run = port(name)
        assert run.returncode == 0, run.stdout + run.stderr
        assert "train.py: holds" in run.stdout
        assert not list((place / "torchport-out" / "train").glob("*.unfinished"))


def test_two_ports_do_not_work_in_one_folder(place):
    name = script(place, HANG)
    first = subprocess.Popen(command(name), stderr=subprocess.DEVNULL)
    prints(first, place / "torchport-out" / "train" / "reference.unfinished" / "stdout.txt")
    second = port(name)
    first.send_signal(signal.SIGTERM)
    first.wait()
    assert second.returncode == 2
    assert f"(process {first.pid})" in second.stderr


def test_scripts_of_one_name_have_folders_of_their_own(place):
    outs = set()
    for folder in ("a", "b", "."):
        (place / folder).mkdir(exist_ok=True)
        script(place / folder, "print()")
        port(f"{folder}/train.py")
        outs = {path.name for path in (place / "torchport-out").iterdir()}
    assert len(outs) == 3
    assert "train" in outs


def test_a_repeated_step_that_is_interrupted_leaves_the_finished_one(place):
    name = script(
        place, "import os, time\nprint('started', flush=True)\ntime.sleep(3600 if os.path.exists('hang') else 0)\n"
    )
    assert port(name).returncode == 4  # nothing is trained, but every step is there
    (place / "hang").touch()
    out = place / "torchport-out" / "train"

    def files():
        return {path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name != ".lock"}

    before = files()
    driver = subprocess.Popen(command(name, "--from", "reference"), stderr=subprocess.PIPE, preexec_fn=interruptible)
    prints(driver, out / "reference.unfinished" / "stdout.txt")
    driver.send_signal(signal.SIGINT)
    driver.communicate()
    assert driver.returncode == 130
    assert files() == before


def test_a_whole_project(place):
    (place / "project" / "nets").mkdir(parents=True)
    (place / "project" / "nets" / "__init__.py").touch()
    script(
        place / "project" / "nets", "import torch\ndef make():\n    return torch.nn.Linear(3, 1).cuda()\n", "small.py"
    )
    text = (
        "import importlib, torch\nnet = importlib.import_module('nets.' + 'small').make()\n"
        "for _ in range(3):\n    net(torch.ones(2, 3).cuda()).sum().backward()\n"
    )
    script(place / "project", text)
    alone = port("--no-control", "project/train.py", "--json")
    assert json.loads(alone.stdout)["data"]["verdict"] == "does not hold"
    assert json.loads(alone.stdout)["data"]["modules"][0]["path"].endswith("nets/small.py")
    whole = port("--no-control", "project", "--main", "project/train.py", "--json")
    data = json.loads(whole.stdout)["data"]
    assert (data["verdict"], data["modules"]) == ("holds", []), data["reason"]


CONFIGURED = """\
import json, os, sys, torch
from pathlib import Path
path = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "configs" / "base.json"
config = json.loads(Path(path).read_text())
net = torch.nn.Linear(3, 1).to(config["device"])
for _ in range(3):
    net(torch.ones(2, 3).to(config["device"])).sum().backward()
print(config["name"])
"""


@pytest.mark.parametrize("given", [[], ["given.json"], ["--absolute"]])
def test_a_configuration_that_the_script_opens_is_converted(place, given):
    text = '{"device": "cuda:0", "name": "cuda"}'
    (place / "configs").mkdir()
    script(place / "configs", text, "base.json")
    script(place, text, "given.json")
    arguments = [str(place / "given.json")] if given == ["--absolute"] else given
    ended = port("--no-control", "--json", script(place, CONFIGURED), *arguments)
    data = json.loads(ended.stdout)["data"]
    assert data["verdict"] == "holds", data["reason"]
    assert (place / "given.json").read_text() == (place / "configs" / "base.json").read_text() == text


def test_a_configuration_that_was_not_found_is_named(place):
    script(place, '{"device": "cuda:0", "name": "x"}', "base.json")
    text = CONFIGURED.replace('Path(__file__).parent / "configs" / "base.json"', '"".join(["ba", "se.js", "on"])')
    data = json.loads(port("--no-control", "--json", script(place, text)).stdout)
    assert data["data"]["verdict"] == "does not hold"
    (named,) = [one for one in data["findings"] if one["code"] == "TP347"]
    assert named["location"]["path"] == "base.json"
    assert f"torchport port {place} --main {place / 'train.py'}" in named["hint"]


def test_data_beside_and_above_the_folder_are_found(place, monkeypatch):
    (place / "data").mkdir()
    (place / "data" / "x.txt").write_text("3")
    (place / "work").mkdir()
    script(place / "work", "n = int(open('../data/x.txt').read())" + TRAINS.replace("range(3)", "range(n)"))
    monkeypatch.chdir(place / "work")
    run = port("--no-control", "train.py", "--json")
    assert json.loads(run.stdout)["data"]["verdict"] == "holds"


def test_what_is_written_outside_is_listed(place):
    (place / "elsewhere").mkdir()
    (place / "work").mkdir()
    target = place / "elsewhere" / "log.txt"
    script(place / "work", f"open({str(target)!r}, 'a').write('x')" + TRAINS)
    run = subprocess.run(command("train.py", "--json"), cwd=place / "work", capture_output=True, text=True, check=False)
    data = json.loads(run.stdout)["data"]
    assert target.read_text() == "xxx"  # the control run is a run, too
    # Temporary folders are nobody's loss and are not listed; pytest's is one.
    assert data["runs"]["reference"]["outside"] in ([], [str(target)])


def test_a_reference_that_insists_on_an_npu_is_no_reference(place):
    text = (
        "import ctypes, glob, os\n"
        "for path in glob.glob(os.path.join(os.environ['LIBS'], 'lib*vnpu*')): ctypes.CDLL(path)\n"
        "try: ctypes.CDLL(os.path.join(os.environ['LIBS'], 'libascendcl.so'))\nexcept OSError: pass\n"
    )
    from torchport import vnpu

    libraries = str(vnpu.library_directory())
    run = subprocess.run(
        command(script(place, text + TRAINS), "--json"),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LIBS": libraries},
    )
    data = json.loads(run.stdout)["data"]
    assert data["verdict"] == "undecided"
    assert "used an NPU itself" in data["reason"]

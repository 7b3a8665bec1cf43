"""torchport run --record: the user's program is the same, and leaves a recording; which of them port takes."""

import json
import os
import pty
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from recordings import losses, write
from waiting import until

from torchport.errors import TorchportError
from torchport.findings import Result
from torchport.launch import parse_launch
from torchport.port import Plan, given, in_place
from torchport.record import recording
from torchport.record.recording import End, Recording
from torchport.record.tf32 import Tf32


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORCHPORT_RECORD", raising=False)
    return tmp_path


RECORDED = (sys.executable, "-m", "torchport", "run", "--record", "rec", "--on", "cpu")


def words(text, *more):
    Path("script.py").write_text(text)
    return [*RECORDED, *more, "script.py"]


def run(text, *more):
    return subprocess.run(words(text, *more), capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "statement",
    [
        "pass",
        "sys.exit(7)",
        "sys.exit('no')",
        "1/0",
        "os.kill(os.getpid(), 11)",
        "os.kill(os.getpid(), 9)",
        "raise KeyboardInterrupt",
        "print(sys.stdin.read()); print(sys.stdin.isatty(), sys.argv, __file__, __name__)",
        "os.write(1, b'\\xff\\r\\n\\x00'); print('x' * 200_000); print('e' * 200_000, file=sys.stderr)",
        "open('written.txt', 'w').write('here'); print(os.getcwd())",
    ],
)
def test_the_program_is_the_same(place, statement):
    text = f"import os, sys\n{statement}"
    Path("script.py").write_text(text)
    plain, recorded = (
        subprocess.run([*command, "script.py", "a"], capture_output=True, check=False, input=b"given\n")
        for command in ([sys.executable], RECORDED)
    )
    assert recorded.stdout == plain.stdout
    assert recorded.returncode == plain.returncode
    assert recorded.stderr == plain.stderr + b"torchport run: recorded no step of training in rec\n"
    assert Recording.from_directory(place / "rec").status == plain.returncode
    assert (place / "rec" / "stdout.txt").read_bytes() == plain.stdout
    assert (place / "rec" / "stderr.txt").read_bytes() == plain.stderr
    assert not (place / "rec.unfinished").exists()
    assert (place / "written.txt").exists() == ("written" in statement)


def begun(process):
    """Wait for the script to say that it is there."""
    assert process.stdout.readline() == b"ready\n"


WAITS = """
import signal, sys, time
def told(number, frame):
    print("told", number, flush=True)
signal.signal(signal.SIGTERM, told)
signal.signal(signal.SIGUSR2, told)
try:
    print("ready", flush=True)
    while True:
        time.sleep(0.05)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    time.sleep(0.3)
    sys.exit(5)
"""


def start(text, *more):
    return subprocess.Popen(
        words(text, *more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_signals_arrive(place, number):
    process = start(WAITS)
    begun(process)
    os.kill(process.pid, number)
    assert process.stdout.readline() == f"told {int(number)}\n".encode()
    os.kill(process.pid, signal.SIGINT)
    out, _ = process.communicate()
    assert (out, process.returncode) == (b"interrupted\n", 5)
    assert Recording.from_directory(place / "rec").status == 5


ASKS = """
    os.kill(os.getppid(), signal.SIGCONT)
    print("isatty", sys.stdout.isatty(), flush=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    os.kill(os.getppid(), signal.SIGUSR2)
    print("passed on", signal.sigwait({signal.SIGUSR2}).name, flush=True)
"""


def test_ctrl_c_in_a_terminal_arrives_once(place):
    """The terminal tells all processes of its group: ours passes it on to nobody.

    Ours is stopped until the script has heard the terminal. Then the script sends ours another signal, which has to be
    passed on, and is so after what ours has heard of the terminal.
    """
    command = words(WAITS.replace("    time.sleep(0.3)\n", ASKS).replace("import signal", "import os, signal"))
    pid, master = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execv(command[0], command)
    shown = b""
    while b"ready\r\n" not in shown:
        shown += os.read(master, 1000)
    os.kill(pid, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    os.write(master, b"\x03")
    try:
        while data := os.read(master, 1000):
            shown += data
    except OSError:  # how a terminal ends
        pass
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 5
    assert shown.count(b"interrupted") == 1 and b"isatty True\r\n" in shown and b"Traceback" not in shown
    assert Recording.from_directory(place / "rec").output == "ready\ninterrupted\nisatty True\npassed on SIGUSR2\n"


def test_a_kill_ends_the_script_and_leaves_the_old_recording(place):
    run("print('first')")
    process = start(WAITS, "--force")
    begun(process)
    (journal,) = (place / "rec.unfinished" / "processes").iterdir()
    process.kill()
    process.communicate()
    until(lambda: not Path(f"/proc/{journal.name}").exists())
    assert Recording.from_directory(place / "rec").output == "first\n"
    assert Recording.from_directory(place / "rec.unfinished").status is None
    refused = run("print('second')")
    assert (refused.returncode, refused.stdout) == (2, "") and "holds a recording already" in refused.stderr
    assert Recording.from_directory(place / "rec").output == "first\n"
    assert run("print('second')", "--force").returncode == 0
    assert Recording.from_directory(place / "rec").output == "second\n"
    assert sorted(path.name for path in place.iterdir()) == ["rec", "script.py"]


def test_two_runs_are_not_recorded_in_one_folder(place):
    process = start(WAITS)
    begun(process)
    refused = run("print('other')")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "another run is recorded in" in refused.stderr
    process.kill()
    process.communicate()


def test_nobody_reads_the_output_any_more(place):
    text = "import sys\nfor number in range(200_000):\n    print(number)\nprint('end', file=sys.stderr)"
    process = start(text)
    assert process.stdout.readline() == b"0\n"
    process.stdout.close()
    error = process.stderr.read().decode()
    assert process.wait() == 1
    assert "BrokenPipeError" in error and "end" not in error.splitlines()


def test_a_folder_of_others_is_refused(place):
    (place / "rec").mkdir()
    (place / "rec" / "mine.txt").write_text("mine")
    refused = run("print('ran')")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is not empty, and what it holds is no recording" in refused.stderr
    Result("convert").write(place / "rec" / recording.HEAD)
    assert run("print('ran')").returncode == 2
    (place / "rec" / recording.HEAD).unlink()
    (place / "rec" / "mine.txt").unlink()
    assert run("print('ran')").stdout == "ran\n"  # an empty folder is taken
    (place / "file").write_text("")
    assert run("print('ran')", "--record", "file").returncode == 2


@pytest.mark.parametrize(
    "refused", [("--on", "cpu"), ("--steps", "3"), ("--record", "r", "--on", "cpu", "--audit", "a")]
)
def test_options_that_do_not_fit_are_refused(place, refused):
    (place / "script.py").write_text("print('ran')")
    command = [sys.executable, "-m", "torchport", "run", *refused, "script.py"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert not (place / "r").exists()


TRAIN = """
import os, sys
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2), torch.nn.Dropout(0.2))
device = "cuda" if torch.cuda.is_available() else "cpu"
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(25):
    if step == 3:
        x = torch.zeros(1)[:0].to(device)
    x = torch.rand(1000, 8, 4)[step, :, :].to(device)
    x = x.to(device)
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(device, os.path.exists("rec.unfinished"), torch.rand(1).item())
"""


@pytest.mark.processes
def test_weights_and_batches_are_kept(place):
    ended = run(TRAIN)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("cuda True ")
    kept = Recording.from_directory(place / "rec")
    assert (kept.steps, kept.head["side"], kept.head["source"]["script"]) == (25, "reference", "script.py")
    assert set(kept.trained[0].collect_curves()) == {"script.py:15"}
    assert sorted(path.name for path in (place / "rec/weights/MainProcess").iterdir()) == [
        "module-0.pt",
        "optimizer-0.pt",
    ]
    batches = list((place / "rec" / "batches" / "MainProcess").iterdir())
    # Twenty steps, two moves each, and the empty one; of a view its own numbers, not the storage.
    assert len(batches) == 41 and all(path.suffix == ".pt" for path in batches)
    assert all(path.stat().st_size < 4000 for path in batches)
    assert all(zipfile.ZipFile(path).testzip() is None for path in batches)


@pytest.mark.processes
def test_on_cuda_the_script_runs_as_it_is(place):
    """Here torch has no CUDA: what is recorded is that nothing is redirected, and no NPU is looked for."""
    text = TRAIN + "print(sys.modules.keys() & {'torch_npu', 'torchport.auto', 'torchport.record.reference'})\n"
    Path("script.py").write_text(text)
    program = "import sys; from torchport import cli; from torchport.port import in_place; "
    program += "in_place.has_cuda = lambda: True; sys.exit(cli.main())"
    asked = ("run", "--record", "rec", "--on", "cuda", "--steps", "30", "script.py")
    ended = subprocess.run([sys.executable, "-c", program, *asked], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[0].startswith("cpu True ") and ended.stdout.splitlines()[1] == "set()"
    kept = Recording.from_directory(place / "rec")
    assert (kept.steps, kept.head["side"], kept.head["device"]) == (25, "cuda", "cuda:0")
    assert kept.of_kind("random") == []
    assert len(list((place / "rec" / "batches" / "MainProcess").iterdir())) == 41


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--on", "cuda"), "--on cuda: this machine has no GPU"),
        (("--filter", "modul=layer4"), "the filter 'modul=layer4' is none of"),
        (("--filter", "modul=layer4"), "Did you mean module=...?"),
        (("--filter", "step=x"), "'x' is no number and no range"),
        (("--filter", "module"), "the filter 'module' is none of"),
        (("--level", "none", "--filter", "step=3"), "--filter is for operators, of which --level none"),
        (("--level", "all"), "invalid choice: 'all'"),
        (("--max-bytes", "many"), "many is no size"),
    ],
)
def test_what_cannot_be_recorded_is_refused_before_the_script_starts(place, more, sentence):
    ended = run("open('started', 'w')", *more)
    assert (ended.returncode, sentence in ended.stderr) == (2, True), ended.stderr
    assert not Path("started").exists()


CHECKS = Path(__file__).parent / "data" / "pack_checks.py"


@pytest.mark.processes
def test_batches_are_kept_and_taken(tmp_path):
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    ended = subprocess.run(
        [sys.executable, CHECKS, tmp_path], capture_output=True, text=True, check=False, env=environment
    )
    assert (ended.stdout, ended.stderr) == ("done\n", "")


@pytest.fixture
def recorded(place):
    """A plan of a script, and a recording of it."""
    (place / "train.py").write_text("import shapes\n")
    (place / "shapes.py").write_text("SIZE = 1\n")
    rec = place / "rec"
    rec.mkdir()
    plan = Plan(parse_launch(["train.py", "--lr", "1"]), place / "out", place, reference=rec)
    write(
        rec,
        [
            {"kind": "weights", "name": "optimizer-0", "action": "saved", "detail": ""},
            *losses([1.0, 2.0], device="cuda"),
        ],
    )
    recording.begin_recording(
        rec, side="cuda", command=["python"], device="cuda:0", seed=0, source=plan.describe_source()
    )
    for name in ("weights/MainProcess/optimizer-0.pt", "batches/MainProcess/0123456789abcdef-0.pt"):
        (rec / name).parent.mkdir(parents=True)
        with zipfile.ZipFile(rec / name, "w") as archive:
            archive.writestr("data", bytes(1000))
    return plan


def test_a_recording_is_taken_by_name(recorded, tmp_path):
    assert given.check_reference(recorded).steps == 2
    folder = tmp_path / "step"
    folder.mkdir()
    data = given.place_reference(recorded, folder)
    assert (data.steps, data.device, data.status) == (2, "cuda:0", 0)
    assert (folder / "weights/MainProcess/optimizer-0.pt").samefile(
        recorded.reference / "weights/MainProcess/optimizer-0.pt"
    )
    assert Recording.from_directory(folder).steps == 2


def unfinished(plan):
    (plan.reference / recording.END).unlink()


def without_steps(plan):
    (journal,) = plan.reference.glob("processes/*/steps.jsonl")
    journal.write_text("")


def torn_journal(plan):
    (journal,) = plan.reference.glob("processes/*/steps.jsonl")
    journal.write_text("{\n" + journal.read_text())


def torn(name):
    def tear(plan):
        (path,) = plan.reference.glob(name)
        path.write_bytes(path.read_bytes()[:-200])

    return tear


def flipped(plan):
    (path,) = plan.reference.glob("batches/*/*.pt")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


def without_weights(plan):
    (path,) = plan.reference.glob("weights/*/*.pt")
    path.unlink()


def of_port(plan):
    head = plan.reference / recording.HEAD
    value = json.loads(head.read_text())
    del value["data"]["source"]
    head.write_text(json.dumps(value))


def edited(plan):
    (plan.folder / "shapes.py").write_text("SIZE = 2\n")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (unfinished, "was not finished"),
        (without_steps, "has no step of training"),
        (torn_journal, "damaged line"),
        (torn("weights/*/*.pt"), "is damaged: weights/"),
        (torn("batches/*/*.pt"), "is damaged: batches/"),
        (flipped, "is damaged: batches/"),
        (without_weights, "weights/*/optimizer-0.pt is missing"),
        (of_port, "does not say of which script it is"),
        (edited, "these files are others here: shapes.py"),
    ],
)
def test_a_recording_that_does_not_fit_is_refused(recorded, damage, message):
    damage(recorded)
    with pytest.raises(TorchportError) as refused:
        given.check_reference(recorded)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train.py", "--lr", "2"], "its arguments: --lr 1, here --lr 2"),
        (["other.py", "--lr", "1"], "its script: train.py, here other.py"),
    ],
)
def test_a_recording_of_another_run_is_refused(recorded, place, words, message):
    (place / "other.py").write_text("pass\n")
    plan = Plan(parse_launch(words), place / "out", place, reference=recorded.reference)
    with pytest.raises(TorchportError) as refused:
        given.check_reference(plan)
    assert message in str(refused.value)


def test_an_absent_recording_is_refused(place):
    (place / "train.py").write_text("pass\n")
    command = [sys.executable, "-m", "torchport", "port", "--reference", "nothing", "train.py"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and "nothing is not a recording" in ended.stderr
    both = subprocess.run([*command, "--steps", "3"], capture_output=True, text=True, check=False)
    assert both.returncode == 2 and "--steps cannot be given with --reference" in both.stderr
    assert not (place / "torchport-out").exists()


def test_an_end_is_written_for_each_way_to_end(tmp_path):
    End(-2, 1.5).write_to(tmp_path)
    assert End.read_from(tmp_path) == End(-2, 1.5)


def gpu(*, convolutions, products, old=False, capability=(8, 0), initialized=True):
    """As much of torch as says how a GPU computes."""
    matmul, cudnn = SimpleNamespace(), SimpleNamespace()
    if old:
        matmul.allow_tf32, cudnn.allow_tf32 = products, convolutions
    else:
        matmul.fp32_precision = "tf32" if products else "none"
        cudnn.conv = SimpleNamespace(fp32_precision="tf32" if convolutions else "ieee")
    cuda = SimpleNamespace(is_initialized=lambda: initialized, get_device_capability=lambda: capability)
    return SimpleNamespace(cuda=cuda, backends=SimpleNamespace(cuda=SimpleNamespace(matmul=matmul), cudnn=cudnn))


def told(torch):
    notes = []
    part = Tf32(torch, notes.append)
    part.step_done()
    part.step_done()
    return notes


@pytest.mark.parametrize("old", [False, True])
def test_tf32_on_a_gpu_is_said_once(monkeypatch, old):
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    (both,) = told(gpu(convolutions=True, products=True, old=old))
    assert "convolutions and matrix products with TF32" in both
    (one,) = told(gpu(convolutions=True, products=False, old=old))
    assert "convolutions with" in one and "NVIDIA_TF32_OVERRIDE=0" in one
    assert told(gpu(convolutions=False, products=False, old=old)) == []
    assert told(gpu(convolutions=True, products=True, old=old, capability=(7, 5))) == []
    assert told(gpu(convolutions=True, products=True, old=old, initialized=False)) == []
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert told(gpu(convolutions=True, products=True, old=old)) == []


@pytest.mark.parametrize(
    ("line", "node", "found"),
    [
        ("cuda: Optional[str] = '12.1'", "nvidia0", True),
        ("cuda = None", "nvidia0", False),
        ("cuda: Optional[str] = None", "nvidia0", False),
        ("cuda = '13.0'", "dxg", True),
        ("cuda = '13.0'", "nvidiactl", False),
    ],
)
def test_a_gpu_is_found_without_torch(tmp_path, monkeypatch, line, node, found):
    (tmp_path / node).write_text("")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise AssertionError('imported')")
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '2.1'\ndebug = False\n{line}\nhip = None\n")
    monkeypatch.delitem(sys.modules, "torch", raising=False)  # other tests import it
    monkeypatch.syspath_prepend(tmp_path)
    assert in_place.has_cuda(tmp_path) is found

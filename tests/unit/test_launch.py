"""Command lines that start training: what they execute, which file trains, in how many processes."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from torchport.errors import TorchportError
from torchport.launch import Launch, parse_launch

PYTHON = sys.executable
TORCHRUN = (PYTHON, "-W", "ignore::RuntimeWarning:runpy", "-m", "torch.distributed.run")
ACCELERATE = (*TORCHRUN[:-1], "accelerate.commands.launch")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train.py", "pkg/__init__.py", "pkg/train.py", "main/__init__.py", "main/__main__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "lib" / "space").mkdir(parents=True)
    (tmp_path / "lib" / "space" / "go.py").write_text("")
    (tmp_path / "run.sh").write_text("python train.py\n")
    return tmp_path


def line(folder: Path, text: str, **more: object) -> Launch:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": "lib"}
    return parse_launch(text.split(), command=True, folder=folder, environ=environ, **more)  # type: ignore[arg-type]


def test_a_script(folder: Path) -> None:
    launch = parse_launch(["train.py", "--lr", "1"], folder=folder)
    assert launch.command == (PYTHON, "train.py", "--lr", "1")
    assert (launch.script, launch.kind, launch.processes) == (folder / "train.py", "script", 1)
    assert (launch.arguments, launch.module, launch.variables) == (("--lr", "1"), "", ())


def test_several_processes(folder: Path) -> None:
    launch = parse_launch(["train.py", "--lr", "1"], folder=folder, nproc=2)
    assert launch.command == (*TORCHRUN, "--standalone", "--nproc-per-node=2", "train.py", "--lr", "1")
    assert (launch.processes, launch.kind, launch.arguments) == (2, "script", ("--lr", "1"))
    launch = parse_launch(["pkg.train"], folder=folder, nproc=2, module=True, where=("--master-port=1",))
    assert launch.command == (*TORCHRUN, "--master-port=1", "--nproc-per-node=2", "-m", "pkg.train")


@pytest.mark.parametrize(
    ("name", "file"), [("pkg.train", "pkg/train.py"), ("main", "main/__main__.py"), ("space.go", "lib/space/go.py")]
)
def test_a_module_is_found_without_importing_it(folder: Path, name: str, file: str) -> None:
    (folder / "pkg" / "__init__.py").write_text("1/0")
    launch = parse_launch([name, "x"], module=True, folder=folder, environ={"PYTHONPATH": "lib"})
    assert launch.command == (PYTHON, "-m", name, "x")
    assert (launch.script, launch.module, launch.kind) == (folder / file, name, "module")


def test_a_module_in_folders_without_init(tmp_path: Path) -> None:
    (tmp_path / "projects/adder").mkdir(parents=True)
    (tmp_path / "projects/adder/main.py").write_text("1/0")
    launch = parse_launch(["projects.adder.main"], module=True, folder=tmp_path, environ={})
    assert launch.script == tmp_path / "projects/adder/main.py"


@pytest.mark.parametrize("name", ["pkg.absent", "absent", "pkg.train.more", "", ".train", "pkg", "train.py"])
def test_a_module_that_is_not_there(folder: Path, name: str) -> None:
    with pytest.raises(TorchportError, match=r"there is no module|without a __main__"):
        parse_launch([name], module=True, folder=folder, environ={})


@pytest.mark.parametrize(
    ("text", "command", "processes"),
    [
        ("python train.py -x", (PYTHON, "train.py", "-x"), 1),
        ("train.py -x", (PYTHON, "train.py", "-x"), 1),
        ("/usr/bin/python3 -u train.py -x", ("/usr/bin/python3", "-u", "train.py", "-x"), 1),
        ("python3.11 -uW ignore train.py -x", (PYTHON, "-uW", "ignore", "train.py", "-x"), 1),
        (
            "torchrun --nproc-per-node 2 train.py -x",
            (*TORCHRUN, "--standalone", "--nproc-per-node", "2", "train.py", "-x"),
            2,
        ),
        ("torchrun train.py -x", (*TORCHRUN, "--standalone", "train.py", "-x"), 1),
        (
            "torchrun --master_port=29501 --nproc_per_node=3 train.py -x",
            (*TORCHRUN, "--master_port=29501", "--nproc_per_node=3", "train.py", "-x"),
            3,
        ),
        (
            "torchrun --nproc-per-node gpu -r 3 train.py -x",
            (*TORCHRUN, "--standalone", "--nproc-per-node", "gpu", "-r", "3", "train.py", "-x"),
            0,
        ),
        (
            "torchrun --nnodes 2 --nproc-per-node 2 train.py -x",
            (*TORCHRUN, "--nnodes", "2", "--nproc-per-node", "2", "train.py", "-x"),
            2,
        ),
        (
            "python -u -m torch.distributed.launch --use_env --nproc_per_node 2 train.py -x",
            (
                PYTHON,
                "-u",
                *TORCHRUN[1:-1],
                "torch.distributed.launch",
                "--standalone",
                "--use_env",
                "--nproc_per_node",
                "2",
                "train.py",
                "-x",
            ),
            2,
        ),
        (
            "accelerate launch --multi_gpu --num_processes 2 --mixed_precision bf16 train.py -x",
            (*ACCELERATE, "--multi_gpu", "--num_processes", "2", "--mixed_precision", "bf16", "train.py", "-x"),
            2,
        ),
        ("accelerate-launch --brand_new_flag train.py -x", (*ACCELERATE, "--brand_new_flag", "train.py", "-x"), 0),
        (
            "deepspeed --num_gpus 2 train.py -x",
            (*TORCHRUN[:-1], "deepspeed.launcher.runner", "--num_gpus", "2", "train.py", "-x"),
            2,
        ),
        (
            "deepspeed --include localhost:1,3 train.py -x",
            (*TORCHRUN[:-1], "deepspeed.launcher.runner", "--include", "localhost:1,3", "train.py", "-x"),
            2,
        ),
        ("fabric run --devices 2 train.py -x", ("fabric", "run", "--devices", "2", "train.py", "-x"), 2),
    ],
)
def test_a_command_line(folder: Path, text: str, command: tuple[str, ...], processes: int) -> None:
    launch = line(folder, text)
    assert launch.command == command
    assert (launch.script, launch.processes, launch.arguments) == (folder / "train.py", processes, ("-x",))
    assert launch.kind == ("script" if processes == 1 and "torchrun" not in text else "launcher")


def test_a_launcher_of_a_module(folder: Path) -> None:
    launch = line(folder, "torchrun --nproc-per-node=2 -m pkg.train --lr 1")
    assert (launch.script, launch.module) == (folder / "pkg" / "train.py", "pkg.train")
    assert launch.arguments == ("--lr", "1")
    launch = parse_launch(["torch.distributed.run", "train.py"], module=True, folder=folder)
    assert (launch.script, launch.kind) == (folder / "train.py", "launcher")


def test_variables_in_front(folder: Path) -> None:
    for text in ("A=1 B= python train.py", "env A=1 B= python train.py"):
        launch = line(folder, text)
        assert (launch.command, launch.variables) == ((PYTHON, "train.py"), (("A", "1"), ("B", "")))
    launch = line(folder, "PYTHONPATH=. python -m pkg.train")
    assert launch.script == folder / "pkg" / "train.py"
    assert line(folder, "PET_NPROC_PER_NODE=4 torchrun train.py").processes == 4


def test_one_word_is_a_line_of_its_own(folder: Path) -> None:
    launch = parse_launch(["A=1 python train.py --name 'a b'"], command=True, folder=folder)
    assert launch.command == (PYTHON, "train.py", "--name", "a b")
    with pytest.raises(TorchportError, match="not complete"):
        parse_launch(["python 'train.py"], command=True, folder=folder)


def test_a_shell_script_finds_this_interpreter(folder: Path) -> None:
    launch = line(folder, "bash run.sh 1")
    assert (launch.command, launch.script, launch.processes) == (("bash", "run.sh", "1"), None, 0)
    assert launch.kind == "command"
    assert dict(launch.variables)["PATH"].split(os.pathsep)[0] == str(Path(PYTHON).parent)


def test_stdin_is_kept_as_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"print(1)\n")))
    keep = folder / "out" / "stdin.py"
    launch = parse_launch(["-", "--lr", "1"], keep=keep, folder=folder, environ={"PYTHONPATH": "lib"})
    assert launch.command == (PYTHON, str(keep), "--lr", "1")
    assert (launch.script, launch.kind, keep.read_bytes()) == (keep, "stdin", b"print(1)\n")
    assert dict(launch.variables)["PYTHONPATH"] == f".{os.pathsep}lib"
    with pytest.raises(TorchportError, match="no script on stdin"):
        parse_launch(["-"], keep=keep, folder=folder)
    assert parse_launch(["-", "1"]).command == (PYTHON, "-", "1")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "nothing to start"),
        ("A=1", "nothing to start"),
        ("absent.py", "there is no script absent.py"),
        ("python absent.py", "there is no script absent.py"),
        ("python pkg", "the script pkg is a folder"),
        ("python", "python is given no script"),
        ("python -m", "given no module"),
        ("python -I train.py", "-I shuts torchport out"),
        ("torchrun", "torchrun is given no script"),
        ("torchrun --nproc-per-node 2", "torchrun is given no script"),
        ("torchrun absent.py", "absent.py, which is not there"),
        ("torchrun -m pkg.absent", "there is no module pkg.absent"),
        ("accelerate launch", "accelerate is given no script"),
        ("no-such-program x", "there is no program no-such-program"),
    ],
)
def test_what_cannot_be_started(folder: Path, text: str, says: str) -> None:
    with pytest.raises(TorchportError, match=says) as error:
        line(folder, text)
    assert error.value.exit_code == 2


@pytest.mark.parametrize("text", ["torchrun train.py", "bash run.sh", "accelerate launch train.py", "python -c pass"])
def test_who_counts_the_processes_is_clear(folder: Path, text: str) -> None:
    with pytest.raises(TorchportError, match="--nproc 2 cannot be given to"):
        line(folder, text, nproc=2)
    assert line(folder, "python train.py", nproc=2).processes == 2


def test_no_process_is_no_run(folder: Path) -> None:
    with pytest.raises(TorchportError, match="0 is no number of processes"):
        parse_launch(["train.py"], nproc=0, folder=folder)


@pytest.mark.parametrize("words", [["torchrun", "train.py"], ["python", "train.py"], ["A=1", "train.py"]])
def test_a_forgotten_separator_is_explained(folder: Path, words: list[str]) -> None:
    with pytest.raises(TorchportError) as error:
        parse_launch(words, folder=folder)
    assert error.value.hint == f"A command line stands after `--`: -- {' '.join(words)}"

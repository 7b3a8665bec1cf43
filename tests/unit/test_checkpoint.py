"""`torchport checkpoint`: which part holds the weights, what is stripped, what differs, and what is left alone."""

from __future__ import annotations

import json
import math
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from torchport.checkpoints import guarded, names, writing
from torchport.checkpoints.contents import Contents, Piece, Stored, read_tensor_bytes
from torchport.checkpoints.tensors import Unreadable
from torchport.cli import main
from torchport.errors import TorchportError


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is read on a machine of any speed."""
    monkeypatch.setattr(guarded, "SECONDS", 1000)
    monkeypatch.setattr(guarded, "WALL", 1000)


def safetensors(path: Path, tensors: dict[str, Sequence[float]]) -> Path:
    header, data = {}, b""
    for name, values in tensors.items():
        piece = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    said = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(said)) + said + data)
    return path


def part(*given: str) -> dict[str, Stored]:
    return {name: Stored("float32", (1,), ()) for name in given}


def contents(**parts: Sequence[str]) -> Contents:
    return Contents(Path("x.pth"), "torch.save", {way.replace("top", ""): part(*found) for way, found in parts.items()})


# Names, and what is left of them.
STRIPPED = [
    (["module.a", "b"], ["module.a", "b"], []),  # not every name has it
    (["modules.a", "modules.b"], ["modules.a", "modules.b"], []),
    (["backbone.a", "backbone.b"], ["backbone.a", "backbone.b"], []),  # nobody's wrapper
    (["module.a", "module.b"], ["a", "b"], ["module."]),
    (["_orig_mod.module.a", "_orig_mod.module.b"], ["a", "b"], ["_orig_mod.", "module."]),
    (["n_averaged", "module.a", "module.b"], ["a", "b"], ["module."]),  # torch.optim.swa_utils
    (["a._orig_mod.w", "b.w"], ["a.w", "b.w"], ["_orig_mod."]),
    (["a._orig_mod.w", "a.w"], ["a._orig_mod.w", "a.w"], []),  # they would become one
]


@pytest.mark.parametrize(("given", "left", "removed"), STRIPPED, ids=[str(row[0]) for row in STRIPPED])
def test_what_is_stripped(given: list[str], left: list[str], removed: list[str]) -> None:
    found = names.strip_prefixes(given)
    assert (list(found.names), list(found.removed)) == (left, removed)
    assert all(found.names[new].endswith(new.rpartition(".")[2]) for new in left)


def test_a_prefix_that_not_all_have_is_refused() -> None:
    with pytest.raises(TorchportError, match=r"1 of 2 names do not begin with 'module.': b"):
        names.strip_prefixes(["module.a", "b"], "module.")
    assert names.strip_prefixes(["module.a"], "").names == {"module.a": "module.a"}


def test_a_half_match_is_left_as_it_is() -> None:
    half = names.match_names(["a", "b"], ["module.a", "b"])
    assert (half.missing, half.unexpected, half.removed) == (("a",), ("module.a",), ())
    assert names.find_nearest_name("a", half.unexpected) == "module.a"
    assert names.match_names(["a", "b"], ["module.a", "module.b"]).whole
    # A model that has a layer of the name keeps it.
    layered = names.match_names(["model.a"], ["module.model.a"])
    assert layered.whole and layered.names == {"model.a": "module.model.a"}


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("encoder.layer.0.weight", "bert.encoder.layer.0.weight"),
        ("head.weigth", "head.weight"),
        ("something.else", None),
    ],
)
def test_nearest_name(given: str, near: str | None) -> None:
    assert names.find_nearest_name(given, ["bert.encoder.layer.0.weight", "head.weight", "head.bias"]) == near


def test_which_part_is_the_weights() -> None:
    assert names.find_weights(contents(top=["a"]))[0] == ""
    assert names.find_weights(contents(top=["epoch"], state_dict=["a"]))[0] == "state_dict"
    assert names.find_weights(contents(model=["a"], ema=["a"], optimizer=["exp_avg"]))[0] == "model"
    assert names.find_weights(contents(model=["a"], ema=["a"]), "ema")[0] == "ema"
    assert names.find_weights(contents(ema_state=["a"], optimizer=["b"]))[0] == "ema_state"
    with pytest.raises(TorchportError, match="2 parts that may be") as refused:
        names.find_weights(contents(netG=["a"], netD=["a"]))
    assert "--part" in refused.value.hint
    with pytest.raises(TorchportError, match="did you mean 'netG'"):
        names.find_weights(contents(netG=["a"], netD=["a"]), "netg")
    with pytest.raises(TorchportError, match="no weights"):
        names.find_weights(contents(optimizer=["a"]))


def test_diff(tmp_path: Path, capsys) -> None:
    one = safetensors(tmp_path / "one.safetensors", {"module.a": [1, 2], "module.b": [3], "module.block.c": [1]})
    other = safetensors(tmp_path / "other.safetensors", {"a": [1, 2.5], "b": [3], "stage.block.c": [1]})
    assert main(["checkpoint", "diff", str(one), str(one)]) == 0
    assert main(["checkpoint", "diff", str(one), str(other)]) == 1
    output = capsys.readouterr().out
    assert "a: other values, 2.2e-01 of their norm apart" in output and "\nb:" not in output
    assert "block.c: only in the first; the second has stage.block.c" in output
    assert main(["checkpoint", "diff", str(one), str(other), "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)["differences"]
    assert math.isclose(rows[0]["difference"], 0.5 / math.sqrt(5)) and rows[0]["name"] == "a"


def test_a_nan_is_a_difference(tmp_path: Path) -> None:
    one = safetensors(tmp_path / "one.safetensors", {"a": [1, 2]})
    other = safetensors(tmp_path / "other.safetensors", {"a": [1, math.nan]})
    assert main(["checkpoint", "diff", str(one), str(other)]) == 1
    assert main(["checkpoint", "diff", str(other), str(other)]) == 0


def test_strip_keeps_what_is_there(tmp_path: Path, capsys) -> None:
    given = safetensors(tmp_path / "given.safetensors", {"module.a": [1, 2], "module.b": [3]})
    target = tmp_path / "out.safetensors"
    target.write_text("mine")
    assert main(["checkpoint", "strip", str(given), "-o", str(target)]) == 2
    assert target.read_text() == "mine" and "--force" in capsys.readouterr().err
    assert main(["checkpoint", "strip", str(given), "-o", str(target), "--force"]) == 0
    found = guarded.read_in_subprocess(target).parts[""]
    assert {
        name: struct.unpack("<2f" if name == "a" else "<f", read_tensor_bytes(stored)) for name, stored in found.items()
    } == {"a": (1, 2), "b": (3,)}
    assert main(["checkpoint", "strip", str(given), "-o", str(tmp_path / "out.pth")]) == 2
    assert main(["checkpoint", "show", str(given), "-o", str(target)]) == 2
    assert main(["checkpoint", "diff", str(given)]) == 2


def test_shards_are_one_checkpoint(tmp_path: Path, capsys) -> None:
    for number, name in enumerate("ab"):
        safetensors(tmp_path / f"{number}.safetensors", {name: [number]})
    rows = {"weight_map": {"a": "0.safetensors", "b": "1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(rows))
    assert list(guarded.read_in_subprocess(tmp_path).parts[""]) == ["a", "b"]
    rows["weight_map"]["c"] = "1.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(rows))
    assert main(["checkpoint", "show", str(tmp_path)]) == 2
    assert "1.safetensors lacks c" in capsys.readouterr().err
    (tmp_path / "0.safetensors").unlink()
    assert main(["checkpoint", "show", str(tmp_path)]) == 2
    assert "names 0.safetensors, which is not there" in capsys.readouterr().err


def test_a_block_in_another_order_is_read_in_order(tmp_path: Path) -> None:
    """As weights in channels_last are, with and without blocks of several ranks."""
    file = tmp_path / "bytes"
    file.write_bytes(bytes(range(12)))
    turned = Piece(str(file), 0, 12, 0, (1, 3), (0, 0), (3, 4))
    assert list(read_tensor_bytes(Stored("uint8", (3, 4), (turned,)))) == [
        c * 3 + r for r in range(3) for c in range(4)
    ]
    halves = tuple(Piece(str(file), 6 * n, 6, 0, (3, 1), (2 * n, 0), (2, 3)) for n in range(2))
    assert list(read_tensor_bytes(Stored("uint8", (4, 3), halves[::-1]))) == list(range(12))


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    given = safetensors(tmp_path / "given.safetensors", {"a": [1.0] * 50_000})
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "from torchport.cli import main; sys.exit(main(['checkpoint', 'strip', sys.argv[1], '-o', sys.argv[2]]))"
    )
    target = tmp_path / "out.safetensors"
    ended = subprocess.run([sys.executable, "-c", program, given, target], capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and f"{target}: File too large" in ended.stderr
    assert sorted(tmp_path.iterdir()) == [given]


def test_control_c_leaves_nothing(tmp_path: Path, monkeypatch) -> None:
    given = guarded.read_in_subprocess(safetensors(tmp_path / "given.safetensors", {"a": [1.0], "b": [1.0]})).parts[""]
    (tmp_path / "given.safetensors").rename(tmp_path / "kept")
    seen: list[list[str]] = []

    def interrupted(text: str) -> None:
        seen.append(sorted(path.name for path in tmp_path.iterdir()))
        signal.raise_signal(signal.SIGINT)  # heard before it returns
        pytest.fail("it was not interrupted")

    with pytest.raises(KeyboardInterrupt):
        writing.write_safetensors(tmp_path / "out.safetensors", given, interrupted)
    assert len(seen[0]) == 2 and sorted(path.name for path in tmp_path.iterdir()) == ["kept"]


def test_parts_of_an_optimizer_are_shown_as_one(capsys, monkeypatch, tmp_path: Path) -> None:
    parts = {f"optimizer.state.{n}": part("exp_avg", "step") for n in range(3)} | {"state_dict": part("a")}
    monkeypatch.setattr(guarded, "read_in_subprocess", lambda path: Contents(path, "torch.save", parts))
    assert main(["checkpoint", "show", "x.pth", "--names"]) == 0
    output = capsys.readouterr().out
    assert (
        output.count("optimizer.state.*: 6 tensors, 6 elements") == 1 and "optimizer.state.2.step  float32[1]" in output
    )
    assert "state_dict: 1 tensor, 1 elements, 0.0 MiB (1 float32)  <- the weights" in output


def test_a_tensor_that_is_larger_than_the_memory_is_not_read(tmp_path: Path) -> None:
    """Where a file system does not tell of holes."""
    file = tmp_path / "holes"
    file.write_bytes(b"")
    with pytest.raises(Unreadable, match="MiB of memory"):
        read_tensor_bytes(Stored("uint8", (1 << 50,), (Piece(str(file), 0, 1 << 50, 0, (1,), (0,), (1 << 50,)),)))

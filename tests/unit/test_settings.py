"""`[tool.torchport]` in pyproject.toml: every command leaves out what the project does not want."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchport.analyze import analyze_tree
from torchport.audit import Event, Kind
from torchport.convert import convert_tree, preview_tree, undo_tree, write_tree
from torchport.convert.audited import with_audit
from torchport.errors import TorchportError
from torchport.source.settings import settings_of

SCRIPT = "import torch\ntorch.cuda.get_arch_list()\nx = torch.zeros(1).cuda()\nrun(x)\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("train.py", "third_party/deep/kernel.py"):
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SCRIPT)
    return tmp_path / "project"


def settings(project: Path, text: str) -> None:
    (project / "pyproject.toml").write_text(f"[tool.torchport]\n{text}\n")


def places(project: Path) -> set[tuple[str, str]]:
    return {(one.code, one.location.path) for one in analyze_tree(project).findings if one.location}


def test_without_settings_everything_counts(project: Path) -> None:
    found = places(project)
    assert {("TP101", "train.py"), ("TP101", "third_party/deep/kernel.py")} <= found


@pytest.mark.parametrize("pattern", ["third_party/*", "third_party", "third_party/", "*/kernel.py"])
def test_excluded_files_are_left_as_they_are(project: Path, pattern: str) -> None:
    settings(project, f"exclude = ['{pattern}']")
    assert {path for _, path in places(project)} == {"train.py"}
    out = project.parent / "out"
    assert convert_tree(project, out).data["changed"] == ["train.py"]
    assert (out / "third_party/deep/kernel.py").read_text() == SCRIPT
    assert write_tree(project).data["changed"] == ["train.py"]
    assert (project / "third_party/deep/kernel.py").read_text() == SCRIPT
    assert undo_tree(project) == ["train.py"]


def test_paths_are_seen_from_the_folder_of_the_settings(project: Path) -> None:
    settings(project, "exclude = ['third_party/*']")
    assert preview_tree(project / "third_party").data["summary"].files == 0
    assert preview_tree(project / "third_party/deep/kernel.py").findings == ()


def test_a_path_upwards_meets_the_settings_of_its_own_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "other").mkdir()
    (project / "other" / "pyproject.toml").write_text("[tool.torchport]\nignore = ['TP101']\n")
    settings(project, "exclude = ['third_party']")
    monkeypatch.chdir(project / "other")
    assert settings_of(Path("..")).exclude == ("third_party",)
    assert settings_of(Path("../train.py")).leaves_out(Path("../third_party/deep/kernel.py"))
    assert settings_of(Path()).ignore == {"TP101"}


def test_ignored_codes_are_neither_reported_nor_acted_on(project: Path) -> None:
    every = {code for code, _ in places(project)}
    settings(project, "ignore = ['TP101']")
    assert {code for code, _ in places(project)} == every - {"TP101"}
    settings(project, f"ignore = {sorted(every)}")
    assert preview_tree(project).data["changed"] == []
    assert preview_tree(project).findings == ()


def test_an_audit_is_held_against_what_is_left(project: Path) -> None:
    events = [
        Event(Kind.REDIRECTED, str(project / name), 4, "torch.cuda.synchronize", "torch.npu.synchronize", 1)
        for name in ("train.py", "third_party/deep/kernel.py")
    ]
    for text, expected in (
        ("", ["third_party/deep/kernel.py", "train.py"]),
        ("exclude = ['third_party/*']", ["train.py"]),
        ("ignore = ['TP331']", []),
    ):
        settings(project, f"{text}\n")
        preview = preview_tree(project)
        findings = with_audit(preview, events, project).findings[len(preview.findings) :]
        assert sorted(one.location.path for one in findings if one.location) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.torchport]\nignored = []", "unknown keys ignored"),
        ("[tool.torchport]\nignore = 'TP101'", "not a list of strings"),
        ("[tool.torchport]\nexclude = [1]", "not a list of strings"),
        ("[tool.torchport]\nignore = ['TP10']", "TP10 .* is no code"),
        ("[tool]\ntorchport = 1", "not a table"),
        ("not toml", "TOML"),
    ],
)
def test_a_mistake_is_an_error_of_every_command(project: Path, text: str, message: str) -> None:
    (project / "pyproject.toml").write_text(text)
    with pytest.raises(TorchportError, match=message):
        settings_of(project)
    done = subprocess.run(
        [sys.executable, "-m", "torchport", "check", str(project)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "pyproject.toml" in done.stderr


@pytest.mark.parametrize(
    ("text", "code"), [("ignore = ['TP101']", 0), ("exclude = ['*']", 0), ("ignore = ['TP604']", 1)]
)
def test_check_honours_them(project: Path, text: str, code: int) -> None:
    settings(project, text)
    done = subprocess.run(
        [sys.executable, "-m", "torchport", "check", str(project)], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr


def test_the_nearest_file_counts(project: Path) -> None:
    settings(project, "ignore = ['TP101']")
    (project / "third_party" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert settings_of(project / "third_party" / "deep").ignore == frozenset()
    assert settings_of(project / "train.py").ignore == {"TP101"}

"""The examples are CUDA scripts as people write them: they convert, and what stays is explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchport.convert import Extras, convert_source, preview_tree
from torchport.convert.residue import Meaning, find_residue
from torchport.findings import Severity
from torchport.rules import Style

EXAMPLES = Path(__file__).parents[2] / "examples"
# The findings that a person has to act on.
LEFT: dict[str, list[str]] = {
    "digits/train.py": [],
    "imagenet/main.py": [],
    "gpt/train.py": [],
    "gan/train.py": [],
    "vae/train.py": [],
    "lstm/train.py": [],
    "reinforce/train.py": [],
    "apex/train.py": ["TP401"] * 4,  # apex itself, and three of its parts whose replacement has conditions
}


def test_every_example_is_here() -> None:
    assert {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.glob("*/*.py")} == set(LEFT)


@pytest.mark.parametrize("name", LEFT)
@pytest.mark.parametrize("style", Style)  # the agnostic style keeps what CUDA alone has
def test_converts_without_unexplained_residue(name: str, style: Style) -> None:
    conversion = convert_source((EXAMPLES / name).read_bytes(), name, style)
    left = [one for one in conversion.findings if one.severity is not Severity.INFO and not one.fix]
    assert [finding.code for finding in left] == LEFT[name] or style is Style.AGNOSTIC
    assert all(finding.hint for finding in left)
    meanings = {mention.meaning for mention in find_residue(conversion.output, name, conversion.left)}
    assert meanings <= {Meaning.NAME, Meaning.PROSE, Meaning.KEPT} or style is Style.AGNOSTIC
    compile(conversion.output, name, "exec")


def test_several_devices() -> None:
    diff = preview_tree(EXAMPLES / "apex" / "train.py", extras=Extras("train.py")).data["diff"]
    added = [line[1:].strip() for line in diff.splitlines() if line.startswith("+")]
    assert sum("DistributedSampler(train_data)" in line for line in added) == 1
    assert not any("DistributedSampler(val_data" in line for line in added)
    assert "train_loader.sampler.set_epoch(epoch)" in added
    wrap = next(number for number, line in enumerate(diff.splitlines()) if "DistributedDataParallel(model" in line)
    assert "amp.initialize(" in "\n".join(diff.splitlines()[:wrap])
    assert "model.module.state_dict()" in diff


def test_a_script_for_several_devices_stays_one() -> None:
    result = preview_tree(EXAMPLES / "imagenet" / "main.py", extras=Extras("main.py"))
    assert [one.message for one in result.findings if one.code == "TP210"] == [
        "the script makes a process group itself: it is left as it is"
    ]
    assert "DistributedSampler(train_dataset))" not in result.data["diff"]

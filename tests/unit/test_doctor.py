"""`torchport doctor` and `torchport vnpu`: what they say on a machine that lacks something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchport import cli, cuda_builds, vnpu
from torchport.doctor import distributed, environment, libraries
from torchport.errors import TorchportError
from torchport.vnpu import backend, cann, persistence, wheels
from torchport.vnpu.probe import Probe


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without CANN, with both wheels and a folder that passes for the built virtual NPU."""
    monkeypatch.setenv("VNPU_LIBRARIES", str(tmp_path / "lib"))
    for name in ("TORCHPORT_BACKEND", "ASCEND_HOME_PATH", "LD_LIBRARY_PATH", "VNPU_SOC", "VNPU_CANN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(backend, "CANN_ROOTS", ())
    monkeypatch.setattr(backend, "LINKER_CACHE", tmp_path / "none")
    monkeypatch.setattr(wheels, "find_wheel", lambda name: wheels.Wheel(name, wheels.SUPPORTED))
    monkeypatch.setattr(persistence, "pth_file", lambda: tmp_path / persistence.FILE_NAME)
    monkeypatch.setattr(cuda_builds, "pth_file", lambda: tmp_path / cuda_builds.FILE_NAME)
    monkeypatch.setattr("torchport.doctor.extensions.list_checks", lambda machine, timeout: iter(()))
    for name in (*environment._NUMBERS, *distributed.VARIABLES, "RANK_TABLE_FILE", "ASCEND_RT_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("torchport.doctor.trial.probe_device", lambda _: Probe(True, "Ascend910B1", 8, ""))
    (tmp_path / "lib").mkdir()
    for name in libraries.NAMES:
        (tmp_path / "lib" / name).touch()
    rows = [
        {"name": "aclnnAdd", "tier": 1, "status": "implemented", "family": "pointwise", "reason": ""}
        | {"checks": "code", "unconfirmed": {"self": "u16"}},
        {"name": "aclnnFoo", "tier": 3, "status": "gap", "family": "", "reason": "rare"}
        | {"checks": "unknown", "unconfirmed": {}},
    ]
    (tmp_path / "lib/operators.json").write_text(json.dumps(rows))
    return tmp_path


def checks(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    data = json.loads(capsys.readouterr().out)
    return {check["name"]: check for check in data["checks"]}


def test_healthy_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0
    output = capsys.readouterr().out
    assert "ok    trial          1+1 on npu:0 of 8 (Ascend910B1)" in output
    assert "FAIL" not in output


def test_the_warning_of_every_start_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "Warning: The current CANN and Soc versions require processing for 32 padding size, with memory allocation."
    for output, explained in ((said, True), ("", False)):
        monkeypatch.setattr(
            "torchport.doctor.trial.probe_device", lambda _, output=output: Probe(True, "Ascend910B1", 8, output)
        )
        assert cli.main(["doctor"]) == 0
        assert ("nothing to mend" in capsys.readouterr().out) == explained


def test_missing_device_fails_and_names_the_fix(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (machine / "lib/libascendcl.so").unlink()
    assert cli.main(["doctor", "--json"]) == 1
    found = checks(capsys)
    assert not found["device"]["passed"]
    assert "make build" in str(found["device"]["fix"])
    assert "trial" not in found, "no trial without a device"


@pytest.mark.parametrize(
    ("wheel", "says"),
    [
        (None, "not installed"),
        (wheels.Wheel("torch", "2.13.0+cu130", "13.0"), "2.13.0+cu130"),
        (wheels.Wheel("torch", "2.9.0+cpu"), "made for 2.13.0"),
    ],
)
def test_wrong_torch(
    wheel: wheels.Wheel | None, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wheels, "find_wheel", lambda name: wheel if name == "torch" else None)
    assert cli.main(["doctor", "--json"]) == 1
    torch = checks(capsys)["torch"]
    assert not torch["passed"]
    assert says in str(torch["detail"])
    assert torch["fix"]


def test_damaged_torch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def find(name: str) -> wheels.Wheel:
        raise TorchportError(f"{name} is damaged", hint="Install it again")

    monkeypatch.setattr(wheels, "find_wheel", find)
    assert cli.main(["doctor", "--json"]) == 1
    found = checks(capsys)
    assert (found["torch"]["detail"], found["torch"]["fix"]) == ("torch is damaged", "Install it again")
    assert found["device"]["passed"], "the other checks are made all the same"


@pytest.mark.parametrize(("asked", "fix"), [("cann", "set_env.sh"), ("gpu", "vnpu, cann or auto")])
def test_a_backend_that_cannot_be_had_is_a_failed_check(
    asked: str, fix: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHPORT_BACKEND", asked)
    assert cli.main(["doctor", "--json"]) == 1
    device = checks(capsys)["device"]
    assert f"TORCHPORT_BACKEND={asked}" in str(device["detail"])
    assert fix in str(device["fix"])


def test_cann_goes_with_torch_npu_s_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vnpu, "detect", lambda: vnpu.Backend(vnpu.Kind.CANN, "CANN is there."))
    monkeypatch.setattr(wheels, "find_wheel", lambda name: wheels.Wheel(name, "2.9.0"))
    monkeypatch.setattr("torchport.doctor.trial.probe_device", lambda _: Probe(False, "", 0, "no driver"))
    assert cli.main(["doctor", "--json"]) == 1
    found = checks(capsys)
    assert (found["torch_npu"]["passed"], found["trial"]["passed"]) == (True, False)
    assert "npu-smi info" in str(found["trial"]["fix"])
    assert "make build" not in str(found["trial"]["fix"])


def test_failing_trial_shows_the_end_of_its_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torchport.doctor.trial.probe_device", lambda _: Probe(False, "", 0, "RuntimeError: broken"))
    assert cli.main(["doctor"]) == 1
    assert "RuntimeError: broken" in capsys.readouterr().out
    assert cli.main(["doctor", "--no-probe"]) == 0


def test_fix_writes_a_file_only_where_something_is_broken(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = machine / cuda_builds.FILE_NAME
    monkeypatch.setattr(cuda_builds, "find_broken_library", lambda name: None)
    assert cli.main(["doctor", "--fix"]) == 0
    assert not file.exists()
    monkeypatch.setattr(
        cuda_builds, "find_broken_library", lambda name: Path("_C.so") if name == "torchaudio" else None
    )
    assert cli.main(["doctor", "--fix"]) == 0
    assert "mend_when_imported" in file.read_text()
    monkeypatch.setattr(cuda_builds, "pth_file", lambda: machine / "missing" / "x.pth")
    assert cli.main(["doctor", "--fix"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_vnpu_info(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VNPU_SOC", "Ascend310P3")
    assert cli.main(["vnpu", "info", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["backend"], data["chip"]["name"], data["chip"]["bf16"]) == ("vnpu", "Ascend310P3", False)
    assert data["operators"] == {"implemented": 1, "gap": 1}
    assert cli.main(["vnpu", "info"]) == 0
    assert "1 gap, 1 implemented" in capsys.readouterr().out


def test_vnpu_info_names_the_cann(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.main(["vnpu", "info"]) == 0
    assert f"{cann.read_default_version()}, the one of this torch_npu" in capsys.readouterr().out
    monkeypatch.setenv("VNPU_CANN", "8.3.RC1")
    assert cli.main(["vnpu", "info"]) == 0
    assert "8.3.RC1, chosen by VNPU_CANN" in capsys.readouterr().out
    monkeypatch.setenv("VNPU_CANN", "new")
    assert cli.main(["vnpu", "info"]) == 2
    assert "VNPU_CANN=new is not a version of CANN" in capsys.readouterr().err


def test_unknown_chip(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("VNPU_SOC", "H100")
    assert cli.main(["vnpu", "info"]) == 2
    assert "VNPU_SOC=H100" in capsys.readouterr().err


def test_a_family_without_a_profile_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VNPU_SOC", "Ascend950PR_9599")
    assert cli.main(["vnpu", "info"]) == 2
    said = capsys.readouterr().err
    assert "Ascend950PR_9599 is not a chip profile" in said and "fp8" in said
    assert "Ascend910_9391" in said


def test_a_chip_that_is_not_there_is_named_before_torch_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VNPU_SOC", "H100")
    with pytest.raises(TorchportError, match="VNPU_SOC=H100 is not a chip profile"):
        vnpu.environment()


def test_a_cann_that_is_none_is_named_before_torch_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VNPU_CANN", "9")
    with pytest.raises(TorchportError, match="VNPU_CANN=9 is not a version of CANN"):
        vnpu.environment()


def test_vnpu_ops_filters(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["vnpu", "ops", "--status", "gap", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["aclnnFoo"]
    assert cli.main(["vnpu", "ops", "--tier", "1"]) == 0
    words = "aclnnAdd tier 1 implemented pointwise checks: code not on its page: self u16"
    assert capsys.readouterr().out.split() == words.split()
    assert cli.main(["vnpu", "ops", "--checks", "unknown"]) == 0
    assert capsys.readouterr().out.split()[0] == "aclnnFoo"


def test_vnpu_env_can_be_evaluated(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["vnpu", "env"]) == 0
    assert f"export LD_LIBRARY_PATH={machine / 'lib'}\n" in capsys.readouterr().out


def test_vnpu_enable_and_disable(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = machine / persistence.FILE_NAME
    assert cli.main(["vnpu", "enable"]) == 0
    assert file.exists()
    assert cli.main(["vnpu", "disable"]) == 0
    assert not file.exists()
    assert capsys.readouterr().out.endswith("Disabled.\n")


def test_enable_without_permission_names_another_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], machine: Path
) -> None:
    monkeypatch.setattr(persistence, "pth_file", lambda: machine / "missing" / persistence.FILE_NAME)
    assert cli.main(["vnpu", "enable"]) == 2
    assert "torchport vnpu env" in capsys.readouterr().err

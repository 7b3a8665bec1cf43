"""`torchport diagnose`: the first cause that logs name, in any file, and what it leaves alone."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from torchport import cli
from torchport.diagnose import diagnose_logs, diagnose_text, moments
from torchport.diagnose.judging import judge_events
from torchport.diagnose.logs import scan_log
from torchport.errors import TorchportError
from torchport.findings import Result
from torchport.knowledge.errors import load_error_rows
from torchport.report import render_diagnosis
from torchport.report.html import render_page

LOGS = Path(__file__).parent / "data/logs"
SET = tomllib.loads((LOGS / "set.toml").read_text("utf-8"))
INJECTED = LOGS.parent / "injected"
PROVOKED = tomllib.loads((INJECTED / "set.toml").read_text("utf-8"))
FULL = "torch.OutOfMemoryError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0)"
WAITS = "EI0002: [PID: 7] {} The wait execution of the Notify register times out."
HOSTILE = "RuntimeError: <script>alert(1)</script>\x1b]0;title\x07 error code is 507035"


def path_of(name: str, logs: Path = LOGS) -> str:
    return str(logs / name if (logs / name).is_dir() else logs / f"{name}.txt")


def said(text: str) -> tuple[str, str]:
    data = diagnose_text(text).data
    return data["answer"], data["row"]


# Logs of healthy runs that are cut, or do not say how the run ended.
ENDLESS = {
    "launcher_warning.txt",
    "memory_summary.txt",
    "optional_package.txt",
    "overflow_skipped.txt",
    "profiler_schedule.txt",
    "trained_on_the_virtual_npu_ddp.txt",
    "trained_on_the_virtual_npu_program.txt",
    "weights_only_advice.txt",
}


@pytest.mark.parametrize("name", sorted(path.name for path in (LOGS / "clean").iterdir()))
def test_no_cause_is_seen_in_a_healthy_run(name: str) -> None:
    result = diagnose_logs(str(LOGS / "clean" / name), None)
    assert (result.data["answer"], result.data["row"]) == ("open" if name in ENDLESS else "clean", "")
    assert {finding.code for finding in result.findings} <= {"TP803"}


def test_the_right_cause_comes_first() -> None:
    wrong = {name: row for name in SET if (row := diagnose_logs(path_of(name), None).data["row"]) != SET[name]["cause"]}
    assert wrong == {}, "54 of 60 are promised, and all are right"


def test_what_was_injected_comes_first() -> None:
    """29 failures of VNPU_FAULTS and two runs that it only made slow."""
    wrong = {
        name: row
        for name, case in PROVOKED.items()
        if (row := diagnose_logs(path_of(name, INJECTED), None).data["row"]) != case["cause"]
    }
    assert len(PROVOKED) == 31
    assert wrong == {}


def test_text_without_a_failure_is_left_alone() -> None:
    assert said("") == ("open", "")
    assert said("step 1 error 0.3\nstep 2 failed samples: 0, time out of 10 s\n") == ("open", "")
    assert said("the process ran out of memory, says the book\n") == ("open", "")


def test_an_unknown_failure_is_called_unknown_and_names_the_nearest() -> None:
    result = diagnose_text("[ERROR] HCCL(5,python): the network socket of the ranktable was eaten, port down\n")
    assert result.data["answer"] == "unknown"
    (finding,) = result.findings
    assert finding.code == "TP804"
    assert finding.evidence["nearest"] == "collective.link"
    assert "The nearest that is known is collective.link" in finding.hint
    far = diagnose_text("[ERROR] HCCL(5,python): the socket was eaten\n").findings[0]
    assert (far.hint, far.evidence["nearest"]) == (load_error_rows()["follow.failure"].fix, "")


def test_who_has_given_all_logs_is_not_asked_for_them(tmp_path: Path) -> None:
    waits = WAITS.format("2025-01-01-10:30:00.000.000")
    for rank in (0, 1):
        (tmp_path / f"rank_{rank}.log").write_text(f"start\n{waits}\n")
    assert "FOLDER" in diagnose_logs(str(tmp_path / "rank_0.log"), None).findings[0].evidence["next"]
    assert "FOLDER" not in diagnose_logs(str(tmp_path), None).findings[0].evidence["next"]


def test_an_exception_of_the_script_is_quoted_with_its_place() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/job/train.py", line 7, in <module>\n    run()\n'
        '  File "/env/lib/python3.11/site-packages/lib.py", line 3, in run\n    raise KeyError(key)\n'
        "KeyError: 'label'\n"
    )
    result = diagnose_text(text)
    assert result.data["row"] == "script.exception"
    assert result.findings[0].message == "lib raised an exception: KeyError: 'label'"
    assert result.findings[0].evidence["at"] == "/job/train.py:7"


def test_the_first_in_time_wins_over_the_last_raised() -> None:
    late = f"2025-01-01-10:30:00.000.001 [ERROR] X\n{FULL}\n"
    early = "2025-01-01-10:00:00.000.001 an exception of aivec error, core id is 3\n"
    between = "step\n" * 40
    assert said(late + between + early)[1] == "kernel.vector", "as a plog that is written by several threads"
    assert said(early + between + late)[1] == "kernel.vector"
    assert said(late + between + early.replace("10:00", "11:00"))[1] == "memory.device-full"


def test_whole_seconds_give_way_to_parts_of_them(tmp_path: Path) -> None:
    """torch_npu's line of an error has no more than seconds, CANN's below it has."""
    for rank, parts in ((0, "594"), (1, "477")):
        (tmp_path / f"rank_{rank}.log").write_text(
            "RuntimeError: NPU function error: AclrtSynchronizeStreamWithTimeout, error code is 507046\n"
            f"[ERROR] 2025-01-01-09:17:25 (PID:1, Device:{rank}, RankID:{rank}) ERR00100 PTA call acl api failed\n"
            f"[PID: 1] 2025-01-01-09:17:25.{parts}.721 Execution_Error(EE1002): Stream synchronize timeout.\n"
        )
    assert diagnose_logs(str(tmp_path), None).findings[0].evidence["ranks"] == ["1", "0"]


def test_the_parts_of_a_second_that_torch_prints_are_of_another_clock() -> None:
    torch, glog = "[W1123 05:04:08.315699481 NPUStream.cpp:767]", "W1123 05:04:08.315699 12 x.cc:1]"
    cann = "[PID: 1] 2025-11-23-05:04:08.315.699"
    assert moments.parse_time(torch) == int(moments.parse_time(glog) or 0)
    assert moments.parse_time(cann) == moments.parse_time(glog) != moments.parse_time(torch)


def test_who_waits_is_never_the_cause_where_another_fails() -> None:
    waits = WAITS.format("2025-01-01-10:00:00.000.000")
    assert said(waits) == ("cause", "collective.silent-rank"), "alone it is all that is known"
    assert diagnose_text(waits).findings[0].evidence["confidence"] == "low"
    assert said(f"{waits}\n" + "step\n" * 40 + f"2025-01-01-10:05:00.000.000\n{FULL}\n")[1] == "memory.device-full"


def test_a_code_gives_way_to_the_line_that_explains_it() -> None:
    code = "RuntimeError: call aclnnMatmul failed, error code is 161002\n"
    assert said(code) == ("cause", "operator.parameter")
    why = "EZ1001: parameter mat2 has size 3 in dimension 0, expected 4, the last size of self\n"
    assert said(code + why)[1] == "script.shapes"
    only = diagnose_text("NPU function error: aclrtFoo, error code is 507899").findings[0]
    assert only.evidence["confidence"] == "medium"


HELD = (
    "(worker pid={pid}{where}) [ERROR] 2026-04-24-16:14:56 (PID:{pid}, Device:{device}, RankID:{rank}) ERR02200 DIST call"
    " hccl api failed.\n(worker pid={pid}{where}) EJ0001: [PID: {pid}] 2026-04-24-16:14:56.975.866 Failed to initialize"
    " the HCCP process. Reason: Maybe the last training process is running.\n"
)


def test_a_device_that_several_ranks_name_is_not_held_by_the_last_job() -> None:
    text = "".join(HELD.format(pid=9001 + rank, device=0, rank=rank, where="") for rank in (2, 1, 3))
    result = diagnose_text(text)
    assert result.data["row"] == "collective.shared-device"
    first, *others = result.findings
    assert [line["line"] for line in first.evidence["proof"]] == [3, 1, 5]
    assert first.evidence["confidence"] == "medium"
    assert "collective.hccp-busy" in [finding.evidence["row"] for finding in others]


@pytest.mark.parametrize(
    "ranks",
    [
        [(0, 3, "")],
        [(0, 0, ""), (1, 1, "")],
        [(0, 0, ""), (1, 1, ""), (2, 0, ""), (3, 1, "")],  # two machines
        [(0, 0, ", ip=10.0.0.1"), (1, 0, ", ip=10.0.0.2")],
        [(-1, 0, ""), (-1, 0, "")],
    ],
)
def test_devices_of_their_own_are_held_by_the_last_job(ranks: list[tuple[int, int, str]]) -> None:
    text = "".join(
        HELD.format(pid=9000 + at, device=device, rank=rank, where=where)
        for at, (rank, device, where) in enumerate(ranks)
    )
    assert said(text) == ("cause", "collective.hccp-busy")


def test_repeated_lines_are_folded() -> None:
    result = diagnose_text("".join(f"step {at}\n{FULL}\n" for at in range(1000)))
    (finding,) = result.findings
    assert len(finding.evidence["proof"]) == 3
    assert finding.location is not None
    assert finding.location.line == 2


def test_ranks_of_a_folder_are_told_apart(tmp_path: Path) -> None:
    waits = WAITS.format("2025-01-01-10:30:00.000.000")
    for rank in (0, 1, 3):
        (tmp_path / f"rank_{rank}.log").write_text(f"start\n{waits}\n")
    (tmp_path / "rank_2.log").write_text(f"2025-01-01 10:00:00,000 start\n{FULL}\n")
    result = diagnose_logs(str(tmp_path), None)
    first, then = result.findings
    assert (first.evidence["row"], first.evidence["ranks"]) == ("memory.device-full", ["2"])
    assert (then.evidence["row"], then.evidence["ranks"]) == ("collective.silent-rank", ["0", "1", "3"])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "latin-1"])
def test_encodings(encoding: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(f"Epoche für Epoche\r\n{FULL}\r\n".encode(encoding))
    assert diagnose_logs(str(log), None).data["row"] == "memory.device-full"


def test_what_is_no_text_is_refused_with_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "weights").write_bytes(os.urandom(100_000))
    assert cli.main(["diagnose", str(tmp_path / "weights")]) == 2
    assert "it is binary, not text" in capsys.readouterr().err
    assert cli.main(["diagnose", str(tmp_path / "missing")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert cli.main(["diagnose", str(tmp_path)]) == 2
    assert "no log that can be read" in capsys.readouterr().err
    (tmp_path / "rank_0.log").write_text(f"{FULL}\n")
    assert cli.main(["diagnose", str(tmp_path)]) == 1
    assert "weights was not read: it is binary" in capsys.readouterr().out


def test_an_empty_log_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").touch()
    assert cli.main(["diagnose", str(tmp_path / "log")]) == 4
    assert "0 lines" in capsys.readouterr().out


def test_a_file_that_may_not_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(TorchportError, match="cannot read secret: Permission denied"):
        diagnose_logs("secret", None)


def test_an_endless_pipe_has_an_end() -> None:
    command = f"yes 'step 1' | {shlex.quote(sys.executable)} -m torchport diagnose - --limit 3M"
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (4, "")
    assert "--limit was not read" in ended.stdout


def test_ctrl_c_gives_what_was_read() -> None:
    class Stream(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell():
                raise KeyboardInterrupt
            return super().read(size)

    log = scan_log(Stream(f"{FULL}\nmore\n".encode()), "stdin", 1 << 20)
    assert log.interrupted
    judgement = judge_events(log.events)
    assert judgement is not None
    assert judgement.first.row.name == "memory.device-full"


def test_lines_without_an_end_and_lines_cut_by_a_block() -> None:
    assert said("x" * 3_000_000) == ("open", "")
    lines = f"{'y' * 1000}\n" * 1048 + f"{FULL}\n" + f"{'y' * 1000}\n" * 1048
    assert said(lines)[1] == "memory.device-full"
    assert diagnose_text(lines).findings[0].evidence["proof"][0]["line"] == 1049


def test_a_page_and_a_terminal_take_nothing_from_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    result = diagnose_text(HOSTILE)
    assert "<script>alert" not in render_page(result)
    assert "alert(1)" in render_page(result)
    assert "\x1b" not in render_diagnosis(result, color=False)
    assert "\x07" not in render_diagnosis(result, color=False)


def test_a_page_says_the_cause_and_explains_its_row() -> None:
    """It explained TP801, which every cause is, and began in the middle of a sentence."""
    text = render_page(diagnose_text(f"{FULL}\n"))
    assert "The device&#x27;s memory is full" in text
    assert "torchport explain memory.device-full" in text and "torchport explain TP801" not in text


def test_result_survives_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_text(f"{FULL}\n")
    assert cli.main(["diagnose", str(tmp_path / "log"), "--json", "-o", str(tmp_path / "result.json")]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert Result.read(tmp_path / "result.json").to_json() == printed
    assert printed["findings"][0]["evidence"]["next"]


def test_codes_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "memory.device-full"]) == 0
    assert "smaller batch" in capsys.readouterr().out
    assert cli.main(["explain", "memory.device-ful"]) == 2
    assert "memory.device-full" in capsys.readouterr().err

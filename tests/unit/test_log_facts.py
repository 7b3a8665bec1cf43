"""Facts around a cause: fields, CANN's guesses, warnings, plogs, and how a log ends."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path

import pytest

from torchport.cli import main
from torchport.diagnose import diagnose_logs, diagnose_text
from torchport.diagnose.fields import extract_fields, load_fields
from torchport.diagnose.marks import find_end_of_marks
from torchport.diagnose.progress import find_ending
from torchport.diagnose.raised import find_exception
from torchport.diagnose.reading import join_wrapped_lines
from torchport.knowledge.errors import REPORT_TO, Owner, Role, load_error_rows

FIELDS = tomllib.loads(resources.files("torchport.knowledge").joinpath("fields.toml").read_text("utf-8"))
FULL = "torch.OutOfMemoryError: NPU out of memory. Tried to allocate 2.00 GiB"
RAISED = 'Traceback (most recent call last):\n  File "/job/train.py", line 7, in <module>\n    run()\n{}\n'


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_is_read_from_its_sample(name: str) -> None:
    assert extract_fields([FIELDS[name]["sample"]])[name] == FIELDS[name]["value"]
    assert set(load_fields()) == set(FIELDS)


def test_a_line_without_facts_has_none() -> None:
    assert extract_fields(["RuntimeError: shapes do not match", "loss 0.5 on device npu:0"]) == {}


def test_facts_are_said_and_used_in_the_remedy() -> None:
    text = (
        RAISED.format("RuntimeError: The Inner error is reported as above.")
        + "the current working operator name is aclnnCat\n"
        "[ERROR] Aicore kernel execute failed, device_id=3, stream_id=48, task_id=3, fault kernel_name=ConcatD_1, error"
        " code is 507015\n"
    )
    first = diagnose_text(text).findings[0]
    assert {"kernel ConcatD_1", "operator aclnnCat", "device 3"} <= set(first.evidence["facts"])
    assert "torchport explain aclnnCat" in first.hint


def test_what_cann_guesses_is_quoted_and_never_sure() -> None:
    guess = "[ERROR] x failed\n        Possible Cause: NPU out of memory. Tried to allocate 2 GiB\n        Solution: Wait.\n"
    first = diagnose_text(guess).findings[0]
    assert first.evidence["confidence"] == "medium"
    assert "CANN advises: Wait." in first.evidence["guesses"]


def test_a_warning_is_no_cause_beside_an_exception() -> None:
    warning = "[W401 12:00:03.111 compiler_depend.ts:57] Warning: NPU warning, error code is 107002\n"
    raised = RAISED.format("KeyError: 'label'")
    for text in (warning + raised, raised + warning, warning + "step\n" * 40 + raised):
        assert diagnose_text(text).data["row"] == "script.exception"
    alone = diagnose_text(f"{warning}Training completed.\n")
    assert alone.data["answer"] == "clean"
    assert "a warning: " in alone.findings[0].message


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: head size 80 is not supported",
        "(EngineCore_DP0 pid=1) ValueError: head size 80",
        "[rank3]: torch.distributed.DistBackendError: no",
        "worker-2  | RuntimeError: x",
        "[1,3]<stderr>:OSError: x",
        "ERROR 07-17 08:06:53 [core.py:487] KeyError: 3",
        "2025-06-25T10:45:23.586187123Z   my.lib.SomeException: x",
    ],
)
def test_an_exception_counts_behind_any_mark(line: str) -> None:
    assert find_exception(line.encode())
    result = diagnose_text(f"{line}\n")
    assert result.data["answer"] == "cause"
    assert result.findings[0].evidence["owner"] == "" or result.data["row"] != "script.exception"


@pytest.mark.parametrize(
    "line",
    [
        "the ValueError: of the book",
        "INFO retried after OSError: x (3 of 5)",
        "except RuntimeError: pass",
        "tests/test_a.py::test_ValueError: PASSED",
        "best val Error: 0.3",
    ],
)
def test_prose_is_no_exception(line: str) -> None:
    assert not find_exception(line.encode())
    assert diagnose_text(f"{line}\n").data["row"] == ""


def test_an_exception_that_python_ignores_is_none() -> None:
    text = (
        "Exception ignored in: <function Pool.__del__ at 0x7f1c>\nTraceback (most recent call last):\n"
        '  File "/env/lib/python3.10/pool.py", line 3, in __del__\n    self.close()\nAttributeError: x has no attribute y\n'
    )
    assert diagnose_text(f"{text}training finished\n").data["answer"] == "clean"
    both = diagnose_text(f"{text}{RAISED.format('OSError: [Errno 5] eaten')}")
    assert "OSError" in both.findings[0].message


@pytest.mark.parametrize(
    "line",
    [
        "Killed",
        "./run.sh: line 3: 1234 Killed                  python train.py",
        "./run.sh: 行 3: 1234 已杀死               python train.py",
        "段错误 (核心已转储)",
        "Process finished with exit code 1",
        "python exited with code 2",
        "command terminated with exit code 137",
        "srun: error: node1: task 0: Exited with exit code 1",
    ],
)
def test_a_status_that_is_not_zero_is_a_failure(line: str) -> None:
    result = diagnose_text(f"step 1 loss 2.0\nstep 2 loss 1.9\n{line}\n")
    assert result.data["answer"] in ("cause", "unknown")
    assert result.findings[0].evidence["confidence"] == "low"


def test_our_own_words_at_the_end_are_no_good_end() -> None:
    """The remedy of checkpoint.keys speaks of what was saved."""
    text = RAISED.format(
        'RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "0.weight".'
    )
    said = diagnose_text(text)
    assert said.data["row"] == "checkpoint.keys"
    whole = (
        f"{text}torchport: {said.findings[0].message}\n  {said.findings[0].hint}\n  torchport explain checkpoint.keys\n"
    )
    assert diagnose_text(whole).data["row"] == "checkpoint.keys"
    assert diagnose_text(f"{text}the model was saved\n").data["row"] == "checkpoint.keys", "by a script around it"


def test_a_warning_in_chinese_is_one() -> None:
    text = "[警告] 未检测到 CUDA，忽略 (Torch not compiled with CUDA enabled)\n[2/2] 矩阵乘法 ... 通过\n{}\n"
    assert diagnose_text(text.format("检查结束，全部通过")).data["answer"] == "clean"
    assert diagnose_text(text.format("RuntimeError: 3")).data["row"] == "script.exception"


def test_errors_that_the_run_survived_are_no_failure() -> None:
    steps = "".join(f"step {step} loss {3 / step:.3f}\n" for step in range(1, 9))
    went_on = diagnose_text(f"{FULL}\nretrying with half the batch\n{steps}training finished\n")
    assert went_on.data["answer"] == "clean"
    assert "after which the run went on" in went_on.findings[0].message
    assert diagnose_text(f"{steps}{FULL}\n").data["row"] == "memory.device-full"
    assert diagnose_text(f"{FULL}\ntraining finished\n").data["row"] == "memory.device-full", (
        "by a launcher's own words"
    )


@pytest.mark.parametrize(
    ("line", "ended"),
    [
        ("检查结束，全部通过", True),
        ("运行成功", True),
        ("{'train_runtime': 301.4, 'train_loss': 0.88}", True),
        ("Training completed. Do not forget to share your model", True),
        ("Epoch 10/10 loss 0.3", True),
        ("100%|##########| 500/500 [10:00<00:00,  1.2s/it]", True),
        ("训练完成", True),
        ("Epoch 3/10 loss 0.3", False),
        (" 43%|####3     | 215/500 [04:00<05:00,  1.2s/it]", False),
        ("Loading checkpoint shards: 100%|##########| 4/4 [00:03<00:00]", False),
        ("Saving model checkpoint to out/checkpoint-500", False),
        ("step 100 loss 0.3", False),
        ("Training loss 0.3", False),
    ],
)
def test_how_a_log_ends(line: str, ended: bool) -> None:
    assert bool(find_ending([(1, "start"), (2, line)])[0]) == ended
    assert diagnose_text(f"start\n{line}\n").data["answer"] == ("clean" if ended else "open")


def test_a_saved_checkpoint_is_no_end_of_a_run_that_has_more_to_do() -> None:
    tail = [(1, "Epoch 3/10 loss 0.3"), (2, "model saved to out/3.pt")]
    assert find_ending(tail) == (0, "")
    assert find_ending([(1, "Epoch 10/10 loss 0.3"), tail[1]])[0] == 2


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["torchport: no NPU was used: everything ran on the CPU"], "everything ran on the CPU"),
        (
            ["torchport: NPUs used: rank 0: npu:0, 4 operators; rank 1: npu:0, 4 operators"],
            "ranks 0, 1 computed on one",
        ),
        (
            [
                "[rank0]: torchport: NPUs used: rank 0: npu:0, 4 operators",
                "torchport: NPUs used: rank 1: npu:0, 3 operators",
            ],
            "ranks 0, 1 computed on one",
        ),
        (
            [
                "torchport: NPUs used: rank 0: npu:0, 4 operators; rank 1: npu:1, 4 operators and npu:0 opened, nothing computed"
            ],
            "rank 1 opened card 0 of rank 0",
        ),
        (["torchport: NPUs used: rank 0: npu:0, 4 operators; rank 1: npu:1, 4 operators"], ""),
        (["torchport: NPUs used: rank 0: npu:0 (card 2), 4 operators; rank 1: npu:0 (card 5), 4 operators"], ""),
        (["torchport: NPUs used: rank 0: npu:0, 4 operators; rank 1: unknown"], ""),
        (["torchport: NPUs used: npu:0, 154 operators in 10 of 10 steps"], ""),
    ],
)
def test_the_devices_that_a_run_has_used_are_read(lines: list[str], said: str) -> None:
    result = diagnose_text("\n".join(["training finished", *lines, ""]))
    assert result.data["answer"] == "clean"
    found = [finding.message for finding in result.findings if finding.code == "TP807"]
    assert (said in found[0]) if said else not found


def test_marks_are_no_words_of_a_line() -> None:
    for line in (b"EE1001: [PID: 7] x", b"RuntimeError: x", b"loss: 3"):
        assert find_end_of_marks(line) == 0
    assert find_end_of_marks(b"(VllmWorker rank=3 pid=1) ERROR 07-17 08:06:53 [x.py:487] EE1001: [PID: 1]") == 58


def test_rows_of_a_table_are_not_put_together() -> None:
    table = b"".join(
        b"Epoch %d/9 | loss %d.%04d | accuracy 0.%04d | learning rate 1.0e-03 | 12 s\n" % (at, at, at, at)
        for at in range(1, 9)
    )
    assert join_wrapped_lines(table) == table


def test_each_owner_is_told_where_to_report() -> None:
    assert set(REPORT_TO) == set(Owner) - {Owner.UNKNOWN}
    used = {row.owner for row in load_error_rows().values() if row.role is Role.CAUSE}
    assert used == set(Owner) - {Owner.UNKNOWN}


def test_the_plog_of_the_process_is_read_beside_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        RAISED.format("RuntimeError: The Inner error is reported as above.")
        + "[ERROR] 2025-06-25-10:45:23 (PID:159, Device:0, RankID:-1) ERR00100 PTA call acl api failed\n"
    )
    folder = tmp_path / "ascend/log/debug/plog"
    folder.mkdir(parents=True)
    said = "[ERROR] RUNTIME(159,python):2025-06-25-10:45:23.100.000 an exception of aivec error, core id is 3\n"
    (folder / "plog-159_20250625103000123.log").write_text(said)
    (folder / "plog-160_20250625103000123.log").write_text(said.replace("aivec", "aicore"))
    (folder / "plog-159_20250624103000123.log").write_text("")
    (folder / "plog-159_20251225103000123.log").write_text(said.replace("aivec", "aicore"))
    assert diagnose_logs(str(log), None).data["answer"] == "unknown"
    result = diagnose_logs(str(log), None, plog=tmp_path / "ascend/log")
    assert result.data["row"] == "kernel.vector"
    assert [Path(name).name for name in result.data["plogs"]] == [
        "plog-159_20250624103000123.log",
        "plog-159_20250625103000123.log",
    ]
    assert main(["diagnose", str(log), "--plog", str(tmp_path / "ascend/log")]) == 1
    assert "and 2 plogs" in capsys.readouterr().out
    assert main(["diagnose", str(log), "--plog", str(tmp_path / "none")]) == 4

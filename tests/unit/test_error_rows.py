"""knowledge/errors: each row's sample matches it alone, and no text makes a pattern slow."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from counting import grows_with, work
from linear_patterns import slow_parts
from log_texts import texts

from torchport.diagnose import diagnose_text
from torchport.diagnose.matching import Matcher
from torchport.knowledge.errors import Role, load_error_rows, official, parse_error_row
from torchport.knowledge.errors.answers import load_fault_kinds

MIB = 1 << 20


def matched(line: str) -> set[str]:
    block = f"{line}\n".encode()
    return {hit.row.name for hit in Matcher().find_hits(block, block.split(b"\n"))}


@pytest.mark.parametrize("name", load_error_rows())
def test_a_sample_matches_its_row_alone(name: str) -> None:
    """Alone but for the general shapes, which give way to what a row knows."""
    general = {one for one in load_error_rows() if one.startswith("general.") or one == "follow.failure"} - {name}
    for sample in load_error_rows()[name].samples:
        assert matched(sample) - general == {name}, sample


# Their words are one program's own, or only one report of them was found.
ONE_WORDING = {
    "collective.stale-root",
    "graph.pinned-segments",
    "launcher.deepspeed-batch",
    "launcher.loss-scale",
    "memory.virtual-host-limit",
    "operator.fallback-resize",
    "operator.virtual-gap",
    "operator.virtual-internal",
    "script.hook",
    "serving.memory-share",
}


def test_a_cause_is_known_in_two_phrasings() -> None:
    """A row is one of a kind, and not of the words of one release."""
    rows = load_error_rows().values()
    assert {row.name for row in rows if row.role is Role.CAUSE and len(set(row.samples)) < 2} == ONE_WORDING


def test_what_a_row_says() -> None:
    for row in load_error_rows().values():
        assert row.samples, row.name
        assert row.cause.endswith("."), row.name
        assert row.fix.endswith("."), row.name
        assert row.source, row.name
        assert row.next or row.role in (Role.NOTICE, Role.OUTCOME), row.name


def test_what_we_say_is_no_failure() -> None:
    """A log of `torchport run` has our words in it."""
    for row in load_error_rows().values():
        for text in (row.cause, row.fix, f"torchport: {row.cause} (/job/a.py:3)", f"  torchport explain {row.name}"):
            assert diagnose_text(text).data["answer"] in ("clean", "open"), (row.name, matched(text))


def test_a_row_that_breaks_the_schema_is_refused() -> None:
    row = {"words": ["some words"], "cause": "", "fix": "", "next": "", "samples": [""], "source": ""}
    row["owner"] = "script"
    parse_error_row("a.b", row)
    for broken in (
        {**row, "wrods": []},
        {**row, "owner": "nobody"},
        {**row, "owner": ""},
        {**row, "words": []},
        {**row, "words": ["abc"]},
        {"words": ["some words"]},
    ):
        with pytest.raises(ValueError, match=r"a\.b|nobody"):
            parse_error_row("a.b", broken)


@pytest.mark.parametrize("name", [name for name, row in load_error_rows().items() if row.pattern])
def test_a_pattern_takes_linear_time(name: str) -> None:
    pattern = load_error_rows()[name].pattern
    assert pattern is not None
    assert slow_parts(pattern) == []


@pytest.mark.parametrize(
    "pattern",
    [
        "a.*b",
        "a.+?b.+?c",
        r"x (?:a+)+y",
        r"x (?:ab)*y",
        r"x (?:\w+ ){1,9}y",
        r"\w+ is not",
        r"[\w ]+\(",
        r"rank \w+\d",
        r"rank \d+(?:\w| x)",
        r"a.{0,200}b.{0,200}c.{0,200}d",
        r"(?:a.{0,9}){1,9}",
    ],
)
def test_a_slow_pattern_is_seen(pattern: str) -> None:
    assert slow_parts(re.compile(pattern))


def test_a_linear_pattern_is_none() -> None:
    for pattern in (r"rank \d+ has", r"^\d+ x", r"function \w+", r"x: \w+\b is", "a.{0,200}b", r"(?:\[\d+\]: ?)?a"):
        assert slow_parts(re.compile(pattern)) == [], pattern


@pytest.mark.parametrize(("name", "most"), [("training", 1), ("frames", 3), ("errors", 6), ("words of the rows", 40)])
def test_all_rows_together_do_little_for_a_line(name: str, most: int) -> None:
    """Far fewer steps than there are rows, be it the rows' own words without order, which no log is."""
    text = texts()[name]

    def all_blocks() -> None:
        matcher = Matcher()
        for at in range(0, len(text), MIB):
            block = text[at : at + MIB]
            list(matcher.find_hits(block, block.split(b"\n")))

    all_blocks()
    done = work(all_blocks)
    assert done.lines < most * text.count(b"\n")
    assert done.characters < 8 * len(text)


PROGRAM = """
import resource, subprocess, sys
log = b"".join(b"2025-06-25 10:45:%02d,586 | INFO | step %d | loss %.4f\\n" % (at % 60, at, 1 / (at + 1)) for at in range(20000))
process = subprocess.Popen([sys.executable, "-m", "torchport", "diagnose", "-"], stdin=subprocess.PIPE)
for _ in range(100 * 2**20 // len(log) + 1):
    process.stdin.write(log)
process.stdin.write(b"torch.OutOfMemoryError: NPU out of memory. Tried to allocate 2.00 GiB\\n")
process.stdin.close()
assert process.wait() == 1
print("\\n", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_100_megabytes_take_200_mebibytes() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert "memory.device-full" in ended.stdout
    assert int(ended.stdout.split()[-1]) < 200 * 1024


def test_the_work_for_a_log_grows_with_its_length() -> None:
    log = "2025-06-25 10:45:00,586 | INFO | step 1 | loss 0.5\nRuntimeError: device not found\n"
    assert grows_with(lambda: diagnose_text(log * 500), lambda: diagnose_text(log * 2000), 4)


def test_what_the_virtual_npu_says_is_known() -> None:
    """One concept, two tables: the codes and words that it answers with, and what they mean."""
    for kind in load_fault_kinds():
        answer = kind.answers["runtime"]
        text = (
            f"RuntimeError: NPU function error: aclrtFoo, error code is {answer.code}\n"
            "[ERROR] 2026-11-23-04:59:13 (PID:1, Device:0, RankID:-1) ERR00100 PTA call acl api failed.\n"
            f"[PID: 1] 2026-11-23-04:59:13.991.255 {answer.report}: {answer.text} [virtual NPU]\n"
        )
        assert diagnose_text(text).data["answer"] == "cause", kind.name


def test_official_words_come_from_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "conf/error_manager"
    folder.mkdir(parents=True)
    (folder / "error_code.json").write_text(
        '{"error_info_list": [{"ErrCode": "EI0099", "ErrMessage": "The moon is\\nin the way"}, {"other": 1}]}'
    )
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    official.read_report_codes.cache_clear()
    assert official.words_for("x EI0099: y") == "EI0099: The moon is in the way"
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path / "none"))
    official.read_report_codes.cache_clear()
    assert official.words_for("x EI0099: y") == ""
    official.read_report_codes.cache_clear()
    assert "vector core" in official.words_for("error code is 507035"), "of the wheel"
    assert official.words_for("error code is 999999") == ""

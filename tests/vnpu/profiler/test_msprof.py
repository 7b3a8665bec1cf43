"""msprof alone: from a session's log to each file."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import session_logs
from session_logs import EPOCH, SessionLog, msprof

OUTPUT = "mindstudio_profiler_output"


def start_us(ns: int) -> str:
    return f"{(EPOCH + ns) // 1000}.{(EPOCH + ns) % 1000:03}"


def small() -> SessionLog:
    """Two kernels, of which this machine has computed the first for 5 ms; a wait; a copy; a collective."""
    log = SessionLog(switches=session_logs.CALLS | session_logs.METRICS | session_logs.TASK_TIME | session_logs.MARKS)
    log.memory(2048 * 1024, 0)
    log.mark(1, 5, "forward", 500, 0)
    log.call("aclnnMm", 1, 1_000, 5_001_000, (0, 1000))
    log.task(
        "aclnnMm", 1, (1000, 3000), wall=(2_000, 5_000_000), unit=session_logs.CUBE, shapes=((4, 8), (8, 2), (4, 2))
    )
    log.call("aclnnInplaceAdd", 2, 5_002_000, 5_003_000, (1000, 2000))
    log.task("aclnnInplaceAdd", 2, (3000, 4500), wall=(5_002_500, 5_002_900))
    log.mark(2, 5, "", 5_003_500, 2000)
    log.call("aclrtSynchronizeStream", 0, 5_004_000, 9_000_000, (2000, 4500))
    log.call("aclrtMemcpyAsync", 3, 9_100_000, 9_101_000, (4500, 4500))
    log.task("MemcpyAsync", 3, (4500, 6500), wall=(9_100_000, 9_100_500), unit=session_logs.HOST_COPY, shapes=())
    log.call("HcclAllReduce", 4, 9_102_000, 9_103_000, (4500, 4500))
    log.collective("HcclAllReduce", "group_a", 7, 4, 5000, (6000, 9000))
    return log


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = small().write(tmp_path_factory.mktemp("profile") / "PROF_000001_1_A", (9_200_000, 9000))
    for words in (["--export=on"], ["--export=on", "--type=db"], ["--analyze=on"], ["--analyze=on", "--type=db"]):
        done = msprof(*words, f"--output={folder}")
        assert (done.returncode, done.stderr) == (0, "")
    return folder


def table(folder: Path, name: str) -> list[dict[str, str]]:
    (path,) = (folder / OUTPUT).glob(f"{name}_*.csv")
    return list(csv.DictReader(path.read_text().splitlines()))


def trace(folder: Path) -> list[dict[str, Any]]:
    (path,) = (folder / OUTPUT).glob("msprof_*.json")
    return json.loads(path.read_text())  # type: ignore[no-any-return]


def spans(folder: Path) -> dict[str, dict[str, Any]]:
    return {event["name"]: event for event in trace(folder) if event["ph"] == "X"}


def test_op_summary_has_what_torch_npu_reads(exported: Path) -> None:
    mm, add, reduce = table(exported, "op_summary")
    assert mm["Op Name"] == "aclnnMm_Mm" and mm["OP Type"] == "Mm" and mm["Task Type"] == "AI_CORE"
    assert mm["Task Start Time(us)"] == start_us(1000) + "\t" and mm["Task Duration(us)"] == "2.000"
    assert mm["Input Shapes"] == '"4,8;8,2"' and mm["Output Shapes"] == '"4,2"'
    assert mm["Input Data Types"] == "FLOAT;FLOAT" and mm["Predicted"] == "true"
    assert add["OP Type"] == "Add" and add["Task Type"] == "AI_VECTOR_CORE"
    assert (reduce["OP Type"], reduce["Task Type"]) == ("hcom_AllReduce_".replace("A", "a", 1), "COMMUNICATION")
    from torch_npu.profiler.analysis.prof_common_func._csv_headers import CsvHeaders

    wanted = set(CsvHeaders.OP_SUMMARY_SHOW_HEADERS) | set(CsvHeaders.OP_SUMMARY_ADDITIONAL_HEADERS)
    assert wanted <= set(mm)


def test_what_this_machine_computed_is_cut_out(exported: Path) -> None:
    """Of the 5 ms that aclnnMm took here its 1 us launch is left, of the wait what the model waits."""
    events = spans(exported)
    assert events["AscendCL@aclnnMm"]["dur"] == pytest.approx(1.0, abs=0.01)
    assert events["AscendCL@aclrtSynchronizeStream"]["dur"] == pytest.approx(2.1, abs=0.01)
    assert events["forward"]["dur"] < 3 and events["forward"]["args"]["Domain"] == "default"
    assert all(event["args"]["predicted"] is True for event in events.values())


def test_a_program_ahead_of_its_queue_has_a_time_of_its_own(tmp_path: Path) -> None:
    """Thread 9 takes from the queue, on this machine long after thread 8 has put both operators and waits."""
    log = SessionLog()
    log.call("aclnnMm", 1, 1_500, 5_000_000, (0, 1000))
    log.task("aclnnMm", 1, (1000, 2000), unit=session_logs.CUBE, shapes=((4, 8), (8, 2), (4, 2)))
    log.call("aclnnMm", 2, 5_000_000, 9_000_000, (1000, 2000))
    log.task("aclnnMm", 2, (2000, 3000), unit=session_logs.CUBE, shapes=((4, 8), (8, 2), (4, 2)))
    log.call("aclrtSynchronizeStream", 0, 3_000, 9_100_000, (0, 3000), thread=8)
    log.queue_thread(9)
    log.put(1_000, 0)
    log.put(2_000, 1000)
    folder = log.write(tmp_path / "PROF_1_1_A", (9_200_000, 3500))
    assert msprof("--export=on", f"--output={folder}").returncode == 0
    wait = spans(folder)["AscendCL@aclrtSynchronizeStream"]
    assert float(wait["ts"]) - float(start_us(1000)) == pytest.approx(0.4, abs=0.3)  # as a float
    assert wait["dur"] == pytest.approx(1.6, abs=0.01)
    launches = [event for event in trace(folder) if event["name"] == "AscendCL@aclnnMm"]
    assert [event["dur"] for event in launches] == pytest.approx([1.0, 1.0], abs=0.01)


def test_wall_time_is_this_machines(tmp_path: Path) -> None:
    folder = small().write(tmp_path / "PROF_1_1_A", (9_200_000, 9000), wall=True)
    assert msprof("--export=on", f"--output={folder}").returncode == 0
    events = spans(folder)
    assert events["AscendCL@aclnnMm"]["dur"] == 5000.0 and events["aclnnMm_Mm"]["dur"] == 4998.0
    assert events["aclnnMm_Mm"]["args"]["predicted"] is False
    assert table(folder, "op_summary")[0]["Predicted"] == "false"


def test_each_task_has_an_arrow_from_its_call(exported: Path) -> None:
    events = trace(exported)
    ends = {(e["pid"], e["tid"], e["ts"]): e for e in events if e["ph"] == "f"}
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    calls = {e["name"]: e for e in events if e["ph"] == "X" and "@" in e["name"]}
    for task, call in (
        ("aclnnMm_Mm", "aclnnMm"),
        ("aclnnInplaceAdd_Add", "aclnnInplaceAdd"),
        ("MEMCPY_ASYNC", "aclrtMemcpyAsync"),
    ):
        (event,) = (e for e in events if e["name"] == task)
        end = ends[event["pid"], event["tid"], event["ts"]]
        assert starts[end["id"]]["ts"] == calls[f"AscendCL@{call}"]["ts"]
    assert len(ends) == len(starts) == 4


def test_overlap_adds_up(exported: Path) -> None:
    total = {
        name: sum(e["dur"] for e in trace(exported) if e["ph"] == "X" and e["name"] == name)
        for name in ("Computing", "Communication", "Communication(Not Overlapped)", "Free")
    }
    assert total["Computing"] == pytest.approx(3.5)
    assert total["Communication"] == total["Communication(Not Overlapped)"] == pytest.approx(4.0)
    assert total["Free"] == pytest.approx(8.0 - 3.5 - 4.0)


def test_statistics_add_up(exported: Path) -> None:
    rows = table(exported, "op_statistic")
    assert sum(float(row["Total Time(us)"]) for row in rows) == pytest.approx(3.5 + 4.0)
    assert sum(float(row["Ratio(%)"]) for row in rows) == pytest.approx(100, abs=0.01)
    api = {row["API Name"]: row for row in table(exported, "api_statistic")}
    assert api["launch"]["Count"] == "4" and api["aclrtSynchronizeStream"]["Level"] == "acl"
    (memory,) = table(exported, "npu_module_mem")
    assert float(memory["Total Reserved(KB)"]) == 2048


def test_communication_files(exported: Path) -> None:
    data = json.loads((exported / "analyze" / "communication.json").read_text())
    ((name, one),) = data.items()
    assert name.startswith("hcom_allReduce__") and name.endswith("_7_1@group_a")
    times = one["Communication Time Info"]
    assert times["Elapse Time(ms)"] == pytest.approx(0.004)
    assert times["Transit Time(ms)"] == pytest.approx(0.003) and times["Wait Time(ms)"] == pytest.approx(0.001)
    hccs = one["Communication Bandwidth Info"]["HCCS"]
    assert hccs["Transit Size(MB)"] == pytest.approx(4.0)
    matrix = json.loads((exported / "analyze" / "communication_matrix.json").read_text())
    assert list(matrix[name]) == ["0-1"] and matrix[name]["0-1"]["Transport Type"] == "HCCS"


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def test_databases(exported: Path) -> None:
    (path,) = exported.glob("msprof_*.db")
    assert rows(path, "pragma integrity_check") == [("ok",)]
    kernels = rows(
        path,
        "select n.value, t.endNs - t.startNs, s.value from COMPUTE_TASK_INFO c join TASK t using (globalTaskId) "
        "join STRING_IDS n on n.id = c.name join STRING_IDS s on s.id = c.inputShapes order by t.startNs",
    )
    assert kernels == [("aclnnMm_Mm", 2000, "4,8;8,2"), ("aclnnInplaceAdd_Add", 1500, "4,8")]
    assert rows(path, "select endNs - startNs from COMMUNICATION_OP") == [(4000,)]
    assert rows(path, "select value from META_DATA where name = 'predicted'") == [("true",)]
    analyzed = exported / "analyze" / "communication_analyzer.db"
    assert rows(analyzed, "select elapse_time, transit_time from CommAnalyzerTime") == [(0.004, 0.003)]


def many(count: int) -> SessionLog:
    log = SessionLog()
    for i in range(count):
        log.call("aclnnAdd", i + 1, i * 2000, i * 2000 + 1000, (i * 1000, i * 1000 + 1000))
        log.task("aclnnAdd", i + 1, (i * 1000 + 1000, i * 1000 + 1900), shapes=((i + 1, 3), (i + 1, 3)))
    return log


def test_twenty_thousand_operators(tmp_path: Path) -> None:
    """benchmarks/profiling.py holds them to 2 s."""
    folder = many(20_000).write(tmp_path / "PROF_1_1_A", (40_000_000, 20_001_000))
    assert msprof("--export=on", f"--output={folder}").returncode == 0
    assert len(table(folder, "op_summary")) == 20_000
    assert msprof("--export=on", "--type=db", f"--output={folder}").returncode == 0
    (path,) = folder.glob("msprof_*.db")
    assert rows(path, "pragma integrity_check") == [("ok",)]  # trees of three levels
    assert rows(path, "select count(*), sum(endNs - startNs) from TASK") == [(20_000, 20_000 * 900)]
    assert rows(path, "select count(distinct value) from STRING_IDS where value like '%,3'") == [(20_000,)]


def test_a_long_text_is_whole_in_the_database(tmp_path: Path) -> None:
    log = SessionLog()
    log.call("aclnnCat", 1, 0, 10, (0, 1000))
    log.task("aclnnCat", 1, (1000, 2000), shapes=((12345, 6789),) * 900 + ((1,),))
    folder = log.write(tmp_path / "PROF_1_1_A", (100, 2000))
    assert msprof("--export=on", "--type=db", f"--output={folder}").returncode == 0
    (path,) = folder.glob("msprof_*.db")
    assert rows(path, "pragma integrity_check") == [("ok",)]
    assert rows(path, "select count(*) from STRING_IDS where value = '" + ";".join(["12345,6789"] * 900) + "'") == [
        (1,)
    ]


# --- what is refused


def test_a_session_without_an_end_is_refused(tmp_path: Path) -> None:
    folder = small().write(tmp_path / "PROF_1_1_A", None)
    done = msprof("--export=on", f"--output={folder}")
    assert done.returncode == 1 and "its process was killed or its disk was full" in done.stderr
    assert not (folder / OUTPUT).exists()


@pytest.mark.parametrize("at", [0, 5, 8, 40, 300, -8, -1])
def test_a_log_cut_off_anywhere_is_refused(tmp_path: Path, at: int) -> None:
    folder = small().write(tmp_path / "PROF_1_1_A", (9_200_000, 9000))
    path = folder / "host" / "data" / "vnpu.events"
    path.write_bytes(path.read_bytes()[:at])
    done = msprof("--export=on", f"--output={folder}")
    assert done.returncode == 1 and done.stderr.startswith("msprof: ")
    assert not (folder / OUTPUT).exists()


def test_what_cannot_be_written_leaves_no_part(tmp_path: Path) -> None:
    folder = small().write(tmp_path / "PROF_1_1_A", (9_200_000, 9000))
    (folder / OUTPUT).mkdir()
    command = f'ulimit -f 2; exec "$0" --export=on "--output={folder}"'  # KiB: the timeline is longer
    import subprocess

    done = subprocess.run(
        ["bash", "-c", f"trap '' XFSZ; {command}", session_logs.MSPROF], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "cannot be written" in done.stderr
    assert list((folder / OUTPUT).iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ["--export=on"],
        ["--output=/x"],
        ["--export=maybe", "--output=/x"],
        ["--sys-io=on", "--output=/x", "--export=on"],
        ["--export=on", "--output=/nowhere/at/all"],
        ["--export=on", "--analyze=on", "--output=/tmp"],
    ],
)
def test_unknown_words_are_refused(words: list[str]) -> None:
    done = msprof(*words)
    assert done.returncode == 1 and done.stderr.startswith("msprof: ") and done.stdout == ""


def test_help_tells_torch_npu_of_databases() -> None:
    done = msprof("--help")
    assert done.returncode == 0 and "--type" in done.stdout

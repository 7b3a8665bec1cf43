"""Columns, keys and tables of msprof's files: those that the installed torch_npu's own parsers ask for.

Nothing is copied from the wheel: rows are given to its beans, JSON to its parsers, and the queries in its source are run.
"""

from __future__ import annotations

import ast
import csv
import inspect
import json
import logging
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import session_logs
from session_logs import SessionLog, msprof

ANALYSIS = "torch_npu.profiler.analysis"
# What the wheel asks of databases that only programs with GE operators have.
NOT_WRITTEN = {"NPU_OP_MEM"}


class Asked(dict[str, Any]):
    """A row or an object of JSON that notes what it is asked for and does not have."""

    missing: ClassVar[set[str]] = set()

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self.missing.add(key)
        return super().get(key, default)

    def __missing__(self, key: str) -> Any:
        self.missing.add(key)
        raise KeyError(key)


@pytest.fixture(autouse=True)
def nothing_missing() -> None:
    Asked.missing = set()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = SessionLog(
        switches=session_logs.CALLS
        | session_logs.METRICS
        | session_logs.TASK_TIME
        | session_logs.MARKS
        | session_logs.AI_CPU
    )
    log.memory(2048 * 1024, 0)
    log.mark(1, 5, "forward", 500, 0)
    log.call("aclnnMm", 1, 1_000, 2_000, (0, 1000))
    log.task("aclnnMm", 1, (1000, 3000), unit=session_logs.CUBE, shapes=((4, 8), (8, 2), (4, 2)))
    log.call("aclnnUnique", 2, 3_000, 4_000, (1000, 2000))
    log.task("aclnnUnique", 2, (3000, 4500), unit=session_logs.DEVICE_CPU)
    log.mark(2, 5, "", 5_000, 2000)
    log.call("HcclAllReduce", 3, 6_000, 7_000, (2000, 3000))
    log.collective("HcclAllReduce", "group_a", 7, 3, 5000, (6000, 9000))
    log.call("HcclSend", 4, 7_500, 8_000, (3000, 4000))
    log.collective("HcclSend", "group_a", 8, 4, 9000, (9000, 9500))
    folder = log.write(tmp_path_factory.mktemp("profile") / "PROF_000001_1_A", (9_000, 9500))
    for kind in ("text", "db"):
        for action in ("export", "analyze"):
            done = msprof(f"--{action}=on", f"--type={kind}", f"--output={folder}")
            assert (done.returncode, done.stderr) == (0, "")
    return folder


def wheel(module: str) -> Any:
    return __import__(f"{ANALYSIS}.{module}", fromlist=["_"])


def rows(folder: Path, pattern: str) -> list[dict[str, str]]:
    (path,) = folder.glob(f"mindstudio_profiler_output/{pattern}")
    return list(csv.DictReader(path.read_text().splitlines()))


def without_unit(name: str) -> str:
    return name.split("(")[0]


def lacks(bean: Any, row: dict[str, str]) -> set[str]:
    """What the wheel's bean wants of a row that is not there."""
    Asked.missing = set()
    one = bean(Asked(row))
    for name, kind in inspect.getmembers(bean):
        if isinstance(kind, property):
            getattr(one, name)
    # The bean of aicpu_*.csv names milliseconds; CANN's file has had microseconds for long, and it is copied as it is.
    there = {without_unit(name) for name in one._data}
    for listed in ("HEADERS", "SHOW_HEADERS"):
        Asked.missing |= {name for name in getattr(bean, listed, ()) if without_unit(name) not in there}
    return Asked.missing


def beans() -> dict[str, Any]:
    """By the kind of file, what torch_npu reads of level 2 with."""
    config = wheel("_profiler_config").ProfilerConfig._cls.LEVEL_PARSER_CONFIG
    found = dict(config[wheel("prof_common_func._constant").Constant.LEVEL2])
    patterns = wheel("prof_parse._cann_file_parser").CANNFileParser.CANN_DATA_MATCH
    return {patterns[kind][0].split(r"_\d")[0].lstrip("^"): bean for kind, bean in found.items()}


def test_tables_have_the_columns_that_beans_ask_for(exported: Path) -> None:
    found = beans()
    assert found.keys() == {"aicpu", "op_statistic", "api_statistic", "npu_module_mem", "task_time"}
    for name, bean in found.items():
        for row in rows(exported, f"{name}_*.csv"):
            assert lacks(bean, row) == set(), name


# The first row of each file of `exported`: every column with its value.
VALUES = {
    "aicpu": {
        "Device_id": "0",
        "Timestamp(us)": "1790000000000003.000\t",
        "Node": "aclnnUnique_Unique",
        "Compute_time(us)": "1.500",
        "Memcpy_time(us)": "0",
        "Task_time(us)": "1.500",
        "Dispatch_time(us)": "0",
        "Total_time(us)": "1.500",
        "Stream ID": "2",
        "Task ID": "2",
        "Predicted": "true",
    },
    "op_statistic": {
        "Device_id": "0",
        "OP Type": "hcom_allReduce_",
        "Core Type": "COMMUNICATION",
        "Count": "1",
        "Total Time(us)": "4.000",
        "Min Time(us)": "4.000",
        "Avg Time(us)": "4.000",
        "Max Time(us)": "4.000",
        "Ratio(%)": "50.000",
        "Predicted": "true",
    },
    "api_statistic": {
        "Device_id": "host",
        "Level": "node",
        "API Name": "launch",
        "Time(us)": "1.834",
        "Count": "4",
        "Avg(us)": "0.459",
        "Min(us)": "0.334",
        "Max(us)": "0.500",
        "Variance": "0.005",
        "Predicted": "true",
    },
    "npu_module_mem": {
        "Device_id": "0",
        "Component": "APP",
        "Timestamp(us)": "1790000000000000.000\t",
        "Total Reserved(KB)": "2048.000",
        "Device": "NPU:0",
    },
    "task_time": {
        "Device_id": "0",
        "kernel_name": "aclnnMm_Mm",
        "kernel_type": "AI_CORE",
        "stream_id": "2",
        "task_id": "1",
        "task_time(us)": "2.000",
        "task_start(us)": "1790000000000001.000\t",
        "task_stop(us)": "1790000000000003.000\t",
        "Predicted": "true",
    },
    "op_summary": {
        "Device_id": "0",
        "Model ID": "4294967295",
        "Task ID": "1",
        "Stream ID": "2",
        "Op Name": "aclnnMm_Mm",
        "OP Type": "Mm",
        "OP State": "static",
        "Task Type": "AI_CORE",
        "Task Start Time(us)": "1790000000000001.000\t",
        "Task Duration(us)": "2.000",
        "Task Wait Time(us)": "0.000",
        "Block Num": "24",
        "Mix Block Num": "0",
        "HF32 Eligible": "NO",
        "Input Shapes": '"4,8;8,2"',
        "Input Data Types": "FLOAT;FLOAT",
        "Input Formats": "ND;ND",
        "Output Shapes": '"4,2"',
        "Output Data Types": "FLOAT",
        "Output Formats": "ND",
        "Context ID": "N/A",
        "aicore_time(us)": "2.000",
        "aic_total_cycles": "86400",
        "aic_mac_time(us)": "0.000",
        "aic_mac_ratio": "0.0000",
        "aic_mte2_time(us)": "0.000",
        "aic_mte2_ratio": "0.0001",
        "aic_fixpipe_time(us)": "0.000",
        "aic_fixpipe_ratio": "0.0000",
        "aiv_time(us)": "0",
        "aiv_total_cycles": "0",
        "aiv_mte3_time(us)": "0",
        "aiv_mte3_ratio": "0",
        "cube_utilization(%)": "0.000",
        "Predicted": "true",
    },
}


@pytest.mark.parametrize("name", VALUES)
def test_every_column_has_its_value(exported: Path, name: str) -> None:
    assert rows(exported, f"{name}_*.csv")[0] == VALUES[name]


def test_a_column_that_is_missing_is_noticed(exported: Path) -> None:
    """Whichever column a bean names, its absence shows."""
    noticed = set()
    for name, bean in beans().items():
        (row, *_) = rows(exported, f"{name}_*.csv")
        for column in row:
            if lacks(bean, {key: value for key, value in row.items() if key != column}):
                noticed.add((name, column))
    assert {("op_statistic", "Total Time(us)"), ("npu_module_mem", "Total Reserved(KB)"), ("aicpu", "Node")} <= noticed
    assert len(noticed) > 15


def test_op_summary_has_what_kernel_details_shows(exported: Path) -> None:
    headers = wheel("prof_common_func._csv_headers").CsvHeaders
    bean = wheel("prof_bean._op_summary_bean").OpSummaryBean
    for row in rows(exported, "op_summary_*.csv"):
        bean.headers = headers.OP_SUMMARY_SHOW_HEADERS + headers.OP_SUMMARY_ADDITIONAL_HEADERS
        one = bean(row)
        assert set(bean.headers) <= row.keys()
        assert all(value != "" for value in one.row) and one.ts.strip() != "0"
        bean.headers = []


def events(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.glob("mindstudio_profiler_output/msprof_*.json")
    return json.loads(path.read_text())  # type: ignore[no-any-return]


def test_events_have_what_the_timelines_parsers_ask_for(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bean = wheel("prof_bean._event_bean").EventBean
    kernels = [e for e in events(exported) if e["ph"] == "X" and "Task Type" in e["args"]]
    assert len(kernels) >= 2

    def asked(event: dict[str, Any]) -> set[str]:
        Asked.missing = set()
        one = bean(Asked(event | {"args": Asked(event["args"])}))
        assert len([one.ts, one.pid, one.tid, one.dur, one.name, one.end_ns, one.unique_id, one.is_ai_core]) == 8
        return Asked.missing

    for event in kernels:
        assert asked(event) == set()
    for key in ("ts", "pid", "tid", "dur", "name"):
        assert asked({name: value for name, value in kernels[0].items() if name != key}) == {key}
    logger = wheel("prof_common_func._log").ProfilerLogger
    monkeypatch.setattr(logger, "_instance", logging.getLogger("profiles"))
    parser = wheel("prof_parse._cann_file_parser").CANNFileParser
    # By the start of the call, the kernels that it has launched.
    linked = parser.combine_acl_to_npu([Asked(event) for event in events(exported)])
    assert sum(map(len, linked.values())) == len(kernels) + 2  # and the collectives
    names = {e["name"] for e in events(exported) if e["ph"] == "X"}
    steps = wheel("prof_view._trace_step_time_parser").TraceStepTimeParser
    assert names >= {name for name in steps.timeflag if not name.startswith("hcom_")}


def test_communication_json_has_the_words_of_its_parser(exported: Path) -> None:
    kind = wheel("prof_view._communication_parser").CommunicationParser
    data = json.loads((exported / "analyze" / "communication.json").read_text())
    given = set(re.findall(r'"([^"]+)":', json.dumps(next(iter(data.values())))))
    words = {value for name, value in vars(kind).items() if name.isupper() and isinstance(value, str)}
    # A unit, or several words: the others are names of files and parts of names of operators.
    wanted = {word for word in words if " " in word and word != kind.TRANSPORT_TYPE}
    assert len(wanted) >= 9 and wanted <= given
    made = kind.__new__(kind).get_communication_ops_dict(data)
    total = made["collective"]["Total Op Info"]["Communication Time Info"]
    assert total["Transit Time(ms)"] == pytest.approx(0.003) and made["p2p"]


def test_communication_matrix_has_the_keys_that_its_parser_asks_for(exported: Path) -> None:
    kind = wheel("prof_view._communication_parser").CommunicationParser
    text = (exported / "analyze" / "communication_matrix.json").read_text()

    def asked(removed: str = "") -> set[str]:
        Asked.missing = set()

        def hook(pairs: list[tuple[str, Any]]) -> Asked:
            return Asked({key: value for key, value in pairs if key != removed})

        made = kind.__new__(kind).get_matrix_ops_dict(json.loads(text, object_pairs_hook=hook))
        assert made["collective"] and made["p2p"]
        return Asked.missing

    assert asked() == set()
    for key in ("Transport Type", "Transit Size(MB)", "Transit Time(ms)"):
        assert asked(key) == {key}


def queries() -> Iterator[str]:
    """Every query in the wheel's parsers that depends on no other data."""
    constants = vars(wheel("prof_common_func._constant"))
    folder = Path(wheel("prof_view.prof_db_parse").__file__).parent
    for path in sorted(folder.glob("_*.py")):
        module = wheel(f"prof_view.prof_db_parse.{path.stem}")
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.ClassDef):
                continue
            names = constants | {"self": getattr(module, node.name), "cls": getattr(module, node.name)}
            for inner in ast.walk(node):
                if not isinstance(inner, ast.Assign) or ast.unparse(inner.targets[0]) != "sql":
                    continue
                try:
                    yield str(eval(compile(ast.Expression(inner.value), str(path), "eval"), names))
                except (NameError, AttributeError):
                    continue  # it has a value in it that only a run has


def refused(path: Path, analyzed: Path) -> tuple[int, list[str]]:
    """How many of the queries our databases answer, and what SQLite says of the others."""
    connection = sqlite3.connect(path)
    connection.execute("attach ? as analyzed", (str(analyzed),))
    answered, complaints = 0, []
    for query in queries():
        if any(name in query for name in NOT_WRITTEN):
            continue
        try:
            connection.execute(query).fetchall()
            answered += 1
        except sqlite3.OperationalError as error:
            complaints.append(f"{error}: {query}")
    connection.close()
    return answered, complaints


def test_databases_answer_the_wheels_queries(exported: Path, tmp_path: Path) -> None:
    (path,) = exported.glob("msprof_*.db")
    analyzed = exported / "analyze" / "communication_analyzer.db"
    answered, complaints = refused(path, analyzed)
    assert answered > 8 and complaints == []
    worse = tmp_path / "worse.db"
    for table, column in (("TASK", "globalTaskId"), ("CANN_API", "connectionId"), ("COMMUNICATION_OP", "opName")):
        worse.write_bytes(path.read_bytes())
        connection = sqlite3.connect(worse)
        connection.execute(f"alter table {table} rename column {column} to another")
        connection.close()
        assert any(column in line for line in refused(worse, analyzed)[1]), column


def columns(path: Path) -> dict[str, dict[str, str]]:
    connection = sqlite3.connect(path)
    tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
    found = {name: {row[1]: row[2] for row in connection.execute(f"pragma table_info({name})")} for name in tables}
    connection.close()
    return found


def test_tables_of_databases_are_those_that_the_wheel_names(exported: Path) -> None:
    expected = wheel("prof_common_func._constant").TableColumnsManager.TableColumns
    (path,) = exported.glob("msprof_*.db")
    compared = 0
    for database in (path, exported / "analyze" / "communication_analyzer.db"):
        for name, found in columns(database).items():
            if name not in expected:
                continue
            # A step, and of the matrix the operator that a summary comes from, are added by torch_npu.
            wanted = {key: kind for key, kind in expected[name] if key not in ("step", "type", "op_name")}
            if name == "CANN_API":
                wanted = dict(expected[name])
            assert {key: found.get(key) for key in wanted} == wanted, name
            compared += 1
    assert compared >= 6


def predictions(folder: Path) -> set[tuple[str, str]]:
    tables = ("op_summary", "op_statistic", "api_statistic", "task_time", "aicpu")
    said = {(name, row["Predicted"]) for name in tables for row in rows(folder, f"{name}_*.csv")}
    for name in ("communication", "communication_matrix"):
        text = (folder / "analyze" / f"{name}.json").read_text()
        said |= {(name, word) for word in re.findall(r'"predicted":(\w+)', text)}
    return said


def test_files_say_that_they_are_predicted(exported: Path) -> None:
    said = predictions(exported)
    assert {word for _, word in said} == {"true"}
    assert len(said) == 7  # npu_module_mem is left out: its parser writes its own columns only

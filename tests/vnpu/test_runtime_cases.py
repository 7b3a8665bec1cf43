"""Which test finds each fault of the runtime again that reading and running it once brought to light (issue 14)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A program that showed faults, what it asks, and the tests that ask it today.
CASES = {
    "capi.py: addresses and host memory of 2^64-1 bytes": [
        "tests/vnpu/test_live_memory.py::test_reserving_all_addresses_gives_none",
        "tests/vnpu/test_live_memory.py::test_registering_all_host_memory_is_refused",
        "tests/vnpu/test_live_memory.py::test_host_ranges_that_wrap_around",
    ],
    "capi.py: a reset of an event between two records": [
        "tests/vnpu/test_event.py::test_a_reset_forgets_what_was_recorded_before_it_and_nothing_later",
        "tests/vnpu/test_event.py::test_a_reset_keeps_a_later_record_that_ran_before_an_earlier_one",
    ],
    "ctrlc.py: Ctrl-C while a process waits": [
        "tests/vnpu/test_interrupt.py::test_the_second_ends_the_process",
        "tests/vnpu/test_interrupt.py::test_a_program_without_a_handler_ends_at_the_first",
    ],
    "exitfail.py: a failed kernel that nobody waited for": [
        "tests/vnpu/test_unseen_failures.py::test_run_ends_with_1_and_names_the_operator",
        "tests/vnpu/test_unseen_failures.py::test_plain_python_keeps_its_status",
    ],
    "fault.py: ranks that die, stop, leave or differ": [
        "tests/vnpu/distributed/test_faults.py::test_every_other_rank_is_told_what_is_wrong",
        "tests/vnpu/distributed/test_group_faults.py::test_every_other_rank_ends_and_says_why",
    ],
    "fuzzdump.py: dump files of any content": [
        "tests/unit/test_dump_file.py::test_files_are_read_as_cann_describes_them"
    ],
    "oob.py: operators behind the end of an allocation and on freed memory": [
        "tests/vnpu/ops/test_live_operands.py::test_past_the_end",
        "tests/vnpu/ops/test_live_operands.py::test_freed_memory",
    ],
    "oob.py: copies behind the end and from freed memory": [
        "tests/vnpu/test_live_memory.py::test_past_the_end_names_the_allocation",
        "tests/vnpu/test_live_memory.py::test_freed_memory_is_named",
    ],
    "opapi_abi.py: a list of 2^64-1 integers": [
        "tests/vnpu/ops/test_descriptors.py::test_a_list_of_impossible_length_is_refused"
    ],
    "rel.py: memory that runs out": [
        "tests/vnpu/test_torch_runtime.py::test_out_of_memory_is_torch_s_exception_and_leaves_the_process_usable",
        "tests/vnpu/test_endurance.py::test_memory_that_ran_out_comes_back",
    ],
    "rel.py: a child of fork()": [
        "tests/vnpu/test_torch_runtime.py::test_a_forked_child_gets_a_clear_error",
        "tests/vnpu/test_torch_runtime.py::test_a_forked_child_reads_what_to_do",
    ],
    "rel.py: a descriptor that could not be made": [
        "tests/vnpu/ops/test_descriptors.py::test_the_first_phase_says_why"
    ],
    "rel.py: ten thousand steps, hundreds of streams and events": ["tests/vnpu/test_endurance.py::test_nothing_grows"],
    "rel.py: threads, devices and workers": [
        "tests/vnpu/test_endurance.py::test_six_threads_on_two_devices_get_their_own_results",
        "tests/vnpu/test_endurance.py::test_a_copy_between_devices_is_ordered_by_streams",
        "tests/vnpu/test_torch_runtime.py::test_data_loader_workers_with_pinned_memory",
    ],
    "rel.py: after a failed kernel": [
        "tests/vnpu/test_torch_runtime.py::test_a_failing_operator_surfaces_at_synchronisation_with_its_name"
    ],
    "scan.py: strangers on TCP": [
        "tests/vnpu/distributed/test_strangers.py::test_strangers_keep_nobody_waiting",
        "tests/vnpu/distributed/test_strangers.py::test_of_a_crowd_only_some_are_kept",
    ],
    "stop.py: the end of a process whose device was stopped": [
        "tests/vnpu/test_exits.py::test_a_process_that_has_trained_ends_cleanly"
    ],
    "stress.cpp: threads that call in while one destroys, resets or captures": [
        "tests/vnpu/test_threads.py::test_threads"
    ],
    "tls.cpp, tls2.cpp: failing calls from static destructors": [
        "tests/vnpu/test_last_calls.py::test_a_static_destructor_may_call_and_fail"
    ],
    "any call with any argument": ["tests/vnpu/test_random_calls.py::test_random_calls"],
}


def functions_of(file: Path) -> set[str]:
    """Names of the test functions in a file; none where there is no file."""
    if not file.exists():
        return set()
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("case", CASES)
def test_each_case_has_its_tests(case: str) -> None:
    for name in CASES[case]:
        file, function = name.split("::")
        assert function in functions_of(ROOT / file), name


def test_a_test_that_is_gone_is_missed() -> None:
    assert "test_each_case_has_its_tests" in functions_of(Path(__file__))
    assert "test_no_such_thing" not in functions_of(Path(__file__))
    assert functions_of(ROOT / "tests/vnpu/test_no_such_file.py") == set()

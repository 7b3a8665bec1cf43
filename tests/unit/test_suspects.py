"""When a port's runs are made again for the operator that is wrong first."""

from __future__ import annotations

from torchport.compare.differences import find_parting_step
from torchport.findings import Finding, Safety, Severity


def finding(code, severity=Severity.ERROR, **evidence):
    return Finding(code, severity, Safety.REPORT, None, "text", "", evidence or None)


def test_the_first_step_in_which_the_runs_part():
    found = (finding("TP354", step=7), finding("TP301", step=4), finding("TP302", step=9))
    assert find_parting_step(found) == 4


def test_runs_that_do_not_part_are_not_run_again():
    assert find_parting_step(()) is None
    assert find_parting_step((finding("TP311", step=3), finding("TP301", Severity.WARNING, step=3))) is None
    assert find_parting_step((finding("TP301"),)) is None

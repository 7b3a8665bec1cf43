"""The verdict on a port, from the recordings of the original and of the port."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from torchport.compare import (
    conditions,
    controls,
    drawn,
    evaluations,
    layers,
    quantities,
    reach,
    settings,
    start,
    surroundings,
)
from torchport.compare.conditions import error_finding
from torchport.compare.curves import Curve
from torchport.compare.differences import (
    MIXED,
    STATISTICALLY,
    STEPWISE,
    can_be_amplified_rounding,
    curves_of,
    find_differences,
    find_parting_step,
)
from torchport.compare.metrics import compare_metrics
from torchport.compare.order import order_parameters
from torchport.compare.quantities import Compared
from torchport.compare.reach import Reach
from torchport.compare.series import CHANGE, GRADIENT, LOSS, OUTPUT
from torchport.compare.tolerance import PRINTED_TIMES, STATISTICAL, TOLERANCES, Tolerance
from torchport.compare.verdict import Verdict
from torchport.findings import Finding, Result, Safety, Severity
from torchport.record import roundoff
from torchport.record.recording import CALL, OPTIMIZER, Process, Recording
from torchport.results.comparison import (
    Comparison,
    Controls,
    Covered,
    ForcedSteps,
    MetricRow,
    Seconds,
    Steps,
    Worst,
    Yardstick,
)

if TYPE_CHECKING:
    from torchport.compare.assembly import Assembly
    from torchport.compare.culprit import Culprit  # which needs numpy

# The loosest precision that the reference used decides; float32 where none is recorded.
LOOSEST = ("bfloat16", "float16", "float32")


@dataclasses.dataclass(frozen=True, slots=True)
class Forced:
    """Three runs in which each step starts from the same state of the original: the original, the port, and the
    original with noise; the states were of `bytes` bytes."""

    reference: Recording
    port: Recording
    control: Recording | None
    bytes: int = 0


def _order_forced(forced: Forced) -> Forced:
    control = None if forced.control is None else order_parameters(forced.reference, forced.control)
    return dataclasses.replace(forced, port=order_parameters(forced.reference, forced.port), control=control)


def compare_recordings(
    reference: Recording,
    port: Recording,
    *,
    on_npu: bool = False,
    control: Recording | None = None,
    longer: Sequence[Recording] = (),
    forced: Forced | None = None,
    given: float | None = None,
    find_culprit: Callable[[int | None], Culprit | None] | None = None,
    assembly: Assembly | None = None,
) -> Result[Comparison]:
    """Judge `port` against `reference`; with `on_npu` the second has to have run on an NPU.

    `control` is the control run: the original with rounding noise and faults, the yardstick (without it, the bounds of
    `tolerance`). `longer` are others without faults, each with noise of its own: of more steps, which a finding
    TP349 asks for, or because one draw of noise may have missed what rounding does now and then. `forced` is compared
    if the training is chaotic (`Yardstick.chaotic`). `given` is a relative tolerance for all quantities. `find_culprit`
    judges the operators of both, if they were recorded, given the step in which the runs part: its findings come first.
    With `assembly` the two are its recordings, of one device and of several ranks put together.

    The method of the comparison is STEPWISE, STATISTICALLY if the runs draw random numbers of their own, or MIXED if
    only the first steps are compared one by one.
    """
    port = order_parameters(reference, port)
    control = order_parameters(reference, control) if control is not None else None
    longer = [order_parameters(reference, one) for one in longer]
    forced = _order_forced(forced) if forced is not None else None
    tolerance = _tolerance(reference)
    chance = _chance(reference, port)
    both = quantities.compare_quantities(reference, port, control, longer, tolerance, given=given)
    apart = _forced(forced, tolerance, given)
    judged = apart or both
    pairs = list(curves_of(both))
    stepwise = all(math.isfinite(bound) for curve in pairs for bound in curve.allowed)
    method = STATISTICALLY if chance else STEPWISE if stepwise else MIXED
    metrics = compare_metrics(
        reference.output,
        port.output,
        *_printed(
            pairs, tolerance, ended_apart=bool(chance) or not stepwise or any(map(can_be_amplified_rounding, pairs))
        ),
    )
    chaotic = _chaotic(both)
    number = min(reference.steps, port.steps)
    kind = reference.trained[0].step_kind if reference.trained else OPTIMIZER
    far = reach.measure_reach(number, both, apart, pairs, chance=bool(chance))
    steps = Steps(kind, reference.steps, port.steps)
    ended_well = not conditions.has_failed(port) and not port.stopped
    table = _controls(judged, chance, control)
    findings = [
        *conditions.reference_conditions(reference),
        *conditions.step_conditions(reference, port),
        *conditions.port_conditions(reference, port),
        *(conditions.use_of_npu(reference, port) if on_npu and reference.steps else ()),
        # A schedule may follow the loss (ReduceLROnPlateau), which says nothing where the loss does not.
        *(settings.settings_equal(reference, port) if chaotic is None else ()),
        *settings.precision_equal(reference, port),
        *(settings.scales_equal(reference, port, control) if chaotic is None else ()),
        *settings.parameters_equal(reference, port),
        *(settings.places_equal(reference, port) if on_npu else ()),
        *conditions.replicas_equal(port),
        *conditions.check_cards(port),
        *drawn.drawn_conditions(port),
        *start.starts_equal(port, control, chance=bool(chance)),
        *(_information(reason, tolerance) for reason in chance),
        *find_differences(pairs, both, apart, method, chaotic),
        *(() if chance else _evaluations(both, tolerance)),
        *_other_sites(reference, port),
        *(_metric_finding(row) for row in metrics if not row.holds and ended_well),
        *(controls.report_unnoticed_faults(table.rows) if reference.steps and port.steps else ()),
        *(() if chance else reach.report_short_reach(far, steps)),
    ]
    parted = find_parting_step(findings)
    operators = find_culprit(parted) if find_culprit else None
    findings = [
        *surroundings.report_surroundings(reference, port),
        *(operators.findings if operators else ()),
        *((*assembly.findings, *assembly.explain_parting(parted)) if assembly else ()),
        *findings,
    ]
    grounds = _grounds(far, kind, tolerance, given, chaotic, apart, table)
    if assembly:
        grounds = f"{assembly.note}; {grounds}"
    verdict = Verdict.from_findings(findings, grounds)
    data = Comparison(
        verdict=str(verdict.word),
        reason=verdict.reason,
        decide=verdict.decide,
        method=method,
        chance=tuple(chance),
        tolerance=dataclasses.asdict(tolerance) | {"given": given},
        statistical=dataclasses.asdict(STATISTICAL),
        steps=steps,
        worst=_worst(pairs, tolerance),
        seconds=Seconds(_median_seconds(reference), _median_seconds(port)),
        curves=tuple(curve.row() for curve in pairs),
        errors=tuple(_by_step(pairs)),
        quantities=() if chance else tuple(quantities.summarize_quantities(judged)),
        culprit=operators.to_json() if operators else None,
        layers=() if chance else tuple(layers.list_layer_norms(both)),
        first=() if chance else tuple(quantities.list_first_differences([*both, *apart])),
        controls=table,
        yardstick=_yardstick(judged, control, longer, chaotic),
        forced=ForcedSteps(forced.port.steps, forced.bytes) if forced and apart else None,
        draws=tuple(drawn.list_own_draws(port)),
        metrics=tuple(metrics),
        evidence=tuple(conditions.collect_evidence(process) for process in port.trained),
        covered=Covered(len(far.single), len(far.means)),
        unchecked=(
            *_unchecked(far, judged, metrics, table, chance, start.list_drawn(control)),
            *(operators.list_unchecked() if operators else ()),
            *(assembly.unchecked if assembly else ()),
        ),
    )
    return Result("compare", tuple(findings), data)


def _evaluations(both: Sequence[Compared], tolerance: Tolerance) -> Iterator[Finding]:
    """The first finding against the evaluations of any process."""
    found = (
        finding
        for one in both
        for finding in evaluations.compare_evaluations(
            one.reference.process,
            one.port.process,
            None if one.noise is None else one.noise.process,
            one.select_pairs(LOSS),
            tolerance,
        )
    )
    yield from itertools.islice(found, 1)


def _forced(forced: Forced | None, tolerance: Tolerance, given: float | None) -> list[Compared]:
    """The quantities of the runs in which each step starts from the original's state."""
    if forced is None:
        return []
    return quantities.compare_quantities(
        forced.reference, forced.port, forced.control, (), tolerance, forced=True, given=given
    )


def _chaotic(both: Sequence[Compared]) -> int | None:
    """The step from which on rounding alone takes the original another way."""
    found = [one.yardstick.find_chaotic_step(one.reference.series) for one in both]
    return min((step for step in found if step is not None), default=None)


def _unchecked(
    far: Reach,
    judged: Sequence[Compared],
    metrics: Sequence[MetricRow],
    table: Controls,
    chance: Sequence[str],
    drawn: Collection[str],
) -> Iterator[str]:
    """Name, in a few words each, all that was not compared, although a reader may take it for compared."""
    if chance:
        yield "single steps (their means were compared)"
    else:
        yield from reach.list_unchecked(far, judged)
    if drawn:
        yield f"the initial weights (of {len(drawn)} tensors, which differ between two runs of the original)"
    if left := [row.name for row in metrics if row.allowed is None]:
        yield f"what is printed last: {', '.join(left[: reach.NAMED])}"
    yield from (f"{words} (none was noticed)" for words in controls.list_unnoticed_words(table.rows))
    if not table.measured:
        yield f"which small faults would be noticed ({table.why})"


def _grounds(
    far: Reach,
    kind: str,
    tolerance: Tolerance,
    given: float | None,
    chaotic: int | None,
    apart: Sequence[Compared],
    table: Controls,
) -> str:
    """What a verdict rests on, as words that follow it in brackets."""
    words = [f"{far.describe(kind)}, {tolerance.dtype}"]
    if given is not None:
        words.append(f"tolerance {given:g} as given")
    if apart:
        why = "takes the original another way" if chaotic is not None else "would hide small faults"
        words.append(
            f"rounding alone {why}, so {reach.count_steps(_steps(apart), 'step')} began from the original's own state"
        )
    elif chaotic is not None:
        words.append(
            f"from step {chaotic} on by means only: rounding alone takes the original another way, as a run of it with "
            "one unit in the last place changed shows"
        )
    words.append(
        f"would have noticed {seen}"
        if (seen := controls.describe_noticed_changes(table.rows))
        else f"which faults it would notice was not measured: {table.why}"
    )
    return "; ".join(words)


def _steps(both: Sequence[Compared]) -> int:
    return max((len({*curve.pair.reference.at[: len(curve.errors)]}) for curve in curves_of(both)), default=0)


def _controls(judged: Sequence[Compared], chance: list[str], control: Recording | None) -> Controls:
    """The faults of the control run, and what noticed them."""
    one = next((one for one in judged if one.control is not None), None)
    if one is None or one.control is None:
        return Controls(False, "no step was compared" if control is not None else "there is no control run")
    if not one.faults:
        return Controls(False, "no fault was put into the control run")
    kind = one.reference.process.step_kind
    worst = {pair.key: max(pair.errors) for pair in one.pairs if pair.errors}
    rows = controls.tabulate_faults(
        one.reference.series, one.control.series, one.faults, one.yardstick, worst, kind, chance=bool(chance)
    )
    rows += controls.judge_late_fault(rows, one.pairs, one.port.restarts, one.yardstick)
    rows += controls.judge_exact_faults(one.reference.process, one.control.process, chance=bool(chance))
    seen = controls.describe_noticed_changes(rows)
    return Controls(True, "", tuple(rows), f"this comparison noticed {seen}" * bool(seen))


def _yardstick(
    judged: Sequence[Compared], control: Recording | None, longer: Sequence[Recording], chaotic: int | None
) -> Yardstick | None:
    """What the control run showed of rounding."""
    measured = next((one.yardstick for one in judged if one.yardstick.measured), None)
    if control is None or measured is None:
        return None
    formats = [event["settings"] for event in control.of_kind("device")]
    return Yardstick(
        steps=max(one.steps for one in longer or (control,)),
        noise="one unit in the last place of the weights and of what modules give, one thread",
        spread={kind: measured.compute_final_spread(kind) for kind in (LOSS, OUTPUT, GRADIENT, CHANGE)},
        chaotic=chaotic,
        declared=tuple(roundoff.describe_formats(formats[0])) if formats else (),
    )


def _printed(pairs: Sequence[Curve], tolerance: Tolerance, *, ended_apart: bool) -> tuple[float, float | None]:
    """The points and the relative difference by which what the runs print at their end may differ."""
    ends = [curve.allowed[-1] for curve in pairs if curve.allowed]
    if ended_apart or not ends:
        return STATISTICAL.points, None
    return tolerance.points, min(PRINTED_TIMES * max(ends), tolerance.run or math.inf)


def _other_sites(reference: Recording, port: Recording) -> Iterator[Finding]:
    """Call sites that one of the runs did not come by."""
    if conditions.has_failed(reference) or conditions.has_failed(port) or port.stopped in ("timeout", "memory"):
        return
    for theirs, ours in zip(reference.trained, port.trained, strict=False):
        for who, here, there in (("the original", theirs, ours), ("the port", ours, theirs)):
            for site in here.collect_curves():
                if site not in there.collect_curves() and here.steps and there.steps:
                    yield error_finding(
                        "TP303",
                        f"only {who} comes by {site}, where {_what(here)} is computed",
                        "Look for branches on the device.",
                    )


def _what(process: Process) -> str:
    return "an output" if process.step_kind == CALL else "a loss"


def _tolerance(reference: Recording) -> Tolerance:
    used = {event["dtype"] for event in reference.of_kind("precision")}
    return TOLERANCES[next(dtype for dtype in LOOSEST if dtype in used or dtype == "float32")]


def _chance(reference: Recording, port: Recording) -> list[str]:
    """Why the two runs cannot be equal step by step: what each leaves to chance."""
    reasons = sorted({event["detail"] for recording in (reference, port) for event in recording.of_kind("random")})
    seeds = [
        [[(event["of"], event["value"]) for event in process.of_kind("seed")] for process in recording.trained]
        for recording in (reference, port)
    ]
    if seeds[0] != seeds[1] and not conditions.has_failed(port) and not conditions.has_given_up(reference, port):
        reasons.append("the script seeds its generators differently in each run")
    return reasons


def _information(reason: str, tolerance: Tolerance) -> Finding:
    return Finding(
        "TP320",
        Severity.INFO,
        Safety.REPORT,
        None,
        f"the runs are compared statistically: {reason}",
        "The mean loss of each tenth of the run is compared. Without such draws the comparison is step by step, "
        f"to {tolerance.first:g} relative.",
    )


def _metric_finding(row: MetricRow) -> Finding:
    unit = " %" if row.percent else ""
    if row.total != row.port_total:
        ours, theirs = (f"{total or 'no'} samples" for total in (row.port_total, row.total))
        return error_finding("TP306", f"the last {row.name} is one of {ours}, the original's of {theirs}")
    return error_finding(
        "TP306",
        f"the last {row.name} differs: {row.port:g}{unit} against {row.reference:g}{unit}, "
        f"where {row.allowed:.2g} is allowed",
    )


def _worst(pairs: list[Curve], tolerance: Tolerance) -> Worst:
    first = [error for curve in pairs for error in curve.errors[: tolerance.first_steps]]
    return Worst(max(first, default=None), max((error for curve in pairs for error in curve.errors), default=None))


def _by_step(pairs: list[Curve]) -> list[float]:
    longest = max((len(curve.errors) for curve in pairs), default=0)
    return [max(curve.errors[step] for curve in pairs if step < len(curve.errors)) for step in range(longest)]


def _median_seconds(recording: Recording) -> float | None:
    """Of a step, from one to the next."""
    seconds: list[float] = []
    for process in recording.trained[:1]:
        times = [float(event["elapsed"]) for event in process.steps if "elapsed" in event]
        seconds = sorted(after - before for before, after in pairwise(times))
    return seconds[len(seconds) // 2] if seconds else None

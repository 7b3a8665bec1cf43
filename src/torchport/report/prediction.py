"""A prediction in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from torchport.results.prediction import Loading, Peak, Prediction, Ranks, Step, Trial

_BOUND = {
    "cube": "matrix products and convolutions",
    "depthwise": "depthwise convolutions",
    "stream": "memory bandwidth (element-wise kernels)",
    "norm": "normalisation and softmax",
    "pool": "pooling",
    "move": "transpositions and format conversions",
    "gather": "indexing",
    "device_cpu": "operators on the device's CPU",
    "host_copy": "copies between host and device",
    "collective": "communication between ranks",
    "host": "the program, which launches operators more slowly than the chip runs them",
}


def format_memory(count: float) -> str:
    """Bytes in the unit that fits."""
    return f"{count / 2**30:.2f} GiB" if count >= 2**29 else f"{count / 2**20:.1f} MiB"


def render_prediction(found: Prediction) -> str:
    """Some twenty lines: does it fit, how long a step takes, what bounds it, what was not seen."""
    steps = f"{found.steps} dry steps" if found.steps else "a dry step that did not end"
    lines = [f"{found.soc}, predicted from {steps}"]
    one, many = found.one, found.many
    for ranks in (one, many):
        if ranks:
            lines += _memory(ranks, _cards(ranks) if many else "memory")
    lines += _tried(found.advice)
    for ranks in (one, many):
        if ranks and ranks.step:
            lines += _step(ranks, ranks.step)
    if many and many.step and "collective" not in many.step.units:
        lines.append("  scaling   the ranks exchange nothing: each trains a model of its own")
    elif many and many.rate and one.rate and one.fits:
        gain = many.rate / one.rate / many.ranks
        lines.append(f"  scaling   {gain:.0%} of {many.ranks} times one card")
    lines.append(f"  basis     {found.validated}")
    lines += _unseen(found)
    return "\n".join(lines)


def _cards(ranks: Ranks) -> str:
    return "1 card" if ranks.ranks == 1 else f"{ranks.ranks} cards"


def _memory(ranks: Ranks, head: str) -> list[str]:
    peak = ranks.peak
    if peak is None:
        return [f"  {head:9s} {ranks.failure}"] if ranks.failure else []
    lines = []
    if not ranks.fits:
        lines.append(f"  {head:9s} does not fit: {ranks.failure}")
        lines.append(f"            held when it was out: {_parts(peak)}")
    else:
        of = " of the fullest" if ranks.ranks > 1 else ""
        reserved = f"{format_memory(peak.reserved)} reserved"
        held = f"{format_memory(peak.allocated)} at the peak{of} ({reserved}) of {format_memory(peak.total)}"
        lines.append(f"  {head:9s} fits: {held}")
        lines.append(f"            {_parts(peak)}")
    if peak.modules:
        most = ", ".join(f"{name} {format_memory(size)}" for name, size in list(peak.modules.items())[:3])
        lines.append(f"            activations most in {most}")
    lines.append(
        f"            rounding {format_memory(peak.rounding)}, "
        f"reserved and not used {format_memory(peak.fragmentation)}"
    )
    return lines


def _parts(peak: Peak) -> str:
    large = {owner: size for owner, size in peak.owners.items() if size >= 2**20} or peak.owners
    return ", ".join(f"{owner} {format_memory(size)}" for owner, size in large.items())


def _step(ranks: Ranks, step: Step) -> list[str]:
    known = ranks.samples and ranks.rate
    rate = f", {_number(ranks.rate)} samples/s ({ranks.samples:g} a step)" if known else ""
    loading = ranks.loading
    if known and loading is not None and loading.paced > step.time:
        paced = _number(ranks.samples / loading.paced * 1e3)
        rate += f", {paced} with the data loader as fast as on this machine"
    lines = [f"  {_cards(ranks):9s} {step.time:.1f} ms a step ({ranks.low:.1f} to {ranks.high:.1f}){rate}"]
    if len(set(ranks.batches)) > 1:
        each = ", ".join(f"{samples:g}" for samples in ranks.batches)
        lines.append(f"            step {ranks.timed} is timed: the steps had {each} samples on a card")
    shares = ", ".join(f"{unit} {spent:.1f}" for unit, spent in list(step.units.items())[:5])
    lines.append(f"            bound by {_BOUND[step.bound]}; ms by unit: {shares}")
    if ranks.loading is not None:
        lines.append(_loading(ranks.loading, step))
    if step.exposed > 0.01 * step.time:
        lines.append(f"            communication that nothing hides: {step.exposed:.1f} ms")
    return lines


def _loading(loading: Loading, step: Step) -> str:
    line = f"            data loader: {loading.time:.1f} ms of this machine's processor a step"
    if loading.workers == 0:
        return f"{line}, in the program itself (num_workers=0): {loading.paced:.1f} ms a step with it"
    line += f", in {loading.workers} workers"
    if loading.paced <= step.time:
        return f"{line}: behind the step"
    return f"{line}: it bounds the step, {loading.paced:.1f} ms"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _tried(advice: Sequence[Trial]) -> list[str]:
    lines = [
        f"  tried     {row.change}: " + (f"fits, {format_memory(row.peak)}" if row.peak is not None else "does not fit")
        for row in advice
    ]
    if advice and not any(row.change.startswith("-") for row in advice):
        lines.append("  not tried a smaller batch: the command has no option for it such as --batch-size 64")
    return lines


def _unseen(found: Prediction) -> list[str]:
    lines = []
    for row in found.reads[:5]:
        lines.append(f"  read      {row.path}:{row.line}  {row.call}, {_times(row.count)}: zero in a dry run")
    if found.unfilled:
        lines.append(
            f"  weights   {format_memory(found.unfilled)} made on the CPU, which each rank's host needs for them; here "
            "they are left without values"
        )
    if found.unfilled_read:
        lines.append(
            f"            {format_memory(found.unfilled_read)} of them are read on the CPU, where they are zero"
        )
    if found.compiled:
        lines.append("  compile   torch.compile is left out: each operator is a kernel of its own, none are fused")
    held = (found.many or found.one).resident
    lines.append(f"  host      this run held {format_memory(held)} of this machine's memory")
    for name, count in found.shapes.items():
        lines.append(f"  shapes    {name}, {_times(count)}: taken {found.sizes}")
    return lines

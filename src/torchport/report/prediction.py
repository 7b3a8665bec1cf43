"""A prediction in the terminal."""

from __future__ import annotations

from typing import Any

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


def gib(count: float) -> str:
    """Bytes in the unit that fits."""
    return f"{count / 2**30:.2f} GiB" if count >= 2**29 else f"{count / 2**20:.1f} MiB"


def render_prediction(found: dict[str, Any]) -> str:
    """Some twenty lines: does it fit, how long a step takes, what bounds it, what was not seen."""
    lines = [f"{found['soc']}, predicted from {found['steps']} dry steps"]
    one, peak = found["one"], found["one"]["peak"]
    if found["fits"]:
        lines += _memory(peak)
    else:
        lines += [f"  memory    does not fit: {found['failure']}"]
        lines += _memory(peak)[1:] if peak else []
        lines += _tried(found["advice"])
    for ranks in (one, found["many"]):
        if ranks and ranks["step"]:
            lines += _step(ranks)
    if found["many"] and one["throughput"] > 0:
        gain = found["many"]["throughput"] / one["throughput"] / found["many"]["ranks"]
        lines.append(f"  scaling   {gain:.0%} of {found['many']['ranks']} times one card")
    lines.append(f"  basis     {found['validated']}")
    lines += _unseen(found)
    return "\n".join(lines)


def _memory(peak: dict[str, Any]) -> list[str]:
    held = f"{gib(peak['allocated'])} at the peak ({gib(peak['reserved'])} reserved) of {gib(peak['total'])}"
    lines = [f"  memory    fits: {held}"]
    parts = ", ".join(f"{owner} {gib(size)}" for owner, size in peak["owners"].items() if size >= 2**20)
    if parts:
        lines.append(f"            {parts}")
    if peak["modules"]:
        most = ", ".join(f"{name} {gib(size)}" for name, size in list(peak["modules"].items())[:3])
        lines.append(f"            activations most in {most}")
    lines.append(
        f"            rounding {gib(peak['rounding'])}, reserved and not used {gib(peak['fragmentation'])}"
    )
    return lines


def _step(ranks: dict[str, Any]) -> list[str]:
    step = ranks["step"]
    cards = "1 card" if ranks["ranks"] == 1 else f"{ranks['ranks']} cards"
    rate = f", {ranks['throughput']:,.0f} samples/s ({ranks['samples']:g} a step)" if ranks["samples"] else ""
    lines = [f"  {cards:9s} {step['time']:.1f} ms a step ({ranks['low']:.1f} to {ranks['high']:.1f}){rate}"]
    shares = ", ".join(f"{unit} {spent:.1f}" for unit, spent in list(step["units"].items())[:5])
    lines.append(f"            bound by {_BOUND[step['bound']]}; ms by unit: {shares}")
    if step["exposed"] > 0.01 * step["time"]:
        lines.append(f"            communication that nothing hides: {step['exposed']:.1f} ms")
    return lines


def _tried(advice: list[dict[str, Any]]) -> list[str]:
    return [
        f"  tried     {row['change']}: " + (f"fits, {gib(row['peak'])}" if row["fits"] else "does not fit")
        for row in advice
    ]


def _unseen(found: dict[str, Any]) -> list[str]:
    lines = []
    for row in found["reads"][:5]:
        lines.append(
            f"  read      {row['path']}:{row['line']}  {row['call']}, {row['count']} times: zero in a dry run"
        )
    if found["unfilled"]:
        lines.append(
            f"  weights   {gib(found['unfilled'])} made on the CPU, left without values: nothing computes with them"
        )
    lines.append(f"  host      this run took {gib(found['one']['resident'])} of this machine's memory")
    for name, count in found["shapes"].items():
        lines.append(f"  shapes    {name}, {count} times: taken as large as they can be")
    return lines

"""The events of trainings that are judged: a run, rounding, the control run with its faults, windows of twenty steps."""

from recordings import SITE, write

from torchport.compare import compare_recordings
from torchport.results.codec import to_json

STEPS = 20
LOSSES = [2.3 * 0.97**step for step in range(STEPS)]
NAMES = ["fc1.weight", "fc1.bias", "fc2.weight"]
GRADIENTS = [1.0, 0.1, 0.5]
CHANGES = [1e-2, 1e-3, 5e-3]
FAULTS = (("update", 6, "change", None), ("gradient", 12, "gradient", 2), ("sample", 19, "input", None))
MADE = [
    {"kind": "fault", "name": name, "step": step, "what": what, "optimizer": 0, "parameter": parameter}
    for name, step, what, parameter in FAULTS
]


def run(*events, device="cpu", loss=None, gradient=None, change=None, skip=(), steps=STEPS):
    """The events of a run; `loss(step)`, `gradient(step, parameter)` and `change(step, parameter)` are factors."""
    loss, gradient = loss or (lambda step: 1.0), gradient or (lambda step, parameter: 1.0)
    change = change or (lambda step, parameter: 1.0)
    launches = (lambda step: None) if device == "cpu" else (lambda step: 10 * (step + 1))
    yield {"kind": "parameters", "optimizer": 0, "step": 0, "names": NAMES, "sizes": [100, 10, 50]}
    for step in range(steps):
        yield {
            "kind": "loss",
            "site": SITE,
            "by": "backward",
            "value": LOSSES[step % STEPS] * loss(step),
            "device": device,
            "launches": launches(step),
            "elapsed": 0.1 * step,
        }
        yield {
            "kind": "step",
            "step": step,
            "device": device,
            "gradient": device,
            "launches": launches(step),
            "seconds": 0.1,
            "elapsed": 0.1 * step + 0.05,
        }
        yield {
            "kind": "norms",
            "optimizer": 0,
            "step": step,
            "norm": [1.0, 1.0, 1.0],
            "gradient": [
                None if number in skip else value * gradient(step, number) for number, value in enumerate(GRADIENTS)
            ],
            "change": [value * change(step, number) for number, value in enumerate(CHANGES)],
        }
    yield from events


def noise(size, growth=1.0):
    """Rounding of about `size`, with either sign."""
    return lambda step, *parameter: 1.0 + min(size * growth**step, 0.03) * (-1) ** (step + sum(parameter))


def faulty(size=1e-7, growth=1.0, update=0.05, gradient=0.01, sample=0.02):
    """The control run: noise, and the faults so large."""
    rounding = noise(size, growth)
    return run(
        *MADE,
        loss=lambda step: rounding(step) * (1 + sample * (step == 19)),
        gradient=lambda step, number: (
            rounding(step, number) * (1 + gradient * (step == 12 and number == 2) + sample * (step == 19))
        ),
        change=lambda step, number: rounding(step, number) * (1 + update * (step == 6) + sample * (step == 19)),
    )


RESTARTS = [{"kind": "restored", "step": step} for step in (20, 40)]


def windows(size, growth=1.2, **wrong):
    """Rounding that begins anew every twenty steps; `wrong` has functions by kind, as `run` takes them."""

    def rounding(step, *parameter):
        made = wrong.get("gradient" if parameter else "loss", lambda *_: 1.0)
        return noise(size, growth)(step % STEPS, *parameter) * made(step, *parameter)

    return run(*RESTARTS, device="npu", steps=60, loss=rounding, gradient=rounding, change=noise(size))


def judge_in(folder, port, control=None, reference=None, **more):
    """Record the events of the runs below `folder`, and give the data and the codes of their comparison."""
    runs = {"reference": reference or run(), "npu": port, "control": control if control is not None else faulty()}
    recordings = {}
    for name, events in runs.items():
        (folder / name).mkdir()
        recordings[name] = write(folder / name, events)
    result = compare_recordings(
        recordings["reference"], recordings["npu"], on_npu=True, control=recordings["control"], **more
    )
    return to_json(result.data) | {"codes": [finding.code for finding in result.findings]}

"""The judge of the device's own random numbers: what is refused, then what passes. No torch."""

from __future__ import annotations

import math

import numpy
import pytest
import recordings

from torchport.compare import drawn
from torchport.compare.drawn import drawn_conditions, list_own_draws
from torchport.compare.verdict import Verdict, Word
from torchport.findings import Severity
from torchport.record.draws import laws
from torchport.record.draws.laws import Law

SITE = "train.py:12"


def event(law: Law, numbers: numpy.ndarray | None = None, **more) -> dict:
    """As the recorder writes it; by itself of numbers that are exactly what is expected."""
    measured = (
        {"count": 100_000, "mean": law.mean, "variance": law.variance, "least": law.mean, "most": law.mean}
        if numbers is None
        else {
            "count": len(numbers),
            "mean": float(numbers.mean()),
            "variance": float(((numbers - law.mean) ** 2).mean()),
            "least": float(numbers.min()),
            "most": float(numbers.max()),
        }
    )
    return (
        {
            "kind": "drawn",
            "operator": "uniform_",
            "site": SITE,
            "dtype": "float32",
            "expected_mean": law.mean,
            "expected_variance": law.variance,
            "kurtosis": law.kurtosis,
            "rounding": 0.0,
            "expected_least": law.least,
            "expected_most": law.most,
            "problem": "",
            "error": "",
        }
        | measured
        | more
    )


@pytest.fixture
def port(tmp_path):
    (tmp_path / "npu").mkdir()
    return lambda *events: recordings.write(tmp_path / "npu", [*recordings.losses([1.0]), *events])


DRAW = numpy.random.default_rng(1)
REFUSED = {
    "a share of 0.5 for 0.55": event(laws.bernoulli_law(0.55), (DRAW.random(100_000) < 0.5) * 1.0),
    "a shifted normal": event(laws.normal_law(0, 1), DRAW.standard_normal(100_000) + 0.03),
    "a wide normal": event(laws.normal_law(0, 1), DRAW.standard_normal(100_000) * 1.02),
    "twice the range": event(laws.uniform_law(0, 1), DRAW.random(100_000) * 2),
    "a narrow range with the right middle": event(laws.uniform_law(0, 1), 0.01 + 0.98 * DRAW.random(100_000)),
    "one below": event(laws.uniform_law(0, 1), least=-1e-6),
    "one above": event(laws.integer_law(0, 9), most=10.0),
    "one number": event(laws.uniform_law(0, 1), numpy.full(100_000, 0.5)),
    "not a number": event(laws.normal_law(0, 1), mean="nan"),
    "infinite": event(laws.normal_law(0, 1), variance="inf"),
    "what the recorder saw": event(laws.normal_law(0, 1), problem="they are no permutation"),
    "few": event(laws.uniform_law(0, 1), numpy.zeros(64)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, port):
    recording = port(REFUSED[name])
    (finding,) = drawn_conditions(recording)
    assert finding.code == "TP352"
    assert SITE in finding.message
    assert "uniform_ of float32" in finding.message
    assert Verdict.from_findings([finding], "").word is Word.DOES_NOT_HOLD
    (row,) = list_own_draws(recording)
    assert (row.holds, row.site, bool(row.why)) == (False, SITE, True)


def test_a_layer_that_torch_npu_computes_in_its_own_way_is_no_fault_of_the_ports(port):
    dropped = event(laws.normal_law(0, 1), problem="drops nothing") | {"operator": "aten::lstm.input"}
    (finding,) = drawn_conditions(port(dropped))
    assert (finding.code, finding.severity) == ("TP352", Severity.WARNING)
    assert Verdict.from_findings([finding], "").word is Word.HOLDS


def test_what_the_device_cannot_draw_is_refused(port):
    recording = port(event(laws.normal_law(0, 1), count=0, mean="nan", variance="nan", error="RuntimeError: float64"))
    (finding,) = drawn_conditions(recording)
    assert finding.code == "TP353"
    assert f"cannot draw uniform_ of float32 at {SITE}: RuntimeError: float64" in finding.message
    assert Verdict.from_findings([finding], "").word is Word.DOES_NOT_HOLD
    (row,) = list_own_draws(recording)
    assert (row.holds, row.mean, row.why) == (False, None, "RuntimeError: float64")


def test_what_the_virtual_npu_cannot_draw_is_open(port):
    text = "RuntimeError: aclnnFoo failed ... The virtual NPU does not implement aclnnFoo"
    (finding,) = drawn_conditions(port(event(laws.normal_law(0, 1), count=0, error=text)))
    assert finding.code == "TP343"
    assert Verdict.from_findings([finding], "").word is Word.UNDECIDED


def test_what_torch_npu_does_with_a_layer_is_a_warning(port):
    bad = {"operator": "lstm.input", "problem": "nothing is dropped"}
    recording = port(event(laws.bernoulli_law(0.9), **bad))
    (finding,) = drawn_conditions(recording)
    assert (finding.code, finding.severity) == ("TP352", Severity.WARNING)
    assert finding.message.endswith("train.py:12 otherwise: nothing is dropped")
    assert not list_own_draws(recording)[0].holds


def test_one_finding_for_all_places(port):
    bad = event(laws.bernoulli_law(0.5), mean=0.45)
    (finding,) = drawn_conditions(port(bad, bad | {"site": "a.py:1", "mean": 0.4}, bad | {"site": "b.py:1"}))
    assert f"at {SITE} and 2 more places" in finding.message


PASSES = {
    "a share": event(laws.bernoulli_law(0.9), (DRAW.random(100_000) < 0.9) * 1.0),
    "a rare one": event(laws.bernoulli_law(1e-3), (DRAW.random(1000) < 1e-3) * 1.0),
    "always": event(laws.bernoulli_law(1.0), numpy.ones(1000)),
    "never": event(laws.bernoulli_law(0.0), numpy.zeros(1000)),
    "a normal": event(laws.normal_law(-2, 3), DRAW.standard_normal(1000) * 3 - 2),
    "no deviation": event(laws.normal_law(2, 0), numpy.full(1000, 2.0)),
    "rounded": event(laws.uniform_law(0, 1), numpy.floor(DRAW.random(200_000) * 256) / 256, rounding=2**-7),
    "dice": event(laws.integer_law(1, 6), DRAW.integers(1, 7, 1000)),
    "one side": event(laws.integer_law(3, 3), numpy.full(1000, 3)),
    "words": event(laws.integer_law(0, 2**63 - 1), DRAW.integers(0, 2**63 - 1, 1000) * 1.0, rounding=2e4),
    "a correlation": event(Law(0.0, 1.01, math.inf, -3, 3), mean=0.02, variance=0.4, kurtosis="inf", count=1000),
}


@pytest.mark.parametrize("name", PASSES)
def test_passes(name, port):
    recording = port(PASSES[name])
    assert list(drawn_conditions(recording)) == []
    (row,) = list_own_draws(recording)
    assert (row.holds, row.why, row.count) == (True, "", PASSES[name]["count"])


SAMPLES = {
    "uniform": (laws.uniform_law(0, 1), lambda draw, shape: draw.random(shape)),
    "normal": (laws.normal_law(0, 1), lambda draw, shape: draw.standard_normal(shape)),
    "chosen": (laws.bernoulli_law(0.5), lambda draw, shape: draw.random(shape) < 0.5),
    "rare": (laws.bernoulli_law(0.003), lambda draw, shape: draw.random(shape) < 0.003),
    "dice": (laws.integer_law(1, 6), lambda draw, shape: draw.integers(1, 7, shape)),
}


@pytest.mark.parametrize("count", [30, 1000])
@pytest.mark.parametrize("name", SAMPLES)
def test_false_alarms_are_as_rare_as_the_bound_says(name, count, monkeypatch):
    """Seen where it can be counted: with 3 standard errors for 6, at most 2 exp(-4.5) for each of two moments."""
    monkeypatch.setattr(drawn, "SIGMAS", 3.0)
    law, sample = SAMPLES[name]
    numbers = sample(numpy.random.default_rng(7), (2000, count)) * 1.0
    alarms = sum(bool(drawn._fault(event(law, one))) for one in numbers)
    assert alarms <= 2000 * 4 * math.exp(-4.5)


@pytest.mark.parametrize(
    "law", [laws.uniform_law(-2, 5), laws.normal_law(1, 2), laws.bernoulli_law(0.2), laws.integer_law(-3, 8)]
)
def test_laws_have_the_moments_of_their_numbers(law):
    draw = numpy.random.default_rng(3)
    numbers = {
        laws.uniform_law(-2, 5): draw.uniform(-2, 5, 400_000),
        laws.normal_law(1, 2): draw.normal(1, 2, 400_000),
        laws.bernoulli_law(0.2): draw.random(400_000) < 0.2,
        laws.integer_law(-3, 8): draw.integers(-3, 9, 400_000),
    }[law] * 1.0
    assert numbers.mean() == pytest.approx(law.mean, abs=0.02)
    assert numbers.var() == pytest.approx(law.variance, rel=0.01)
    assert ((numbers - law.mean) ** 4).mean() / law.variance**2 == pytest.approx(law.kurtosis, rel=0.02)

"""Run one operator of PyTorch's `op_db` in one dtype on the NPU and judge it; `python judge.py GROUP...` does so for
whole groups, in a process of its own that run.py watches. Beside the dtypes stand "refusals" (late.py) and
"layouts" (layouts.py).

    PASS         every sample's results and gradients agree with the reference
    FAIL         a sample differs, or was refused for a reason that is not listed below
    GAP          the virtual NPU says that it lacks an operator
    NOT_OFFERED  torch_npu or CANN itself does not offer it:
                   fallback   an ATen operator without a kernel for the NPU was called; torch_npu computes it on the CPU
                   torch_npu  torch_npu raised by itself, before any operator of CANN was called
                   cann       the operator's first phase refused what CANN's own does: a dtype, or, for one sample at
                              least, something else that the chip cannot; the other samples pass

CRASH and TIMEOUT are seen from outside, by run.py.

The reference runs on the CPU in float64 (float32 where there is no such kernel) on the same rounded inputs; integers
and bools run in their own dtype and must agree exactly. Tolerances are the OpInfo's (`toleranceOverride` of any of its
tests), at least those of `torch.testing.assert_close`. Where that is exceeded, results in half precision may be off by
two units in the last place of what is expected, and by 16 roundings in float32 of what the operator makes of the
inputs' absolute values: a sum of terms that cancel. Where the kernel keeps float16 (KEEP_HALF) by two roundings in
float16 of those. Gradients, which torch makes of rounded results and products, may be
off by one rounding in their own dtype of those values. They, those operators that torch makes of others
(ROUNDED_BETWEEN), float32 and complex numbers may have twice the error of PyTorch's CPU kernel. GELU is the tanh form on
both sides, as in the reference of a port.
"""

# ruff: noqa: E402 -- torch is imported after the virtual NPU is activated
from __future__ import annotations

import functools
import json
import os
import re
import sys
import tempfile
import types
import unittest
import unittest.mock
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from torchport import vnpu
from torchport.patches import Patches
from torchport.record import gelu

vnpu.activate(force=True)

import torch
import torch_npu  # noqa: F401
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from verdicts import LAYOUTS, REFUSALS, chip_limit, kernel_failure, own_words, refused

# torch.testing._internal imports it for test cases of its own, which op_db does not need.
sys.modules.setdefault("expecttest", types.ModuleType("expecttest")).__dict__.setdefault("TestCase", unittest.TestCase)
# They ask whether there is an NPU, which would start it before main() forks.
with unittest.mock.patch.object(torch.npu, "is_available", return_value=True):
    import late
    import layouts
    from torch.testing._internal.common_device_type import toleranceOverride
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo.core import OpInfo, SampleInput

HALF = (torch.float16, torch.bfloat16)
# Whose kernels round float16 at each step (csrc/opapi/elementwise/weighed.h).
KEEP_HALF = frozenset(("addcdiv", "addcmul"))
# Made of several operators, whose results in half precision are rounded each, on every device.
ROUNDED_BETWEEN = frozenset(
    (
        "diff",
        "div.trunc_rounding",
        "gradient",
        "logit",
        "special.ndtr",
        "nn.functional.cosine_similarity",
        "nn.functional.hinge_embedding_loss",
        "nn.functional.multilabel_soft_margin_loss",
        "nn.functional.poisson_nll_loss",
        "nn.functional.triplet_margin_loss",
        "nn.functional.triplet_margin_with_distance_loss",
    )
)
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool)
SAMPLES = 6  # of each operator and dtype, spread over the OpInfo's list
DEFAULT_TOLERANCES = {torch.float32: (1e-5, 1.3e-6), torch.float16: (1e-5, 1e-3), torch.bfloat16: (1e-5, 1.6e-2)}
# Their values are whatever memory holds: shape and dtype are compared.
UNINITIALISED = re.compile(r"^(new_)?empty(_like|_permuted|_strided)?$|^(as_strided|resize)")
LOG = tempfile.NamedTemporaryFile()  # noqa: SIM115 -- what torch_npu says on stderr, for as long as the process lives
# Exit status: torch_npu drops all work after a kernel's failure, and another process goes on.
DEVICE_LOST = 75

Pair = tuple[str, str]


def name_of(op: OpInfo) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def pairs() -> dict[Pair, OpInfo]:
    """Every operator of op_db in every dtype that PyTorch's CPU kernels support, and what it refuses."""
    return {
        (name_of(op), kind): op
        for op in op_db
        for kind in (
            *(str(one).removeprefix("torch.") for one in DTYPES if one in op.supported_dtypes("cpu")),
            REFUSALS,
            LAYOUTS,
        )
    }


class NotOfferedError(Exception):
    """torch_npu or CANN does not offer it: who says so, and how."""


class DifferentError(Exception):
    """A result is not the reference's."""


class Fallbacks(TorchDispatchMode):
    """Raises at the first ATen operator on NPU tensors that torch_npu has no kernel for: its boxed fallback would
    copy the tensors to the CPU. That is the dispatcher's own table, so no once-only warning can be missed."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.name()
        leaves, _ = tree_flatten((args, kwargs))
        if any(isinstance(leaf, torch.Tensor) and leaf.device.type == "npu" for leaf in leaves) and not _offered(func):
            raise NotOfferedError(f"fallback: {name}")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = func(*args, **kwargs)
        if any("fall back to run on the CPU" in str(one.message) for one in caught):
            raise NotOfferedError(f"fallback: {name}")
        return result


@functools.cache
def _offered(func: Any) -> bool:
    def has(name: str, *keys: str) -> bool:
        try:
            return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys)
        except RuntimeError:  # an overload for TorchScript alone (copysign.int)
            return False

    name = func.name()
    if has(name, "PrivateUse1", "CompositeExplicitAutograd", "CompositeImplicitAutograd"):
        return True
    # A structured operator's functional form calls its out form, which may have a kernel.
    return has(name, "CompositeExplicitAutogradNonFunctional") and any(
        has(getattr(func.overloadpacket, overload).name(), "PrivateUse1")
        for overload in func.overloadpacket.overloads()
    )


def classify(error: Exception) -> tuple[str, str]:
    """Status and reason of an exception that an operator on the NPU raised."""
    if isinstance(error, NotOfferedError):
        return "NOT_OFFERED", str(error)
    if isinstance(error, (DifferentError, layouts.OtherError)):
        return "FAIL", str(error)
    text = " ".join(str(error).split())
    if said := refused(text):
        return said
    own = re.sub(r"\[ERROR\].*", "", text)[:160].strip()  # what follows has the time in it
    log = Path(LOG.name).read_text(errors="replace")  # a kernel has failed: its message stands there
    if words := kernel_failure(text, log) or own_words(text):
        return "FAIL", words
    if re.search(r"aclnn|acl[a-z]+ API|Fault|virtual NPU", text):
        return "FAIL", own
    return "NOT_OFFERED", f"torch_npu: {type(error).__name__}: {own}"


def tolerances(op: OpInfo, dtype: torch.dtype) -> tuple[float, float]:
    """Absolute and relative."""
    absolute, relative = DEFAULT_TOLERANCES[dtype]
    for decorator in op.decorators:
        for one in getattr(decorator, "decorators", ()):
            if isinstance(one, toleranceOverride) and dtype in one.d:
                absolute, relative = max(absolute, one.d[dtype].atol), max(relative, one.d[dtype].rtol)
    return absolute, relative


def spread(samples: Iterable[SampleInput]) -> list[SampleInput]:
    everything = list(samples)
    step = max(len(everything) / SAMPLES, 1)
    return [everything[int(i * step)] for i in range(min(SAMPLES, len(everything)))]


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def cast(value: Any, dtype: torch.dtype | None, device: str, grad: bool) -> Any:
    """Copies of the tensors in `value`, floating-point ones in `dtype`; device arguments name `device`."""

    def one(leaf: Any) -> Any:
        if isinstance(leaf, torch.dtype) and dtype == torch.float64 and leaf.is_floating_point:
            return torch.float64
        if isinstance(leaf, torch.device) or (isinstance(leaf, str) and leaf == "cpu"):
            return device
        if not isinstance(leaf, torch.Tensor):
            return leaf
        wanted = dtype if dtype is not None and leaf.is_floating_point() else leaf.dtype
        copy = leaf.detach().to(wanted).to(device, copy=True)
        if leaf.layout == torch.strided and copy.stride() != leaf.stride() and leaf._is_view():
            copy = (
                torch.empty_strided(leaf.shape, leaf.stride(), dtype=wanted, device=device).copy_(copy)
                if not _overlaps(leaf)
                else copy
            )
        return copy.requires_grad_(grad and leaf.requires_grad)

    return tree_map(one, value)


def _overlaps(tensor: torch.Tensor) -> bool:
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def compute(
    op: Callable[..., Any],
    sample: SampleInput,
    dtype: torch.dtype | None,
    device: str,
    grad: bool,
    narrow: torch.dtype | None = None,
    absolute: bool = False,
) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """Results and, where wanted, gradients of the inputs (or of their absolute values) for fixed cotangents, which are
    those of the dtype `narrow`."""
    given = ((sample.input, *sample.args), sample.kwargs)
    if absolute:
        given = tree_map(
            lambda one: (
                one.detach().abs().requires_grad_(one.requires_grad)
                if isinstance(one, torch.Tensor) and one.is_floating_point()
                else one
            ),
            given,
        )
    arguments, options = cast(given, dtype, device, grad)
    torch.manual_seed(0)
    result = sample.output_process_fn_grad(op(*arguments, **options))
    outputs = tensors(result)
    if not grad:
        return [out.detach() for out in outputs], []
    leaves = [leaf for leaf in tensors((arguments, options)) if leaf.requires_grad]
    roots = [out for out in outputs if out.requires_grad]
    if not roots or not leaves:
        return [out.detach() for out in outputs], []
    generator = torch.Generator().manual_seed(1)
    cotangents = [
        torch.rand(out.shape, dtype=torch.float32, generator=generator)
        .to(narrow or torch.float32)
        .to(out.device, out.dtype)
        for out in roots
    ]
    gradients = torch.autograd.grad(roots, leaves, cotangents, allow_unused=True)
    return [out.detach() for out in outputs], list(gradients)


def error(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """|actual - expected|; 0 where both are the same infinity or NaN, infinite where only one is."""
    wide = torch.complex128 if expected.is_complex() else torch.float64
    actual, expected = actual.detach().cpu().to(wide), expected.detach().to(wide)
    same = (actual == expected) | (actual.isnan() & expected.isnan())
    difference = (actual - expected).abs()
    return torch.where(same, 0.0, torch.where(difference.isnan(), torch.inf, difference))


def compare(
    actual: torch.Tensor,
    expected: torch.Tensor,
    native: Callable[[], torch.Tensor],
    terms: Callable[[], torch.Tensor | None],
    tolerance: tuple[float, float],
    roundings: float,
    as_cpu: bool,
    what: str,
) -> None:
    """`native` gives what the CPU makes of it in the dtype under test, whose error is allowed twice if `as_cpu`;
    `terms` the reference of absolute values, of which `roundings` are allowed beside two units in the last place."""
    if actual.shape != expected.shape:
        raise DifferentError(f"{what} has shape {list(actual.shape)}, expected {list(expected.shape)}")
    if not (actual.is_floating_point() or actual.is_complex()):
        if not torch.equal(actual.cpu().to(expected.dtype), expected) and not torch.equal(actual.cpu(), native()):
            raise DifferentError(f"{what} differs")
        return
    reach = torch.finfo(actual.dtype)
    if not expected.is_complex():  # past the dtype's range: infinite
        expected = torch.where(
            expected.abs() > reach.max, torch.copysign(torch.full_like(expected, torch.inf), expected), expected
        )
    off = error(actual, expected)
    allowed = tolerance[0] + tolerance[1] * expected.abs().nan_to_num(0, 0, 0)
    within = off <= allowed
    if bool(within.all()):
        return
    if roundings:
        size = terms()
        wide = torch.zeros_like(off) if size is None else size.abs().to(off.dtype).nan_to_num(0, 0, 0)
        exact = expected.abs().to(off.dtype).nan_to_num(0, 0, 0)
        last_places = 2 * (reach.eps * exact + reach.smallest_normal * reach.eps)
        within |= off <= last_places + roundings * wide
    if as_cpu:
        own = error(native(), expected)
        ceiling = own.flatten().max() if own.numel() else own.sum()
        within |= (off <= 2 * own) | (off <= 2 * ceiling)
    if not bool(within.all()):
        raise DifferentError(f"{what} is off by {float((off - allowed).max()):.3g} more than allowed")


def reference(op: OpInfo, sample: SampleInput, grad: bool, narrow: torch.dtype | None, absolute: bool = False) -> Any:
    """Results and gradients in float64, or in float32 where the CPU has no float64 kernel; None where neither."""
    for dtype in (torch.float64, torch.float32):
        try:
            return compute(op, sample, dtype, "cpu", grad, narrow, absolute)
        except Exception:  # no kernel in this dtype
            continue
    return None


def judge(op: OpInfo, dtype: torch.dtype) -> tuple[str, str]:
    """Status and reason."""
    floating = dtype.is_floating_point
    grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu") and floating
    torch.manual_seed(0)
    try:
        samples = spread(op.sample_inputs("cpu", dtype, requires_grad=grad))
    except Exception as problem:  # an OpInfo that cannot make inputs says nothing about a device
        return "NOT_OFFERED", f"op_db: no samples: {type(problem).__name__}"
    judged, beyond = 0, ""
    for index, sample in enumerate(samples):
        try:
            natively = compute(op, sample, None, "cpu", grad)
        except Exception:  # not an input that the CPU takes: nothing to compare with
            continue
        exact = reference(op, sample, grad, dtype if dtype in HALF else None) if floating else None
        try:
            with Fallbacks():
                results, gradients = compute(op, sample, None, "npu", grad)
            torch.npu.synchronize()
            judged += 1
            _compare_all(op, dtype, sample, (results, gradients), exact or natively, natively, f"sample {index}: ")
        except Exception as problem:
            refusal = chip_limit(" ".join(str(problem).split()))
            if not refusal:
                return classify(problem)
            beyond = beyond or refusal
    if beyond:
        return "NOT_OFFERED", beyond
    return ("PASS", "") if judged else ("NOT_OFFERED", "op_db: the CPU takes none of the samples")


def _compare_all(
    op: OpInfo, dtype: torch.dtype, sample: SampleInput, device: Any, exact: Any, natively: Any, where: str
) -> None:
    if len(device[0]) != len(exact[0]):
        raise DifferentError(f"{where}{len(device[0])} results, expected {len(exact[0])}")
    for i, (actual, native) in enumerate(zip(device[0], natively[0], strict=True)):
        if native.dtype == torch.float64 and actual.dtype == torch.float32:
            raise NotOfferedError("torch_npu: computes in float32 where float64 is asked for, and warns of it")
        if actual.dtype != native.dtype or actual.shape != native.shape:
            raise DifferentError(
                f"{where}result {i} is {actual.dtype} {list(actual.shape)}, expected {native.dtype} {list(native.shape)}"
            )
    if UNINITIALISED.match(op.name):
        return
    try:
        _compare_values(op, dtype, sample, device, exact, natively, where)
    except DifferentError:
        if not _random(op, sample, natively):  # other numbers are expected then
            raise


def _compare_values(
    op: OpInfo, dtype: torch.dtype, sample: SampleInput, device: Any, exact: Any, natively: Any, where: str
) -> None:
    # Of integers the reference is rounded, too.
    tolerance = tolerances(op, dtype) if dtype.is_floating_point else (2e-5, 2.6e-6)
    grad = bool(natively[1])
    sizes = functools.cache(lambda: reference(op, sample, grad, dtype if dtype in HALF else None, absolute=True))

    def terms(at: int, i: int) -> torch.Tensor | None:
        found = sizes()
        like = exact[at][i]
        fits = found is not None and i < len(found[at]) and found[at][i] is not None
        return found[at][i] if fits and found[at][i].shape == like.shape else None

    for kind, at in (("result", 0), ("gradient", 1)):
        for i, (actual, expected, native) in enumerate(zip(device[at], exact[at], natively[at], strict=True)):
            if (actual is None) != (expected is None):
                raise DifferentError(f"{where}{kind} {i} is {'missing' if actual is None else 'unexpected'}")
            if actual is not None:
                half, result = actual.dtype in HALF, kind == "result"
                stepwise = result and actual.dtype == torch.float16 and name_of(op) in KEEP_HALF
                wide = 16 * torch.finfo(torch.float32).eps
                compare(
                    actual,
                    expected,
                    lambda native=native: native,
                    functools.partial(terms, at, i),
                    tolerance,
                    (wide if result and not stepwise else (1 + stepwise) * torch.finfo(actual.dtype).eps) * half,
                    not (half and result) or name_of(op) in ROUNDED_BETWEEN,
                    f"{where}{kind} {i}",
                )


def _random(op: OpInfo, sample: SampleInput, natively: Any) -> bool:
    """Whether other seeds give other values. Many OpInfos set a seed of their own, which is changed as well; three are
    tried, since the same few numbers may be drawn by chance."""
    seed = torch.manual_seed
    for shift in (1, 2, 3):
        arguments, options = cast(((sample.input, *sample.args), sample.kwargs), None, "cpu", False)
        with unittest.mock.patch.object(torch, "manual_seed", lambda number, by=shift: seed(number + by)):
            torch.manual_seed(0)
            other = tensors(sample.output_process_fn_grad(op(*arguments, **options)))
        if any(not torch.equal(_comparable(a), _comparable(b)) for a, b in zip(other, natively[0], strict=True)):
            return True
    return False


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return tensor.detach().nan_to_num()


def main(wanted: list[Pair], printed: IO[str]) -> int:
    """Judge them in a child, and those that are left when its NPU is lost in another: the imports take seconds."""
    known = pairs()
    patches = Patches()  # whose end would be that of what it holds
    gelu.replace_gelu_kernels(torch, "CPU", patches, lambda note: None)
    first = 0
    while wanted:
        judged, judging = os.pipe()
        child = os.fork()
        if child == 0:
            os.ftruncate(LOG.fileno(), 0)
            os.lseek(LOG.fileno(), 0, os.SEEK_SET)
            try:
                for line in verdicts(known, wanted, first):
                    print(json.dumps(line), file=printed, flush=True)
                    os.write(judging, b"." * ("status" in line))
            except late.LostError as lost:
                os.write(judging, str(*lost.args).encode())
            return 0
        os.close(judging)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with open(judged, "rb") as counted:
            *done, goes_on = counted.read().decode().split(".")
        if code not in (0, DEVICE_LOST) or not (done or goes_on):
            return code or 1
        wanted, first = wanted[len(done) :], int(goes_on or 0)
    return 0


def verdicts(known: dict[Pair, OpInfo], wanted: list[Pair], first: int) -> Iterator[dict[str, str]]:
    """What main() prints, until the NPU is lost: then SystemExit, or LostError. `first`: that of the calls of the first
    pair."""
    for name, dtype in wanted:
        yield {"op": name, "dtype": dtype}
        op = known[name, dtype]
        if dtype == REFUSALS:
            status, reason = late.judge(op, first, lambda: Path(LOG.name).read_text(errors="replace"), Fallbacks)
        elif dtype == LAYOUTS and UNINITIALISED.match(op.name):
            status, reason = "NOT_OFFERED", "op_db: has the values that memory holds"
        elif dtype == LAYOUTS:
            status, reason = layouts.judge(op, classify, Fallbacks)
        else:
            status, reason = judge(op, getattr(torch, dtype))
        first = 0
        yield {"op": name, "dtype": dtype, "status": status, "reason": reason}
        if _may_have_lost_work(status, reason):
            sys.exit(DEVICE_LOST)


def _may_have_lost_work(status: str, reason: str) -> bool:
    """Whether torch_npu may drop what follows: after an error of its queue it does so, without a word at first."""
    if status == "GAP" or (status == "FAIL" and re.search(r"virtual NPU|NPU function error", reason)):
        return True
    try:
        return torch.ones(1, device="npu").add_(1).item() != 2
    except RuntimeError:
        return True


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print(json.dumps(list(pairs())))
    else:
        warnings.simplefilter("ignore")
        printed = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(LOG.fileno(), sys.stdout.fileno())  # what operators print
        os.dup2(LOG.fileno(), sys.stderr.fileno())
        sys.exit(main([tuple(pair) for pair in json.load(sys.stdin)], printed))

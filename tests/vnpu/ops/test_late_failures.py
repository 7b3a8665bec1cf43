"""What a first phase lets through, the kernel computes: some operators as `make conformance` judges all ("refusals")."""

from __future__ import annotations

from pathlib import Path

from forked import python

CONFORMANCE = str(Path(__file__).parents[2] / "conformance")
# Kernels that once died of what should have been refused, or of what is called with something empty.
PROGRAM = f"""
import contextlib, os, sys, tempfile, types, warnings
sys.modules["expecttest"] = types.ModuleType("expecttest")  # which torch's own tests of operators import
sys.modules["expecttest"].TestCase = object
sys.path.insert(0, {CONFORMANCE!r})
warnings.simplefilter("ignore")
import late, torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import SampleInput

log = tempfile.TemporaryFile("w+")
os.dup2(log.fileno(), 2)

def said():
    log.seek(0)
    return log.read()

for name in ("nn.functional.softshrink", "nn.functional.adaptive_avg_pool2d", "div", "renorm"):
    op = next(op for op in op_db if op.name == name)
    print(name, *late.judge(op, 0, said, contextlib.nullcontext))

class Late:
    name, error_inputs_func = "late", None
    def supported_dtypes(self, device):
        return {{torch.float32}}
    def sample_inputs(self, device, dtype):
        yield SampleInput(torch.ones(2))
    def __call__(self, *arguments, **options):
        raise RuntimeError("the device has failed: 507015")

print(*late.judge(Late(), 0, lambda: "aclnnLate failed on stream 0: sizes 2 and 3", contextlib.nullcontext))
"""


def test_no_kernel_fails_after_a_first_phase_that_passed() -> None:
    """The last is the control: one that does."""
    ended = python(PROGRAM)
    *found, control = [line.strip() for line in ended.stdout.splitlines() if not line.startswith("[")]
    assert found == [
        "nn.functional.softshrink PASS",
        "nn.functional.adaptive_avg_pool2d PASS",
        "div PASS",
        "renorm PASS",
    ], ended
    assert control == "FAIL float32[0]: aclnnLate failed on stream 0: sizes 2 and 3"

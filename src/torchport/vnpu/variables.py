"""The environment variables of torchport and of the virtual NPU: the one documented table.

`torchport vnpu info` prints it, docs/variables.md is generated from it, and a test holds it against the
getenv() calls of csrc/.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable: its default as a user would write it ("" = unset), and what it does."""

    name: str
    default: str
    meaning: str


VARIABLES = (
    Variable(
        "TORCHPORT_BACKEND",
        "auto",
        "auto = CANN where it and an NPU are found, else the virtual NPU; vnpu or cann forces one",
    ),
    Variable("VNPU_DEVICES", "8", "how many devices there are, 1 to 64"),
    Variable("VNPU_SOC", "Ascend910B1", "the chip, a profile of knowledge/devices.toml"),
    Variable(
        "VNPU_CANN",
        "",
        "the version of CANN that torch_npu is told, 8.3.RC1 or later; it chooses code paths by it; "
        "unset = the one that belongs to the supported torch_npu (knowledge/cann.toml)",
    ),
    Variable(
        "VNPU_HOST_LIMIT",
        "",
        "host memory that the devices of one process may take together, such as 16GiB; "
        "unset = 4/5 of the machine's or the cgroup's memory, divided among torchrun's local ranks",
    ),
    Variable(
        "VNPU_CHECKS",
        "hardware",
        "hardware = operators refuse what CANN's own checks refuse on that chip; any = where a floating-point dtype "
        "is allowed, so is every other (float64 matrix products ...), and tensors may have more than 8 dimensions",
    ),
    Variable(
        "VNPU_HIDDEN_BUGS",
        "error",
        "error = a mistake that hardware does not notice is one: an index past the end, integers divided by "
        "zero, a class that there is not; hardware = it gives a number here too",
    ),
    Variable(
        "VNPU_CHECK_MEMORY",
        "0",
        "1 = guard pages behind each block of device memory, a quarantine for freed ones, sizes to the byte; "
        "`torchport run --check-memory` sets it and turns torch_npu's caching off",
    ),
    Variable(
        "VNPU_FAULTS",
        "",
        "failures to provoke, between semicolons: oom@alloc:100, exception@op:aclnnAdd:3, timeout@op:aclnnMatmul, "
        "hang@op:NAME, ecc@step:5, timeout@collective:7, linkdown@rank:1, slow@rank:1:200, slow@host:2 (milliseconds); "
        "@rank:R behind one confines it to a rank",
    ),
    Variable("VNPU_LIBRARIES", "", "folder of another build of the libraries, say with a sanitizer"),
    Variable("TORCHPORT_AUTO", "", "1 = redirect CUDA calls to the NPU in every Python (torchport.auto)"),
    Variable("TORCHPORT_AUDIT", "", "file that gets one JSON line per redirected place"),
    Variable("TORCHPORT_SUMMARY", "1", "0 = no summary at the end of a redirected script"),
    Variable(
        "TORCHPORT_FAILURES",
        "",
        "1 = a Python that would end with 0 ends with 1 if an operator of the virtual NPU has failed unseen",
    ),
    Variable(
        "TORCHPORT_DIAGNOSE",
        "",
        "1 = a script that an exception ends says the cause at its end, on stderr; `torchport run` sets it",
    ),
    Variable(
        "TORCHPORT_USED",
        "",
        "1 = the processes of a run say at its end, on stderr, which NPUs were used; `torchport run` sets it",
    ),
    Variable(
        "TORCHPORT_CUDA_CAPABILITY",
        "",
        "what a redirected script is told, such as 8.0; unset = 8.0 for chips with bfloat16, 7.0 for others",
    ),
    Variable("TORCHPORT_CUDA_VERSION", "12.6", "torch.version.cuda of a redirected script"),
    Variable(
        "VNPU_MODE",
        "exact",
        "exact = operators compute; dry = they are checked and queued, no kernel runs and device memory takes none of "
        "this machine's: for what a model costs (`torchport predict`)",
    ),
    Variable(
        "VNPU_SUM_ORDER",
        "cpu",
        "cpu = operators add in the order of torch's CPU kernels; a number = in another order, drawn from this seed, "
        "as every real device has its own: the same seed gives the same bits (`torchport port --reordered`)",
    ),
    Variable(
        "VNPU_DRY_SHARE",
        "1",
        "in dry mode, what shapes that depend on data (nonzero, unique) are taken to be, of the most they can be",
    ),
    Variable(
        "VNPU_DRY_COUNTS",
        "",
        "in dry mode, how many elements each result has whose shape depends on data, in their order and then from the "
        "first again, such as 12,40; goes before VNPU_DRY_SHARE",
    ),
    Variable(
        "VNPU_TIME",
        "wall",
        "wall = events carry this machine's time; model = the virtual clock's, which says what the chip would take; "
        "unset = wall for events, model for profiles",
    ),
    Variable(
        "VNPU_TIMELINE",
        "",
        "file that gets a binary record of each task with shapes and times (docs/timeline.md); %p = its number",
    ),
    Variable("VNPU_TRACE", "", "file that gets one line per ACL call and operator; unset = no trace"),
)

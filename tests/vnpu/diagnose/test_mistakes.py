"""Scripts that fail as users' do, through `torchport run`: what is said of them is the reason in their head.

Two thirds of them are among the logs by which `torchport diagnose` is judged (tests/unit/data/logs); here they run anew,
with what torch_npu and the virtual NPU say today.
"""

from __future__ import annotations

import pytest
from provoke import scripts

from torchport.diagnose import diagnose_text

# In `make test`: an operator that is refused, a kernel that fails late, ranks that disagree. The others: `make mistakes`.
ALWAYS = ("mixed_add", "bad_index", "unequal_batch")
# These end by a signal, in plain python, or with an exception that says nothing: only their output can be diagnosed.
SILENT = (
    "missing_all_reduce",
    "no_cann",
    "one_rank_killed",
    "one_rank_raises",
    "stopped_device",
    "unequal_batch",
    "worker_killed",
)
# Their exceptions say less than the lines before them: the numbers of a device whose memory is limited by the host's
# look as if another process had it.
SAYS = {"host_limit": "memory.others-hold", "master_unknown": "launch.master-unreachable"}


@pytest.mark.parametrize(
    "name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.mistakes) for name in scripts()]
)
def test_the_diagnosis_is_right(name: str) -> None:
    script = scripts()[name]
    ended = script.run()
    output = ended.stdout.decode(errors="replace")
    assert ended.returncode != 0, output
    if name not in SILENT:
        assert f"torchport explain {SAYS.get(name, script.cause)}\n" in output, output
    # Of a log that has what is said at the end, too.
    assert diagnose_text(output).data["row"] == script.cause, output


def test_there_are_enough() -> None:
    assert len(scripts()) >= 15
    assert len({script.cause for script in scripts().values()}) >= 15

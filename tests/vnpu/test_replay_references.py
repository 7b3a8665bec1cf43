"""References of operators that the CPU does not have: what the NPU computes is right by them, and what is not is seen."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from torchport.compare.replay import replay_recording
from torchport.record.operators.rebuilt import UnknownCallError

PROGRAM = Path(__file__).parent / "data" / "referenced_operators.py"


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recordings")
    command = [sys.executable, "-m", "torchport", "run", "--as-is", "-q", str(PROGRAM), str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return folder


def native(rows):
    return [row for row in rows if row.operator.startswith("npu::")]


OPERATORS = {
    "npu_fusion_attention": 14,
    "npu_fusion_attention_grad": 14,
    "npu_fusion_attention_v2": 5,
    "npu_fusion_attention_grad_v2": 5,
    "_lstm_npu": 2,
    "_lstm_npu_backward": 2,
    "npu_lstm": 5,
    "npu_lstm_backward": 5,
    "_gru_npu": 3,
    "_gru_npu_backward": 3,
    "npu_binary_cross_entropy_with_logits_backward": 3,
}


def test_what_an_npu_alone_has_is_judged_and_right(recordings):
    found = replay_recording(recordings / "right")
    rows = native(found.rows)
    counts = Counter(row.operator.removeprefix("npu::") for row in rows if row.kind == "judged")
    assert counts == OPERATORS
    assert [row for row in rows if row.kind != "judged"] == []
    assert [(row.call, row.operator, row.score) for row in found.wrong] == []
    assert max(row.score for row in rows) < 5
    assert found.share > 0.95


def test_each_of_them_that_is_off_by_a_thousandth_is_wrong(recordings):
    found = replay_recording(recordings / "wrong")
    rows = native(found.rows)
    assert len(rows) == sum(OPERATORS.values())
    assert [row.operator for row in rows if not row.wrong] == []
    # So is nothing that was computed from them.
    assert {row.operator for row in found.wrong} == {row.operator for row in rows}


def test_what_another_device_has_dropped_is_not_judged():
    """Which mask it was is seen in the result: near that of the virtual NPU's mask it is judged by it."""
    torch = pytest.importorskip("torch")
    from torchport.record.oracles import philox
    from torchport.record.oracles.attention import npu_fusion_attention, npu_fusion_attention_grad

    seed, keep = 2**40 + 7, 0.7
    query, key, value = (torch.randn(1, 2, 6, 8, dtype=torch.float64) for _ in range(3))
    plain = (query, key, value, 2, "BNSD", None, None, None, 0.3, keep)
    kept = torch.from_numpy(philox.draw_keep_mask(72, keep, seed, 5))
    given = npu_fusion_attention(torch, *plain, *[0] * 3, *[None] * 3, 0, True, False, "", None, kept)[0]
    for made, offset, judged in ((given, 5, True), (given * 1.01, 5, True), (given, 6, False)):
        found = npu_fusion_attention(torch, *plain, made=[made, None, None], results=[0, 0, 0, 0, seed, offset, 72])
        assert (found[0] is not None) == judged
        assert found[1] is not None, "the softmax does not hang on it"
        if judged:
            assert torch.allclose(found[0], given)
    assert npu_fusion_attention(torch, *plain)[0] is None  # in a case, which has nothing that was recorded
    grad = (query, key, value, given, 2, "BNSD", *[None] * 7, 0.3, keep, 2**31 - 1, 2**31 - 1, 0, seed, 6, 72)
    with pytest.raises(UnknownCallError, match="draws on the device"):
        npu_fusion_attention_grad(torch, *grad, made=[given, given, given])

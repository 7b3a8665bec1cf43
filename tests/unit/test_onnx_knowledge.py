"""What is known of ATC: each row has its source, and what is not known is said to be so."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from torchport.errors import TorchportError
from torchport.export import atc
from torchport.export.job import parse_input, with_dynamic
from torchport.knowledge import onnx
from torchport.vnpu.chips import load_chips

KNOWLEDGE = Path(onnx.__file__).parent


def test_opsets_by_cann() -> None:
    assert onnx.find_opsets("4.0") is None
    assert [(row.first, row.last) for row in map(onnx.find_opsets, ("5.0.4", "6.3.RC2", "8.1.RC1", None)) if row] == [
        (9, 13),
        (9, 13),
        (9, 18),
        (9, 18),
    ]
    rows = tomllib.loads((KNOWLEDGE / "onnx.toml").read_text(encoding="utf-8"))
    assert all(row["source"] for row in [*rows["opsets"], *rows["precision"].values()])


def test_operators_are_judged_by_opset() -> None:
    judged = atc.judge_operators(
        {"Conv": 1, "Constant": 2, "LayerNormalization": 1, "Gelu": 1, "com.x::Mine": 1}, 17, None
    )
    assert judged["opset_taken"] and list(judged["refused"]) == ["com.x::Mine"] and list(judged["unknown"]) == ["Gelu"]
    judged = atc.judge_operators({"Conv": 1, "LayerNormalization": 1}, 20, "8.5")
    assert judged["opset_taken"] is False and judged["refused"] == {}  # the opset is said, not each operator
    judged = atc.judge_operators({"Conv": 1, "LayerNormalization": 1}, 14, "8.5")
    assert list(judged["refused"]) == ["LayerNormalization"]
    assert (
        "taken in opsets 17 to 18, not in 14; export with opset 16 or lower" in judged["refused"]["LayerNormalization"]
    )
    assert atc.judge_operators({}, 11, "4.0")["opset_taken"] is None


@pytest.mark.parametrize("soc", load_chips())
def test_command_for_each_chip(soc: str) -> None:
    inputs = [parse_input("ids:1,128:int64:100", 0), parse_input("mask:1,128:int64", 1)]
    words = atc.build_atc_command(Path("a b.onnx"), Path("out.om"), inputs, soc, None)
    assert words[:4] == ["atc", "--framework=5", "--model=a b.onnx", "--output=out"]
    assert "--input_shape=ids:1,128;mask:1,128" in words and "--input_format=ND" in words
    assert words[-2] == f"--soc_version={soc}" and words[-1].startswith("--precision_mode=")


def test_a_chip_that_is_not_known_has_no_precision() -> None:
    words = atc.build_atc_command(Path("a.onnx"), Path("a"), [parse_input("1,3,8,8", 0)], "Ascend310B4", None)
    assert words[-1] == "--soc_version=Ascend310B4" and "--input_format=NCHW" in words
    with pytest.raises(TorchportError):
        atc.require_soc("310B4")


def test_atc_is_not_pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TorchportError, match="there is no atc on this machine"):
        atc.run_atc(["atc"])


def test_inputs() -> None:
    (one,) = with_dynamic([parse_input("ids:2,16:int64:100", 0)], ["ids:0,1"], False)
    assert (one.name, one.shape, one.dtype, one.below, one.dynamic) == ("ids", (2, 16), "int64", 100, (0, 1))
    assert [one.name_axis(0), one.name_axis(1)] == ["batch", "ids_1"]
    assert with_dynamic([one], None, True)[0].dynamic == ()
    for wrong in ("", "a", "0,3", "1,3:float9", "1,3:int64:0", "a b:1", "1:2:3:4"):
        with pytest.raises(TorchportError):
            parse_input(wrong, 0)

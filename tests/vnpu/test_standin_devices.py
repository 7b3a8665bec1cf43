"""The stand-ins that speak of the machine: pynvml and nvtx."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from torchport import standins


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    standins.install()
    yield
    standins.uninstall()


def test_pynvml_knows_the_devices() -> None:
    import pynvml

    pynvml.nvmlInit()
    try:
        assert pynvml.nvmlDeviceGetCount() == torch.npu.device_count()
        handle = pynvml.nvmlDeviceGetHandleByIndex(1)
        assert pynvml.nvmlDeviceGetIndex(handle) == 1
        assert pynvml.nvmlDeviceGetName(handle) == torch.npu.get_device_name(1)
        assert 0 <= pynvml.nvmlDeviceGetUtilizationRates(handle).gpu <= 100
        before = pynvml.nvmlDeviceGetMemoryInfo(handle)
        block = torch.ones(2**26, dtype=torch.uint8, device="npu:1")
        after = pynvml.nvmlDeviceGetMemoryInfo(handle)
        assert after.used - before.used >= block.numel()
        assert (after.total, after.total - after.used) == (before.total, after.free)
        assert torch.npu.current_device() == 0
    finally:
        pynvml.nvmlShutdown()


def test_pynvml_says_what_is_not_known() -> None:
    import pynvml

    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(pynvml.NVMLError, match="nvmlDeviceGetTemperature") as raised:
        pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
    assert raised.value.value == pynvml.NVML_ERROR_NOT_SUPPORTED
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetUtilizationRates(handle).memory  # noqa: B018
    with pytest.raises(pynvml.NVMLError_InvalidArgument, match="99"):
        pynvml.nvmlDeviceGetHandleByIndex(99)
    pynvml.nvmlShutdown()
    with pytest.raises(AttributeError):
        pynvml.nothing  # noqa: B018


def test_nvtx_marks_through_mstx(monkeypatch: pytest.MonkeyPatch) -> None:
    import nvtx

    calls: list[tuple[object, ...]] = []
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        monkeypatch.setattr(
            nvtx.mstx,
            name,
            staticmethod(lambda *args, _name=name, **kwargs: calls.append((_name, *args, *kwargs.values())) or 7),
        )

    @nvtx.annotate(color="red")
    def work() -> int:
        return 3

    with nvtx.annotate("outer", domain="mine"):
        assert work() == 3
    nvtx.mark("point")
    nvtx.end_range(nvtx.start_range("span"))
    assert calls == [
        ("range_push", "outer", "mine"),
        ("range_push", "work", "default"),
        ("range_pop", "default"),
        ("range_pop", "mine"),
        ("mark", "point", "default"),
        ("range_start", "span", "default"),
        ("range_end", 7, "default"),
    ]

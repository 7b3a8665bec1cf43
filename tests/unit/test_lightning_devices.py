"""Comparisons of a device that lightning names stay: transfer_to_npu leaves it the name cuda."""

from __future__ import annotations

import pytest

from torchport.convert import convert_source

KEPT = [
    "from lightning.fabric import Fabric\nfabric = Fabric(accelerator='cuda')\nif fabric.device.type == 'cuda':\n    go()\n",
    "import lightning as L\ndef f(fabric: L.Fabric):\n    return str(fabric.device).startswith('cuda')\n",
    "import pytorch_lightning as pl\nclass A(pl.LightningModule):\n    def f(self):\n        return self.device.type == 'cuda'\n",
    "import lightning as L\ndef f(trainer):\n    return trainer.strategy.root_device.type == 'cuda'\n",
    "import lightning as L\nfabric = L.Fabric()\ndevice = fabric.device\nok = device.type == 'cuda'\n",
]
CONVERTED = [
    "import lightning as L\nok = x.device.type == 'cuda'\n",
    "import lightning as L\nclass A:\n    def f(self):\n        return self.device.type == 'cuda'\n",
    "class Fabric: pass\nfabric = Fabric()\nok = fabric.device.type == 'cuda'\n",
]


@pytest.mark.parametrize("text", KEPT)
def test_the_device_that_lightning_names_stays_cuda(text: str) -> None:
    conversion = convert_source(text.encode(), "a.py")
    assert "cuda" in conversion.output.decode().replace('map["cuda"]', "").rpartition("accelerator")[2]
    assert "'npu'" not in conversion.output.decode()
    assert any("transfer_to_npu)" in finding.message for finding in conversion.findings)


@pytest.mark.parametrize("text", CONVERTED)
def test_the_device_of_a_tensor_is_the_npu(text: str) -> None:
    assert ".type == 'npu'" in convert_source(text.encode(), "a.py").output.decode()

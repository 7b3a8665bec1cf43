"""lightning: its Trainer on the CPU, and the parts that ask which accelerator there is.

Without torchport's redirection lightning knows no NPU; it has to stay as it is.
"""

import lightning
import torch


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        print("loss", f"{loss.item():.6f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


lightning.seed_everything(0)
data = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
trainer = lightning.Trainer(
    accelerator="cpu", max_steps=3, logger=False, enable_checkpointing=False, enable_progress_bar=False
)
trainer.fit(Net(), torch.utils.data.DataLoader(data, batch_size=4))
print("steps", trainer.global_step)
moved = lightning.fabric.utilities.apply_func.move_data_to_device([torch.ones(2)], torch.device("npu"))
print("device", moved[0].device.type)

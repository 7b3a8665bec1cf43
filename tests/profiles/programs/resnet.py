"""ResNet-18: torch_npu.profiler over three steps, level 1, text and database."""

import sys

import torch
import torch_npu
import torchvision

P = torch_npu.profiler
folder = sys.argv[1]
torch.manual_seed(0)
model = torchvision.models.resnet18(num_classes=10).npu()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
images, labels = torch.randn(2, 3, 32, 32).npu(), torch.randint(0, 10, (2,)).npu()
config = P._ExperimentalConfig(
    profiler_level=P.ProfilerLevel.Level1,
    aic_metrics=P.AiCMetrics.PipeUtilization,
    export_type=[P.ExportType.Text, P.ExportType.Db],
)
with P.profile(
    activities=[P.ProfilerActivity.CPU, P.ProfilerActivity.NPU],
    schedule=P.schedule(wait=0, warmup=1, active=2, repeat=1, skip_first=0),
    record_shapes=True,
    profile_memory=True,
    with_stack=True,
    experimental_config=config,
    on_trace_ready=P.tensorboard_trace_handler(folder),
) as profiler:
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        loss.item()
        profiler.step()

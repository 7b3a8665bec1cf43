"""What a training script costs on a chip: its own run in dry mode, the allocator's peak, the time model's step.

`predict_plan` starts the unmodified script (`runs`), in whose processes `session` notes steps, memory and what was read
of the device; `timeline` reads the event log of the virtual NPU, `memory` replays the allocator, `cost` adds up the
step.
"""

from torchport.predict.prediction import predict_plan
from torchport.predict.runs import Plan
from torchport.predict.timeline import Log, Task, read_timeline

__all__ = ["Log", "Plan", "Task", "predict_plan", "read_timeline"]

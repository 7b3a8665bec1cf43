"""A CUDA script that asks everything that scripts decide by, and prints the decisions as JSON.

Run as it is by the reference, and converted on the NPU. A decision is what an `if` makes of an answer: never the
name of a device, its memory, or a number that only describes it.
"""

import json
import sys

import torch

decisions = {}


def note(name, ask):
    try:
        decisions[name] = ask()
    except Exception as error:
        decisions[name] = f"{type(error).__name__}"


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
accelerator = torch.accelerator.current_accelerator()


def enter(context):
    with context:
        return torch.cuda.current_device()


def default_in_context():
    with torch.device(device):
        inside = torch.get_default_device()
    return inside.type == device.type, inside.index


def default_when_set():
    torch.set_default_device(device)
    try:
        default = torch.get_default_device()
        return default.type == device.type, default.index
    finally:
        torch.set_default_device(None)


def follows_context():
    with torch.device(device):
        return torch.ones(2).sum().item()


def loader(workers):
    data = torch.utils.data.TensorDataset(torch.ones(4, 2))
    return torch.utils.data.DataLoader(data, batch_size=2, pin_memory=True, num_workers=workers)


def in_autocast(ask):
    with torch.autocast(device.type, dtype=torch.bfloat16):
        return ask()


def enter(context):
    with context:
        return torch.cuda.current_device()


def default_in_context():
    with torch.device(device):
        inside = torch.get_default_device()
    return inside.type == device.type, inside.index


def default_when_set():
    torch.set_default_device(device)
    try:
        default = torch.get_default_device()
        return default.type == device.type, default.index
    finally:
        torch.set_default_device(None)


def follows_context():
    with torch.device(device):
        return torch.ones(2).sum().item()


def loader(workers):
    data = torch.utils.data.TensorDataset(torch.ones(4, 2))
    return torch.utils.data.DataLoader(data, batch_size=2, pin_memory=True, num_workers=workers)


def in_autocast(ask):
    with torch.autocast(device.type, dtype=torch.bfloat16):
        return ask()


note("cuda is available", lambda: torch.cuda.is_available())
note("cuda devices", lambda: torch.cuda.device_count())
note("cuda, more than one", lambda: torch.cuda.device_count() > 1)
note("cuda current device", lambda: torch.cuda.current_device())
note("cuda is initialized after use", lambda: (torch.ones(1, device=device), torch.cuda.is_initialized())[1])
note("cuda bf16", lambda: torch.cuda.is_bf16_supported())
note("cuda memory is a number", lambda: isinstance(torch.cuda.memory_allocated(), int))
note("cuda peak is a number", lambda: isinstance(torch.cuda.max_memory_allocated(), int))
note("cuda free memory", lambda: torch.cuda.mem_get_info()[0] > 2**20)
note("cuda total memory", lambda: torch.cuda.get_device_properties(0).total_memory > 2**20)
note("cuda name", lambda: isinstance(torch.cuda.get_device_name(0), str))
note("cuda set device", lambda: torch.cuda.set_device(0))
note("cuda set device by name", lambda: torch.cuda.set_device("cuda:0"))
note("cuda synchronize", lambda: torch.cuda.synchronize())
note("cuda empty cache", lambda: torch.cuda.empty_cache())
note("cuda stream done", lambda: torch.cuda.current_stream().synchronize())
note("cuda rng states", lambda: len(torch.cuda.get_rng_state_all()))
note("device is cpu", lambda: device.type == "cpu")
note("device has an index", lambda: device.index is None)
note("with cuda.device", lambda: enter(torch.cuda.device(0)))
note("accelerator is available", lambda: torch.accelerator.is_available())
note("accelerator devices", lambda: torch.accelerator.device_count())
note("accelerator is none", lambda: accelerator is None)
note("accelerator, checked", lambda: torch.accelerator.current_accelerator(True) is None)
note("accelerator type is the device's", lambda: accelerator.type == device.type)
note("accelerator is cpu", lambda: accelerator.type == "cpu")
note("accelerator index", lambda: accelerator.index)
note("accelerator current index", lambda: torch.accelerator.current_device_index())
note("accelerator set index", lambda: torch.accelerator.set_device_index(0))
note("accelerator synchronize", lambda: torch.accelerator.synchronize())
note("accelerator empty cache", lambda: torch.accelerator.empty_cache())
note("accelerator memory", lambda: isinstance(torch.accelerator.memory_allocated(), int))
note("accelerator peak", lambda: isinstance(torch.accelerator.max_memory_reserved(), int))
note("accelerator reset peak", lambda: torch.accelerator.reset_peak_memory_stats())
note("accelerator free memory", lambda: torch.accelerator.get_memory_info()[0] > 2**20)
note("accelerator stream", lambda: torch.accelerator.current_stream().synchronize())
note("stream is a stream", lambda: isinstance(torch.Stream(), torch.Stream))
note("event is an event", lambda: isinstance(torch.Event(), torch.Event))
note("capability", lambda: torch.accelerator.get_device_capability() is None)
note("default device", lambda: torch.get_default_device().type)
note("default device in a context", lambda: default_in_context())
note("default device when set", lambda: default_when_set())
note("a tensor follows the context", lambda: follows_context())
note("pinned", lambda: torch.ones(2).pin_memory().is_pinned())
note("not pinned", lambda: torch.ones(2).is_pinned())
note("loader pins", lambda: [batch[0].is_pinned() for batch in loader(0)])
note("loader with workers pins", lambda: [batch[0].is_pinned() for batch in loader(1)])
note("autocast is available", lambda: torch.amp.is_autocast_available(device.type))
note("autocast is off", lambda: torch.is_autocast_enabled(device.type))
note("autocast dtype", lambda: str(torch.get_autocast_dtype(device.type)))
note("autocast is on", lambda: in_autocast(lambda: torch.is_autocast_enabled(device.type)))
note("autocast dtype inside", lambda: in_autocast(lambda: str(torch.get_autocast_dtype(device.type))))
note("scaler is on", lambda: torch.amp.GradScaler(device.type).is_enabled())
note("cuda scaler is on", lambda: torch.cuda.amp.GradScaler().is_enabled())
note("backends cudnn", lambda: torch.backends.cudnn.is_available())
note("backends cuda", lambda: torch.backends.cuda.is_built())
note("version cuda", lambda: torch.version.cuda is None)
note("cuda capability", lambda: torch.cuda.get_device_capability()[0] >= 8)
note("cuda capability of 0", lambda: torch.cuda.get_device_capability(0) >= (8, 0))
note("cuda major", lambda: torch.cuda.get_device_properties(0).major >= 8)
note("tensor is cuda", lambda: torch.ones(1, device=device).is_cuda)
note("tensor is cpu", lambda: torch.ones(1, device=device).device.type == "cpu")
note("tensor on device", lambda: torch.ones(1, device=device).device == device)
note("tensor type on device", lambda: torch.ones(1, device=device).device.type == device.type)
note("tf32", lambda: torch.cuda.is_tf32_supported())
note("nccl", lambda: torch.distributed.is_nccl_available())
note("capturing", lambda: torch.cuda.is_current_stream_capturing())
note("nccl or the like", lambda: torch.distributed.is_available())




json.dump(decisions, sys.stdout)

"""TP123: code for every device that a project runs on the CPU alone, beside a CUDA kernel."""

from __future__ import annotations

from collections.abc import Iterator

from torchport.findings import Edit, Finding, Safety, Severity
from torchport.rules import CUDA, Rule, Style
from torchport.rules.kernel_guards import find_cpu_ways
from torchport.source.module import Module


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every question for the CPU that would lead an NPU to the kernel."""
    if b"cpu" not in module.text.data:
        return
    for question, opens_kernel in find_cpu_ways(module):
        word = question.comparators[0]
        start, end = module.text.span(question.left)[1], module.text.span(word)[1]
        quote = module.text.decode_range(*module.text.span(word))[-1]
        operator = "==" if opens_kernel else "!="
        yield RULE.make_finding(
            module,
            question,
            "an NPU takes the code for every device here: the other way is a CUDA kernel",
            [Edit(start, end, f" {operator} {quote}cuda{quote}".encode(module.text.encoding))],
        )


RULE = Rule(
    code="TP123",
    title="fallbacks for the CPU alone",
    safety=Safety.SAFE,
    severity=Severity.INFO,
    why="Where only the CPU is sent to the code that plain torch computes, a tensor on the NPU is handed to a CUDA "
    "kernel, which does not exist there.",
    reference="https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch.device",
    words=CUDA,
    check=check_module,
    rewrites=(
        (
            "import my_cuda\ndef f(x):\n    if x.device.type == 'cpu':\n        return x.relu()\n"
            "    return my_cuda.relu(x)\n",
            "import my_cuda\ndef f(x):\n    if x.device.type != 'cuda':\n        return x.relu()\n"
            "    return my_cuda.relu(x)\n",
        ),
        (
            "import my_cuda\ndef f(x, fast):\n    return my_cuda.relu(x) if fast and x.device.type != 'cpu' else x\n",
            "import my_cuda\ndef f(x, fast):\n    return my_cuda.relu(x) if fast and x.device.type == 'cuda' else x\n",
        ),
    ),
    reports=(),
    ignores=(
        "import my_cuda\ndef f(x):\n    if x.device.type == 'cpu':\n        raise TypeError\n"
        "    return my_cuda.relu(x)\n",
        "import my_cuda\ndef f(x):\n    if x.device.type == 'cpu':\n        return my_cuda.on_cpu(x)\n"
        "    return my_cuda.relu(x)\n",
        "import my_cuda\ndef f(x):\n    return x.float() if x.device.type == 'cpu' else x\n",
    ),
)

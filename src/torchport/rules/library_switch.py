"""TP405: switches of libraries that work with CUDA alone: quantisation, xformers, TF32, GPUs of ray."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchport.findings import Finding, Safety, Severity
from torchport.rules import Rule, Style
from torchport.source.module import Module

BITSANDBYTES = "bitsandbytes has no NPU kernels: load the weights in bf16, or use a quantised model that needs none."
XFORMERS = "Leave it out: diffusers and transformers take scaled_dot_product_attention, which the NPU has."
TF32 = "Leave it out: transformers raises a ValueError without a CUDA device. The NPU has HF32."
RAY = 'ray counts NPUs as a resource: resources={"NPU": 1} in place of num_gpus=1.'
OPTIMIZER = "It is bitsandbytes': take adamw_torch, or adamw_torch_npu_fused."
# Keywords that mean this with True, whatever takes them: the names are nobody else's.
_TRUE = {
    "load_in_4bit": ("weights in 4 bits are bitsandbytes'", BITSANDBYTES),
    "load_in_8bit": ("weights in 8 bits are bitsandbytes'", BITSANDBYTES),
    "tf32": ("TF32 is NVIDIA's", TF32),
    "enable_xformers": ("xformers has no NPU kernels", XFORMERS),
    "enable_xformers_memory_efficient_attention": ("xformers has no NPU kernels", XFORMERS),
}
_METHODS = {
    "enable_xformers_memory_efficient_attention": ("xformers has no NPU kernels", XFORMERS),
    "set_use_memory_efficient_attention_xformers": ("xformers has no NPU kernels", XFORMERS),
}
OF_BITSANDBYTES = re.compile(r"(?:paged_)?(?:adamw|lion|ademamix|rmsprop)_(?:bnb_)?(?:8|32)bit(?:_bnb)?|rmsprop_bnb")
_OF_RAY = {"num_gpus": "ray is asked for GPUs", "use_gpu": "ray's trainer is asked for GPUs"}
_IDS_OF_RAY = "ray.get_gpu_ids"
RAY_IDS = 'On NPUs the list is empty: ray.get_runtime_context().get_accelerator_ids()["NPU"].'
_RESOURCES = frozenset({"GPU", "gpu"})
_TAKES_RESOURCES = frozenset({"resources_per_worker", "resources_per_trial"})


def check_module(module: Module, style: Style) -> Iterator[Finding]:
    """A finding for every such switch that is on."""
    has_ray = any(binding.target.partition(".")[0] == "ray" for binding in module.names.iter_imports())
    for call in module.iter_nodes(ast.Call):
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if method in _METHODS:
            message, hint = _METHODS[method]
            yield RULE.make_finding(module, call, message, hint=hint)
        if has_ray and module.resolve_name(call.func) == _IDS_OF_RAY:
            yield RULE.make_finding(module, call, "ray is asked for the numbers of GPUs", hint=RAY_IDS)
        for keyword in call.keywords:
            yield from _keyword(module, call, keyword, has_ray=has_ray)
    for pairs in module.iter_nodes(ast.Dict):
        yield from _in_dict(module, pairs)
    for item in module.iter_nodes(ast.Subscript) if has_ray else ():
        match item:
            case ast.Subscript(
                value=ast.Call(func=ast.Attribute(attr="get_accelerator_ids")), slice=ast.Constant(value="GPU") as word
            ):
                edit = module.string_edit(word, "GPU", "NPU") if style is Style.NPU else None
                yield RULE.make_finding(
                    module,
                    item,
                    "ray gives an NPU's numbers under NPU",
                    [edit],
                    safety=Safety.SAFE,
                    severity=Severity.INFO,
                )


def _keyword(module: Module, call: ast.Call, keyword: ast.keyword, *, has_ray: bool) -> Iterator[Finding]:
    word, value = keyword.arg or "", keyword.value
    constant = value.value if isinstance(value, ast.Constant) else None
    root = (module.resolve_name(call.func) or "").partition(".")[0]
    if (
        word in _TRUE
        and (constant is True or not isinstance(value, ast.Constant))
        and root not in ("torch", "builtins")
    ):
        message, hint = _TRUE[word]
        yield _switched(module, value, message, hint, on=constant is True)
    elif word == "optim" and isinstance(constant, str) and OF_BITSANDBYTES.fullmatch(constant):
        yield RULE.make_finding(module, value, f"the optimizer {constant} is bitsandbytes'", hint=OPTIMIZER)
    elif has_ray and word in _OF_RAY and constant not in (0, False) and _is_rays(module, call, root):
        yield RULE.make_finding(module, value, _OF_RAY[word], hint=RAY)
    elif has_ray and word in _TAKES_RESOURCES and isinstance(value, ast.Dict) and _asks_for_gpus(value):
        yield RULE.make_finding(module, value, "ray is asked for GPUs", hint=RAY)


def _switched(module: Module, value: ast.expr, message: str, hint: str, *, on: bool) -> Finding:
    """The finding on a switch that is `on`, or that is decided when the program runs. Nothing loads weights of
    bitsandbytes on an NPU."""
    if not on:
        return RULE.make_finding(module, value, message, hint=hint, severity=Severity.INFO)
    if hint is BITSANDBYTES:
        evidence = {"library": "bitsandbytes"}
        return RULE.make_finding(module, value, message, hint=hint, severity=Severity.ERROR, evidence=evidence)
    return RULE.make_finding(module, value, message, hint=hint)


def _is_rays(module: Module, call: ast.Call, root: str) -> bool:
    """Whether ray takes the argument: `ray.remote(...)`, `@ray.remote`, `f.options(...)`, an actor's `options`."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return root == "ray" or method in ("options", "remote")


def _asks_for_gpus(pairs: ast.Dict) -> bool:
    return any(isinstance(key, ast.Constant) and key.value in _RESOURCES for key in pairs.keys)


def _in_dict(module: Module, pairs: ast.Dict) -> Iterator[Finding]:
    """Arguments that are kept in a dict: {"load_in_4bit": True}."""
    for key, value in zip(pairs.keys, pairs.values, strict=True):
        word = key.value if isinstance(key, ast.Constant) else None
        constant = value.value if isinstance(value, ast.Constant) else None
        if isinstance(word, str) and word in _TRUE and constant is True:
            yield _switched(module, value, *_TRUE[word], on=True)
        elif word == "optim" and isinstance(constant, str) and OF_BITSANDBYTES.fullmatch(constant):
            yield RULE.make_finding(module, value, f"the optimizer {constant} is bitsandbytes'", hint=OPTIMIZER)


RULE = Rule(
    code="TP405",
    title="switches of libraries that are for CUDA",
    safety=Safety.REPORT,
    severity=Severity.WARNING,
    why="An argument of a library that knows the NPU may ask for kernels that there are for CUDA alone, or for GPUs by "
    "number. The run ends at the call, or waits for a resource that no node has.",
    reference="https://github.com/Ascend/pytorch",
    words=(
        b"load_in_4bit",
        b"load_in_8bit",
        b"tf32",
        b"xformers",
        b"num_gpus",
        b"use_gpu",
        b"resources_per_",
        b"8bit",
        b"32bit",
        b"get_gpu_ids",
        b"get_accelerator_ids",
    ),
    check=check_module,
    rewrites=(),
    reports=(
        "from transformers import BitsAndBytesConfig\nq = BitsAndBytesConfig(load_in_4bit=True)\n",
        "pipe.enable_xformers_memory_efficient_attention()\n",
        "from transformers import TrainingArguments\na = TrainingArguments('out', tf32=True)\n",
        "from transformers import TrainingArguments\na = TrainingArguments('out', optim='paged_adamw_8bit')\n",
        "import ray\n@ray.remote(num_gpus=1)\ndef f():\n    pass\n",
        "import ray\nt = f.options(num_gpus=2).remote()\n",
        "from ray.train import ScalingConfig\ns = ScalingConfig(num_workers=2, use_gpu=True)\n",
        "import ray\ns = C(resources_per_worker={'GPU': 1})\n",
        "model_args = {'load_in_8bit': True}\n",
        "import ray\nn = ray.get_gpu_ids()[0]\n",
    ),
    ignores=(
        "from transformers import BitsAndBytesConfig\nq = BitsAndBytesConfig(load_in_4bit=False)\n",
        "import ray\n@ray.remote(num_gpus=0)\ndef f():\n    pass\n",
        "launch(main, num_gpus=2, use_gpu=True)\n",
        "pipe.disable_xformers_memory_efficient_attention()\n",
        "a = TrainingArguments('out', tf32=False, optim='adamw_torch')\n",
    ),
)

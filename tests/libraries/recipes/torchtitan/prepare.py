"""Lay out torchtitan as a clone has it in the current folder: its package, a launcher, a tokenizer of letters, texts.

torchtitan imports triton, which torch's CUDA build brings and the CPU build does not, for one kernel of mixtures of
experts. The triton of PyPI is 1 GB, and with it on the path torch.compile of the other scripts changes its backend. So the
clone's module of that kernel has a function that refuses; no dense model calls it.
"""

import importlib.util
import json
import random
import shutil
import string
from pathlib import Path

KERNELS = """def generate_permute_indices(*arguments, **options):
    raise NotImplementedError("this is a triton kernel, for mixtures of experts")
"""
# As torchtitan's own launcher starts it.
LAUNCHER = """torchrun --nproc_per_node="$NGPU" --rdzv_backend c10d --rdzv_endpoint=localhost:0 --role rank --tee 3 \\
    -m torchtitan.train --job.config_file debug_model.toml "$@"
"""
CONFIGURATION = """
[metrics]
log_freq = 1
[model]
name = "llama3"
flavor = "debugmodel"
hf_assets_path = "./tests/assets/tokenizer"
[lr_scheduler]
warmup_steps = 2
[training]
dataset = "c4_test"
[activation_checkpoint]
mode = "selective"
selective_ac_option = "2"
"""
START, END = "<|begin_of_text|>", "<|end_of_text|>"

place = Path(importlib.util.find_spec("torchtitan").submodule_search_locations[0])
shutil.copytree(place, "torchtitan", ignore=shutil.ignore_patterns("__pycache__"))
Path("pyproject.toml").write_text('[project]\nname = "torchtitan"\n')
Path("run_train.sh").write_text(LAUNCHER)
Path("debug_model.toml").write_text(CONFIGURATION)
Path("torchtitan", "models", "moe", "kernels.py").write_text(KERNELS)

assets = Path("tests", "assets")
tokenizer = assets / "tokenizer"
tokenizer.mkdir(parents=True)
letters = [*string.ascii_lowercase, "\u0120"]  # the last one is a space, as byte-level BPE writes it
vocabulary = {token: number for number, token in enumerate([*letters, START, END])}
added = [
    {"id": vocabulary[token], "content": token, "special": True}
    | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    for token in (START, END)
]
bytes_alone = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
definition = {
    "version": "1.0",
    "added_tokens": added,
    "pre_tokenizer": bytes_alone,
    "decoder": bytes_alone,
    "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
}
(tokenizer / "tokenizer.json").write_text(json.dumps(definition))
(tokenizer / "tokenizer_config.json").write_text(json.dumps({"bos_token": START, "eos_token": END}))

(assets / "c4_test").mkdir()
numbers = random.Random(0)
words = ["".join(numbers.choices(string.ascii_lowercase, k=numbers.randint(2, 8))) for _ in range(200)]
texts = [" ".join(numbers.choices(words, k=60)) for _ in range(100)]
(assets / "c4_test" / "data.json").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))

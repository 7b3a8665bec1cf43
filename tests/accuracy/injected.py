"""34 faults that other people put below the dispatcher, and the twins without them: is the wrong operator named first?

`python tests/accuracy/injected.py [NAME ...]` records each program of `injected/` on the CPU and, with one operator of
the device made wrong (FAULT, see `injected/fl.py`), on the virtual NPU, compares the two with `torchport compare`, and
stores in `injected.json` its word, the class and the operator that it named. PROGRAM.healthy is the twin, of which
nothing may be named. Exit status 1 where one is missed, or accused.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROGRAMS = HERE / "injected"
STORED = HERE / "injected.json"
TORCHPORT = [sys.executable, "-m", "torchport"]
# By fault the operators of which one has to be named, or the class of a fault that is of no operator.
WANTED: dict[str, tuple[str, ...]] = {
    "cnn.bn_eps": ("native_batch_norm",),
    "cnn.from7": ("hardswish",),
    "cnn.relu0": ("threshold_backward",),
    "cnn.dw_bwd": ("avg_pool2d_backward",),
    "cnn.race": ("overwritten memory",),
    "cnn.momentum": ("_foreach_mul_",),
    "vit.sdpa_scale": ("scaled_dot_product_attention",),
    "vit.ln_bwd_fp16sum": ("native_layer_norm_backward",),
    "vit.lerp": ("_foreach_lerp_",),
    "gpt.emb_off": ("embedding_dense_backward",),
    "gpt.cat_swap": ("cat",),
    "gpt.rsqrt": ("rsqrt",),
    "gpt.ignore_mean": ("nll_loss_forward",),
    "gpt.softmax_fp16sum": ("softmax", "_softmax"),
    "gpt.silu_bwd_from5": ("silu_backward",),
    "lstm.stale": ("lstm",),
    "gan.bce_bwd": ("binary_cross_entropy_with_logits",),
    "unet.sin_fp16": ("sin",),
    "unet.gn_bessel_shape": ("native_group_norm",),
    "unet.up_row": ("upsample_nearest2d",),
    "gnn.scatter_race": ("scatter_add",),
    "gnn.idx_int8": ("index_select",),
    "moe.mask_reuse": ("native_dropout",),
    "moe.topk": ("topk",),
    "moe.cumsum": ("cumsum",),
    "amp.unscale": ("_amp_foreach_non_finite_check_and_unscale_",),
    "func.where": ("where",),
    "func.clamp": ("clamp",),
    "func.noise": ("softplus",),
    "func.lse_fp16": ("logsumexp",),
    "func.mm_tail": ("addmm", "linear"),
    "ddp.rank1_silu": ("silu",),
    "ddp.avg": ("wrong collective",),
    "bf16.trunc": ("_to_copy",),
}
SCRIPTS = {"bf16": ["p_amp.py"], "ddp": ["--nproc", "2", "p_ddp.py"]}
UNLOGGED = {"ddp.avg"}  # faults that do not note in FAULT_LOG that they have happened


def call(words: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    """Run torchport in the folder of the programs."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    return subprocess.run(
        [*TORCHPORT, *words], cwd=PROGRAMS, env=environment, capture_output=True, text=True, check=False
    )


def record(folder: Path, device: str, script: list[str], **more: str) -> Path:
    """Record a program. Raises RuntimeError if it fails."""
    words = ["run", "-q", "--record", str(folder), "--force", "--on", device, "--level", "tensor", *script]
    run = call(words, **more)
    if run.returncode:
        raise RuntimeError(f"{script} on {device}: {run.stderr[-600:]}")
    return folder


def judge(name: str, base: Path, folder: Path, script: list[str], amp: dict[str, str]) -> dict[str, Any]:
    """The word on one fault or twin, and whether it is the right one."""
    hits = folder / "hits"
    hits.write_text("")
    fault = {} if name.endswith(".healthy") else {"FAULT": name, "FAULT_LOG": str(hits)}
    port = record(folder / "npu", "npu", script, **amp, **fault)
    compared = call(["compare", str(base), str(port), "--json"])
    data = json.loads(compared.stdout)["data"]
    judged = data.get("culprit") or {}
    first = judged.get("first") or {}
    operator = (first.get("operator") or "").rpartition("::")[2]
    kind = judged.get("class") or ""
    happened = bool(hits.read_text()) or name in UNLOGGED
    if fault:
        right = happened and (operator in WANTED[name] or kind in WANTED[name])
    else:
        right = compared.returncode == 0 and not operator and not kind
    return {"word": data["verdict"], "class": kind, "operator": operator, "happened": happened, "right": right}


def main() -> int:
    """Judge the faults and twins that are named, or all."""
    twins = [f"{program}.healthy" for program in dict.fromkeys(name.partition(".")[0] for name in WANTED)]
    names = sys.argv[1:] or [*WANTED, *twins]
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        bases: dict[str, Path] = {}
        for name in names:
            program = name.partition(".")[0]
            script = SCRIPTS.get(program, [f"p_{program}.py"])
            amp = {"AMP": "bf16" if program == "bf16" else "fp16"}
            if program not in bases:
                bases[program] = record(Path(temporary, program), "cpu", script, **amp)
            stored[name] = judge(name, bases[program], Path(temporary), script, amp)
            print(name, json.dumps(stored[name]), flush=True)
            STORED.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    wrong = [name for name in names if not stored[name]["right"]]
    print(f"{len(names) - len(wrong)} of {len(names)}" + (f", missed {', '.join(wrong)}" if wrong else ""))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

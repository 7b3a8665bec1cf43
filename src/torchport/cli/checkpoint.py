"""Look into a checkpoint without running it, compare two, and take off what wrappers put in front of the names.

examples:
  torchport checkpoint show model.pth.tar                  what is in it: parts, prefixes, devices, parameters
  torchport checkpoint show model.pth --names              and each tensor
  torchport checkpoint diff epoch10.pth epoch20.pth        which names, shapes and values are not the same
  torchport checkpoint strip ddp.pth -o model.safetensors  the weights alone, without `module.` and its like

Reads what torch.save leaves (state_dict or a dictionary around it), .safetensors, shards with an index, and folders of
torch.distributed.checkpoint, saved on npu, cuda or cpu. Needs no torch. Nothing in a file is executed: a pickled module
is refused, with the command that converts it in a process of yours. Exit code 1: `diff` found differences.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchport.checkpoints import comparing, guarded, names, writing
from torchport.checkpoints.contents import Contents, Stored
from torchport.checkpoints.waiting import Waiting
from torchport.errors import TorchportError
from torchport.report.wording import escape_unprintable, format_count

COUNT = {"show": 1, "diff": 2, "strip": 1}
SHOWN = 20  # rows, unless all are asked for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `torchport checkpoint`."""
    parser.add_argument("action", choices=list(COUNT), help="what to do; see above")
    parser.add_argument("checkpoints", nargs="+", type=Path, metavar="CKPT", help="file or folder; diff takes two")
    parser.add_argument("--part", help="which part holds the weights, where that is not clear (e.g. ema)")
    parser.add_argument(
        "--prefix",
        help='strip exactly this from every name; "" strips nothing (default: what wrappers are known to put)',
    )
    parser.add_argument("--names", action="store_true", help="list every tensor (show) or difference (diff)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="for strip: a .safetensors file")
    parser.add_argument("--force", action="store_true", help="replace FILE where it exists")


def run_command(arguments: argparse.Namespace) -> int:
    """Do what `arguments.action` names."""
    given, action = arguments.checkpoints, arguments.action
    if len(given) != COUNT[action]:
        raise TorchportError(f"{action} takes {format_count(COUNT[action], 'checkpoint')}, not {len(given)}")
    if (arguments.output is not None) != (action == "strip"):
        raise TorchportError("-o FILE goes with strip, and strip needs it")
    waiting = Waiting(sys.stderr, arguments.quiet)
    try:
        return {"show": _show, "diff": _diff, "strip": _strip}[action](arguments, waiting)
    finally:
        waiting.clear_line()


def _show(arguments: argparse.Namespace, waiting: Waiting) -> int:
    contents = guarded.read_in_subprocess(arguments.checkpoints[0])
    parts = [_part(way, tensors) for way, tensors in contents.parts.items()]
    try:
        chosen, refused = names.find_weights(contents, arguments.part)[0], None
    except TorchportError as error:
        chosen, refused = None, error
    if arguments.json:
        data = {
            "path": str(contents.path),
            "format": contents.format,
            "weights": chosen,
            "parts": parts,
            "values": contents.values,
            "objects": contents.objects,
            "refused": None if refused is None else {"message": refused.message, "hint": refused.hint},
        }
        print(json.dumps(data, indent=1))
        return 0
    print(f"{escape_unprintable(str(contents.path))}: {contents.format}")
    for row in _together(parts):
        prefix = f", prefix {' '.join(row['prefixes'])}" if row["prefixes"] else ""
        devices = f", saved on {', '.join(row['devices'])}" if row["devices"] else ""
        dtypes = ", ".join(f"{number} {dtype}" for dtype, number in row["dtypes"].items())
        mark = "  <- the weights" if row["part"] == chosen else ""
        print(
            escape_unprintable(
                f"  {row['part'] or '(top)'}: {format_count(row['tensors'], 'tensor')}, {row['elements']:,} elements, "
                f"{row['bytes'] / 2**20:.1f} MiB ({dtypes}){devices}{prefix}{mark}"
            )
        )
        for name, (dtype, shape) in row["names"].items() if arguments.names else ():
            print(escape_unprintable(f"    {name}  {dtype}{shape}"))
    for way, value in list(contents.values.items())[: None if arguments.names else SHOWN]:
        print(escape_unprintable(f"  {way or '(top)'} = {value}"))
    for way, name in list(contents.objects.items())[: None if arguments.names else SHOWN]:
        print(escape_unprintable(f"  {way or '(top)'}: an object of the class {name}, not made"))
    if refused is not None and not arguments.quiet:
        print(escape_unprintable(f"No weights: {refused.message}"), f"  {refused.hint}", sep="\n", file=sys.stderr)
    return 0


def _part(way: str, tensors: Mapping[str, Stored]) -> dict[str, Any]:
    return {
        "part": way,
        "tensors": len(tensors),
        "elements": sum(stored.count for stored in tensors.values()),
        "bytes": sum(stored.nbytes for stored in tensors.values()),
        "dtypes": dict(Counter(stored.dtype for stored in tensors.values())),
        "devices": sorted({stored.device for stored in tensors.values()} - {""}),
        "prefixes": list(names.strip_prefixes(tensors).removed),
        "names": {name: [stored.dtype, list(stored.shape)] for name, stored in tensors.items()},
    }


def _together(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Parts that differ in numbers alone as one: an optimizer has one for each parameter."""
    found: dict[str, dict[str, Any]] = {}
    for part in parts:
        way = re.sub(r"(?<=\.)\d+(?=\.|$)", "*", part["part"])
        if way not in found:
            found[way] = part | {"part": way, "names": dict(part["names"])}
            continue
        row = found[way]
        for what in ("tensors", "elements", "bytes"):
            row[what] += part[what]
        row["dtypes"] = dict(Counter(row["dtypes"]) + Counter(part["dtypes"]))
        row["devices"] = sorted({*row["devices"], *part["devices"]})
        row["names"].update((f"{part['part']}.{name}", said) for name, said in part["names"].items())
    return list(found.values())


def _diff(arguments: argparse.Namespace, waiting: Waiting) -> int:
    (one, _), (other, _) = (_weights(arguments, guarded.read_in_subprocess(path)) for path in arguments.checkpoints)
    rows = comparing.list_differences(one, other, waiting)
    waiting.clear_line()
    if arguments.json:
        data = [{"name": row.name, "what": row.what, "difference": row.difference} for row in rows]
        print(json.dumps({"tensors": [len(one), len(other)], "differences": data}, indent=1))
        return 1 if rows else 0
    for row in rows[: None if arguments.names else SHOWN]:
        far = "" if row.difference is None else f", {row.difference:.1e} of their norm apart"
        print(escape_unprintable(f"{row.name}: {row.what}{far}"))
    if len(rows) > SHOWN and not arguments.names:
        print(f"... and {len(rows) - SHOWN} more (--names)")
    same = len(one.keys() & other.keys()) - sum("only in" not in row.what for row in rows)
    if not arguments.quiet:
        print(f"{format_count(same, 'tensor')} equal, {format_count(len(rows), 'difference')}", file=sys.stderr)
    return 1 if rows else 0


def _strip(arguments: argparse.Namespace, waiting: Waiting) -> int:
    target = arguments.output
    if target.suffix != writing.ENDING:
        raise TorchportError(
            f"{target} does not end in {writing.ENDING}",
            hint="strip writes .safetensors, which executes nothing when it is loaded (safetensors.torch.load_file).",
        )
    writing.require_target(target, arguments.force)
    tensors, removed = _weights(arguments, guarded.read_in_subprocess(arguments.checkpoints[0]))
    writing.write_safetensors(target, tensors, waiting)
    waiting.clear_line()
    if arguments.json:
        print(json.dumps({"file": str(target), "tensors": len(tensors), "removed": list(removed)}))
    elif not arguments.quiet:
        said = f"without {' '.join(removed)}" if removed else "no prefix was found"
        print(f"{escape_unprintable(str(target))}: {format_count(len(tensors), 'tensor')}, {said}")
    return 0


def _weights(arguments: argparse.Namespace, contents: Contents) -> tuple[dict[str, Stored], Sequence[str]]:
    """The weights by the names that are left without prefixes, and the prefixes."""
    part = names.find_weights(contents, arguments.part)[1]
    stripped = names.strip_prefixes(part, arguments.prefix)
    return {name: part[was] for name, was in stripped.names.items()}, stripped.removed

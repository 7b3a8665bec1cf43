"""Explain a finding's code, a CUDA API or an environment variable.

examples:
  torchport explain TP120
  torchport explain torch.cuda.CUDAGraph
  torchport explain NCCL_DEBUG
  torchport explain flash_attn
  torchport explain                        list all codes
"""

from __future__ import annotations

import argparse
import difflib
import json
from typing import Any

from torchport.errors import TorchportError
from torchport.knowledge.api import Status, apis, find
from torchport.knowledge.environment import variables
from torchport.knowledge.libraries import libraries
from torchport.rules.catalogue import Entry, catalogue


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("word", nargs="?", metavar="CODE|API|VARIABLE|PACKAGE", help="what to explain")


def run(arguments: argparse.Namespace) -> int:
    if arguments.word is None:
        rows = {entry.code: entry.title for entry in catalogue().values()}
        text = "".join(f"{code}  {title}\n" for code, title in rows.items())
        print(json.dumps(rows) if arguments.json else text, end="\n" if arguments.json else "")
        return 0
    facts = explain(arguments.word)
    print(json.dumps(facts, indent=1) if arguments.json else facts["text"])
    return 0


def explain(word: str) -> dict[str, Any]:
    """What is known about `word`, with a "text" for people. Raises TorchportError where nothing is."""
    if word.upper() in catalogue():
        return _rule(catalogue()[word.upper()])
    if (found := find(word)) is not None:
        row = found[0]
        target = "nothing" if row.status is Status.MISSING else word if row.status is Status.KEEP else row.npu
        lines = [f"{row.name}: on the NPU {target} ({row.status.value})"]
        lines += [f"  {row.note[:1].upper()}{row.note[1:]}."] if row.note else []
        if row.status in (Status.SAME, Status.REVIEW):
            lines.append(f"  in --style agnostic: {row.agnostic}")
        return {
            "api": row.name,
            "npu": row.npu,
            "agnostic": row.agnostic,
            "status": row.status,
            "text": "\n".join(lines),
        }
    if (variable := variables().get(word)) is not None:
        text = f"{word}: on the NPU {variable.npu or 'nothing'}" + (
            f"\n  {variable.note}." if variable.note else ""
        )
        return {"variable": word, "npu": variable.npu, "note": variable.note, "text": text}
    if (library := libraries().get(word.replace("-", "_"))) is not None:
        lines = [f"{library.name}: {library.status.value}", f"  {library.note}"]
        lines += [f"  {name}: {text}" for name, text in library.uses.items()]
        lines += [f"  install: {library.install}"] if library.install else []
        lines += [f"  see {library.link}"] if library.link else []
        return {
            "package": library.name,
            "status": library.status,
            "note": library.note,
            "text": "\n".join(lines),
        }
    known = [*catalogue(), *apis(), *variables(), *libraries()]
    close = difflib.get_close_matches(word, known, n=3)
    hint = f"Did you mean {', '.join(close)}?" if close else "`torchport explain` lists the codes."
    raise TorchportError(f"nothing is known about {word!r}", hint=hint)


def _rule(entry: Entry) -> dict[str, Any]:
    lines = [f"{entry.code}: {entry.title} ({entry.safety})", "", entry.why]
    for before, after in entry.rewrites[:4]:
        lines += ["", "before:", *_indented(before), "after:", *_indented(after)]
    if entry.unchanged:
        lines += ["", "left alone:" if entry.rewrites else "reported or left alone:"]
        for text in entry.unchanged[:3]:
            lines += [*_indented(text), ""]
    if entry.reference:
        lines.append(f"see {entry.reference}")
    return {"code": entry.code, "title": entry.title, "why": entry.why, "text": "\n".join(lines)}


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.rstrip("\n").splitlines()]

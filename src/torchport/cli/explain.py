"""Explain a finding's code, an API, an operator, an environment variable, a package or an error.

examples:
  torchport explain TP120
  torchport explain torch.cuda.CUDAGraph   what a CUDA name is called on the NPU
  torchport explain torch.linalg.svd       what torch_npu does with a function of torch, per dtype
  torchport explain aten::_linalg_svd      the same for one operator
  torchport explain NCCL_DEBUG
  torchport explain flash_attn
  torchport explain memory.device-full     a cause that `torchport diagnose` names
  torchport explain 507018                 an error code of CANN or torch_npu: also EJ0001, ERR00100
  torchport explain                        list all codes
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
from typing import Any

from torchport.diagnose.sickness import load_sickness
from torchport.errors import TorchportError
from torchport.knowledge import support
from torchport.knowledge.api import Status, find_api, load_apis
from torchport.knowledge.environment import load_variables
from torchport.knowledge.errors import REPORT_TO, Row, load_error_rows
from torchport.knowledge.errors.codes import Code, find_code
from torchport.knowledge.libraries import load_libraries
from torchport.knowledge.support import How
from torchport.report.operators import WORDS
from torchport.rules.catalogue import Entry, build_catalogue


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("word", nargs="?", metavar="CODE|API|VARIABLE|PACKAGE|ERROR", help="what to explain")


def run_command(arguments: argparse.Namespace) -> int:
    if arguments.word is None:
        rows = {entry.code: entry.title for entry in build_catalogue().values()}
        text = "".join(f"{code}  {title}\n" for code, title in rows.items())
        print(json.dumps(rows) if arguments.json else text, end="\n" if arguments.json else "")
        return 0
    facts = explain_word(arguments.word)
    print(json.dumps(facts, indent=1) if arguments.json else facts["text"])
    return 0


def explain_word(word: str) -> dict[str, Any]:
    """What is known about `word`, with a "text" for people. Raises TorchportError where nothing is."""
    if word.upper() in build_catalogue():
        return _rule(build_catalogue()[word.upper()])
    if (found := find_api(word) or find_api(f"torch.{word}")) is not None:
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
    if (variable := load_variables().get(word)) is not None:
        text = f"{word}: on the NPU {variable.npu or 'nothing'}" + (f"\n  {variable.note}." if variable.note else "")
        return {"variable": word, "npu": variable.npu, "note": variable.note, "text": text}
    if (library := load_libraries().get(word.partition(".")[0].replace("-", "_"))) is not None:
        lines = [f"{library.name}: {library.status.value}", f"  {library.note}"]
        only = word in library.uses
        lines += [f"  {name}: {text}" for name, text in library.uses.items() if not only or name == word]
        lines += [f"  install: {library.install}"] if library.install else []
        lines += [f"  see {library.link}"] if library.link else []
        return {"package": library.name, "status": library.status, "note": library.note, "text": "\n".join(lines)}
    if (error := load_error_rows().get(word)) is not None:
        return _error(error)
    if (sign := load_sickness().get(word.removeprefix("sick."))) is not None:
        cause = sign["cause"].format("since the step that `torchport diagnose` names")
        text = f"{word}: {cause}\n  fix   {sign['fix']}\n  next  {sign['next']}\n  known from {sign['source']}"
        return {"sign": word, "cause": cause, "fix": sign["fix"], "next": sign["next"], "text": text}
    if (code := find_code(word)) is not None:
        return _code(code)
    rules = [entry for entry in build_catalogue().values() if re.search(rf"\b{_last(word)}\b", entry.title)]
    about = [f"  {entry.code}: {entry.title}" for entry in rules if len(_last(word)) > 2]
    if (facts := _of_torch(word)) is not None:
        return {**facts, "rules": [entry.code for entry in rules], "text": "\n".join([facts["text"], *about])}
    if about:
        return {"word": word, "rules": [entry.code for entry in rules], "text": "\n".join([f"{word}:", *about])}
    known = [
        *build_catalogue(),
        *load_apis(),
        *load_variables(),
        *load_libraries(),
        *support.list_measured_apis(),
        *load_error_rows(),
    ]
    close = difflib.get_close_matches(word, known, n=3)
    hint = f"Did you mean {', '.join(close)}?" if close else "`torchport explain` lists the codes."
    raise TorchportError(f"nothing is known about {word!r}", hint=hint)


def _error(row: Row) -> dict[str, Any]:
    lines = [f"{row.name}: {row.cause}", f"  fix   {row.fix}", *([f"  next  {row.next}"] if row.next else [])]
    if row.owner:
        lines += [f"  owner {row.owner}", f"  report to {REPORT_TO[row.owner]}"]
    lines += [f"  as in {sample}" for sample in row.samples] + [f"  known from {row.source}"]
    facts = {"error": row.name, "cause": row.cause, "fix": row.fix, "next": row.next, "owner": str(row.owner)}
    return {**facts, "text": "\n".join(lines)}


def _code(code: Code) -> dict[str, Any]:
    lines = [f"{code.code}{f', {code.name}' if code.name else ''} ({code.by})"]
    lines += [f"  CANN    {code.words}"] if code.words else []
    for row in code.rows:
        lines += ["", f"{row.name}: {row.cause}", f"  fix   {row.fix}", *([f"  next  {row.next}"] if row.next else [])]
    if not code.rows:
        lines += [f"  {kind.name}: {kind.hardware}" for kind in code.kinds]
        lines.append(
            "  No row of torchport's has this code: `torchport diagnose LOG` reads the lines around it."
            if code.is_known
            else "  Nothing more is known of it: `torchport diagnose LOG` reads the lines around it."
        )
    rows = [{"error": row.name, "cause": row.cause, "fix": row.fix, "next": row.next} for row in code.rows]
    facts = {"code": code.code, "by": code.by, "name": code.name, "words": code.words, "rows": rows}
    return {**facts, "kinds": [kind.name for kind in code.kinds], "text": "\n".join(lines)}


def _last(word: str) -> str:
    """The last word of a dotted name, as a pattern."""
    return re.escape(word.removesuffix("()").rpartition(".")[2])


def _of_torch(word: str) -> dict[str, Any] | None:
    """What torch_npu does with a function, module, optimizer or operator of torch; None for what is neither."""
    measured = "torch {}, torch_npu {}".format(*support.read_measured_versions())
    name = word if word.startswith("torch.") else f"torch.{word}"
    if (api := support.find_measured_api(name)) is not None:
        by_how = {how.value: [dtype for dtype, one in api.dtypes.items() if one is how] for how in How}
        lines = [f"{api.name}: {WORDS[api.how.value]} ({measured})"]
        lines += [f"  {WORDS[how] + ':':<18} {', '.join(dtypes)}" for how, dtypes in by_how.items() if dtypes]
        lines += [f"  the CPU computes   aten::{operator}" for operator in api.on_cpu]
        return {"api": api.name, "how": api.how, "dtypes": by_how, "operators": api.operators, "text": "\n".join(lines)}
    if (instead := support.load_removed_names().get(name)) is not None:
        return {"api": name, "how": "removed", "text": f"{name}: removed from torch\n  instead: {', '.join(instead)}"}
    operator = support.judge_operator(word)
    if operator.how is not How.UNKNOWN and "::" not in operator.name:
        lines = [f"aten::{operator.name}: {WORDS[operator.how.value]} ({measured})"]
        lines += [f"  not taken: {', '.join(sorted(operator.refused))}"] if operator.refused else []
        refused = sorted(operator.refused)
        return {"operator": operator.name, "how": operator.how, "refused": refused, "text": "\n".join(lines)}
    if support.has_public_name(name):
        text = f"{name}: exists in {measured}; what it calls on the NPU was not measured"
        return {"api": name, "how": How.UNKNOWN, "text": text}
    return None


def _rule(entry: Entry) -> dict[str, Any]:
    lines = [f"{entry.code}: {entry.title} ({entry.safety})", "", entry.why, *([entry.next] if entry.next else [])]
    for before, after in entry.rewrites[:4]:
        lines += ["", "before:", *_indented(before), "after:", *_indented(after)]
    for head, texts in (("reported, not changed:", entry.reports), ("left alone:", entry.ignores)):
        if texts:
            lines += ["", head]
            for text in texts[:3]:
                lines += [*_indented(text), ""]
            lines.pop()
    if entry.reference:
        lines += ["", f"see {entry.reference}"]
    return {"code": entry.code, "title": entry.title, "why": entry.why, "next": entry.next, "text": "\n".join(lines)}


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.rstrip("\n").splitlines()]

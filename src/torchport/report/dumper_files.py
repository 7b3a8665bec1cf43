"""Two files of torch.utils.dumper, compared, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchport.report.wording import format_count

SHOWN = 20


def render_dumper_files(data: Mapping[str, Any]) -> str:
    """The results that are wrong, then what was judged and what was not; `data` is what `--json` prints."""
    lines = [f"WRONG  {row['operator']}/{row['call']} result {row['result']}: {row['text']}" for row in data["wrong"]]
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"       and {len(lines) - SHOWN} more (--csv has all)"]
    lines.append(f"{format_count(data['judged'], 'result')} of operators with the same inputs judged")
    left = [f"{count:,} ({why})" for why, count in data["unjudged"].items()]
    left += [
        f"{sum(alone.values()):,} calls that only {which} file has ({_name_some(alone)})"
        for which, alone in zip(("the first", "the second"), data["alone"], strict=True)
        if alone
    ]
    if left:
        lines.append(f"not judged: {'; '.join(left)}")
    if data["judged"]:
        lines.append(f"{format_count(len(data['wrong']), 'result')} wrong" if data["wrong"] else "nothing is wrong")
    else:
        lines.append(
            "undecided: no operator has the same inputs in both; make the second file with load_file_path=<the first>"
        )
    return "\n".join(lines) + "\n"


def _name_some(counts: Mapping[str, int], most: int = 5) -> str:
    names: Sequence[str] = list(counts)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")

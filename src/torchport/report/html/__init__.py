"""A result as one HTML file that needs nothing else: no network, usable without scripts, printable.

Every text is escaped; a content security policy forbids whatever is not in the file. The verdict comes first, then
the numbers, what to do next, what is left to do, and what it rests on. Scripts only add a filter for findings.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from html import escape
from importlib import resources
from typing import Any

from torchport import __version__
from torchport.findings import Result
from torchport.report.html.changes import render_changes_section
from torchport.report.html.comparison import render_comparison_section
from torchport.report.html.culprit import render_culprit_section
from torchport.report.html.diagnosis import render_diagnosis_section
from torchport.report.html.evidence import render_differences_section, render_power_section, render_quantities_section
from torchport.report.html.findings import render_findings_section
from torchport.report.html.inventory import render_inventory_section
from torchport.report.html.layers import render_layers_section
from torchport.report.html.left import render_files_section, render_modules_section
from torchport.report.html.operators import render_operators_section
from torchport.report.html.residue import render_residue_section
from torchport.report.html.runs import render_runs_section
from torchport.report.html.verdict import make_heading, next_steps, render_number_tiles, render_verdict_section
from torchport.report.wording import format_count

# Each gives a section, or nothing where the result does not have what it shows.
_SECTIONS: tuple[Callable[[Result[Any]], str], ...] = (
    render_verdict_section,
    render_culprit_section,
    render_diagnosis_section,
    render_number_tiles,
    next_steps,
    render_inventory_section,
    render_differences_section,
    render_comparison_section,
    render_layers_section,
    render_quantities_section,
    render_power_section,
    render_runs_section,
    render_modules_section,
    render_files_section,
    render_findings_section,
    render_operators_section,
    render_residue_section,
    render_changes_section,
)


def render_page(result: Result[Any]) -> str:
    """The page for what analyze, convert, port, compare or diagnose left."""
    label, title = make_heading(result)
    body = "\n".join(filter(None, (section(result) for section in _SECTIONS)))
    return render_document(label, title, body, f"{format_count(len(result.inputs), 'file')} read")


def render_document(label: str, title: str, body: str, read: str) -> str:
    """A page with this body, which is HTML; the other texts are escaped. `read` says what it was made from."""
    style, script = (f"\n{_file(name)}" for name in ("page.css", "page.js"))
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">'
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>{escape(label)}: {escape(title)}</title>\n<style>{style}</style></head>\n<body>\n"
        f"<header><p>{escape(label)}</p><h1>{escape(title)}</h1></header>\n<main>\n{body}\n</main>\n"
        f"<footer>torchport {escape(__version__)}, {escape(read)}. "
        "This page needs no network and holds nothing but text.</footer>\n"
        f"<script>{script}</script></body></html>\n"
    )


def _policy(style: str, script: str) -> str:
    """What a browser may use of the page: this style and this script, known by their hashes, and nothing else."""

    def known(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; style-src {known(style)}; script-src {known(script)}; base-uri 'none'; form-action 'none'"
    )


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")

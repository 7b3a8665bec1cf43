"""A result as one HTML file that needs nothing else: no network, usable without scripts, printable.

Every text is escaped; a content security policy forbids whatever is not in the file. The verdict comes first, then
the numbers, what to do next, what is left to do, and what it rests on. Scripts only add a filter for findings.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from importlib import resources

from torchport import __version__
from torchport.findings import Result
from torchport.report.html.changes import changes
from torchport.report.html.comparison import comparison
from torchport.report.html.evidence import differences, power, quantities
from torchport.report.html.findings import findings
from torchport.report.html.left import files, modules
from torchport.report.html.operators import operators
from torchport.report.html.residue import residue
from torchport.report.html.runs import runs
from torchport.report.html.verdict import heading, next_steps, numbers, verdict
from torchport.report.wording import count

# Each gives a section, or nothing where the result does not have what it shows.
_SECTIONS: tuple[Callable[[Result], str], ...] = (
    verdict, numbers, next_steps, differences, comparison, quantities, power,
    runs, modules, files, findings, operators, residue, changes,
)  # fmt: skip
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def page(result: Result) -> str:
    """The page for what analyze, convert, port or compare left."""
    label, title = heading(result)
    body = "\n".join(filter(None, (section(result) for section in _SECTIONS)))
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>{escape(label)}: {escape(title)}</title>\n<style>\n{_file('page.css')}</style></head>\n<body>\n"
        f"<header><p>{escape(label)}</p><h1>{escape(title)}</h1></header>\n<main>\n{body}\n</main>\n"
        f"<footer>torchport {escape(__version__)}, {escape(count(len(result.inputs), 'file'))} read. "
        "This page needs no network and holds nothing but text.</footer>\n"
        f"<script>\n{_file('page.js')}</script></body></html>\n"
    )


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")

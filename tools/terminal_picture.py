"""Run a command and draw what it prints as a terminal window: terminal_picture.py OUT.svg COMMAND...

The pictures in the docs come from real runs. The command's exit status does not matter; colours are left out.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

FONT, WIDTH, HEIGHT, MARGIN = 13, 7.83, 18, 18  # pixels: font size, cell width and height, border
LINES = 45  # longer output keeps its end
NO_BREAK = "\N{NO-BREAK SPACE}"  # ordinary ones in a row are drawn as one, whatever xml:space says
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def terminal_lines(command: list[str]) -> list[str]:
    """The command after its prompt, then its output as it stands on a screen 100 columns wide."""
    scripts = sysconfig.get_path("scripts")
    environ = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "COLUMNS": "100", "NO_COLOR": "1"}
    result = subprocess.run(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    home = str(Path.cwd()) + "/"
    lines = [line.rpartition("\r")[2] for line in ANSI.sub("", result.stdout).replace(home, "").split("\n")]
    return [f"$ {' '.join(command)}", *lines[-LINES:]]


def picture(lines: list[str]) -> str:
    """An SVG without external references, so that it shows everywhere."""
    width = 2 * MARGIN + WIDTH * max(80, *map(len, lines))
    height = 2 * MARGIN + HEIGHT * len(lines)
    rows = [
        f'<text x="{MARGIN}" y="{MARGIN + HEIGHT * (row + 0.75):g}">{html.escape(line).replace(" ", NO_BREAK)}</text>'
        for row, line in enumerate(lines)
    ]
    font = f'font-family="ui-monospace,Menlo,Consolas,monospace" font-size="{FONT}" fill="#d7dae0"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}">',
            '<rect width="100%" height="100%" rx="8" fill="#1e2127"/>',
            f"<g {font}>",
            *rows,
            "</g>",
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(terminal_lines(sys.argv[2:])), encoding="utf-8")

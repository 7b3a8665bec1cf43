"""A trace in a browser: Chromium shows it in its own trace viewer, which the TensorBoard plug-in has a copy of. Offline.

    python tests/profiles/picture.py TRACE PICTURE.png --viewer build/profile_tools/.../torch_tb_profiler/static

Prints what the viewer has read. Exit code 1 where that is less than the file has, 4 where there is no Chromium.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

# The viewer says that it is ready, gets the trace, and has a model of it when all is read. The page is loaded, and its
# picture taken, when the image at its end is there: a while after what was found has been told.
PAGE = """
<!DOCTYPE html><style>html, body, iframe { margin: 0; border: 0; width: 100%; height: 100%; overflow: hidden }</style>
<iframe id="frame" src="/trace_embedding.html"></iframe>
<script>
const frame = document.getElementById('frame');
const tell = found => fetch('/found', { method: 'POST', body: JSON.stringify(found) });
window.addEventListener('message', async event => {
    if (event.data.msg !== 'ready') return;
    const text = await (await fetch('/trace')).text();
    frame.contentWindow.postMessage({ name: 'trace', data: text }, '*');
    const inside = frame.contentWindow;
    const wait = setInterval(() => {
        const model = inside.document.getElementById('trace-viewer').model;
        if (!model) return;
        clearInterval(wait);
        let slices = 0, threads = 0, rows = [];
        for (const process of Object.values(model.processes)) {
            rows.push(process.userFriendlyName);
            for (const thread of Object.values(process.threads)) {
                threads += 1;
                slices += thread.sliceGroup.length;
            }
        }
        // The rows of Python's functions are higher than a screen.
        const size = track => Object.values(track.process?.threads ?? {}).reduce((sum, one) => sum + one.sliceGroup.length, 0);
        const tracks = Array.prototype.slice.call(inside.document.querySelectorAll('.process-track-base'));
        tracks.sort((a, b) => size(b) - size(a));
        if (tracks.length) tracks[0].expanded = false;
        tell({ slices, threads, rows, arrows: model.flowEvents.length, warnings: model.importWarnings.map(w => w.message) });
    }, 100);
});
</script>
<img src="/painted" style="display: none">
"""
PAINTS_S, PATIENCE_S = 2.0, 120.0


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the viewer's files, the page, and the trace; takes what the page has found."""

    trace: Path
    found: dict[str, Any]
    told: threading.Event

    def do_GET(self) -> None:
        content = {"/": PAGE.encode, "/trace": self.trace.read_bytes}.get(self.path)
        if self.path == "/painted" and self.told.wait(PATIENCE_S):
            time.sleep(PAINTS_S)
        if content is None:
            return super().do_GET()
        body = content()
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if self.path == "/" else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return None

    def do_POST(self) -> None:
        self.found.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()
        self.told.set()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of requests."""


def browser() -> str | None:
    """Chromium by one of its names."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


def show(trace: Path, picture: Path, viewer: Path, chromium: str) -> dict[str, Any]:
    """Take the picture; return what the viewer has read, empty where it has read nothing."""
    found: dict[str, Any] = {}
    bound = type("Bound", (Handler,), {"trace": trace, "found": found, "told": threading.Event()})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(bound, directory=str(viewer)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as profile:
        command = [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            "--window-size=1600,1000",
            f"--screenshot={picture.resolve()}",
            f"http://127.0.0.1:{server.server_port}/",
        ]
        subprocess.run(command, capture_output=True, timeout=PATIENCE_S + 60, check=False)
    server.shutdown()
    return found


def main() -> int:
    """Show, compare with the file, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--viewer", type=Path, required=True, help="the folder with trace_embedding.html")
    arguments = parser.parse_args()
    chromium = browser()
    if chromium is None:
        print("no Chromium is installed (CHROMIUM=PATH)")
        return 4
    arguments.picture.parent.mkdir(parents=True, exist_ok=True)
    found = show(arguments.trace, arguments.picture, arguments.viewer, chromium)
    if not found:
        print(f"the viewer has not read {arguments.trace}")
        return 1
    data = json.loads(arguments.trace.read_text())
    events = data if isinstance(data, list) else data["traceEvents"]
    spans = sum(event["ph"] == "X" for event in events)
    print(
        f"{found['slices']} of {spans} spans on {found['threads']} lines of {', '.join(found['rows'])}, "
        f"{found['arrows']} arrows, {len(found['warnings'])} warnings; picture {arguments.picture}"
    )
    return int(found["slices"] < spans or not arguments.picture.exists())


if __name__ == "__main__":
    sys.exit(main())

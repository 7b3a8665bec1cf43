"""An archive for a bug report: what the doctor found, versions and variables, without anybody's name."""

from __future__ import annotations

import getpass
import importlib.metadata
import io
import json
import os
import re
import socket
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchport.doctor.check import Check
from torchport.findings import write_atomically

# Variables of others are nobody's business.
_NAMES = re.compile(
    r"(?:ASCEND|HCCL|VNPU|TORCH|PYTORCH|NPU|ACL|CUDA|NCCL|GLOO|OMP|MKL)\w*|LD_LIBRARY_PATH|LD_PRELOAD|PYTHONPATH|PATH|"
    r"RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT|RANK_TABLE_FILE|TASK_QUEUE_ENABLE|LANG"
)
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|KEY|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
_SECRETS = (
    re.compile(r"\b(?:hf|gh[opsu]|glpat|sk|pypi|xox[bp])[_-][A-Za-z0-9_-]{16,}"),
    re.compile(r"\bgithub_pat_\w{20,}|\bAKIA[A-Z0-9]{16}\b|\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*"),
    re.compile(r"(?i)(?<=bearer )[\w.~+/=-]{8,}"),
    re.compile(r"(?i)(?:(?<=token=)|(?<=secret=)|(?<=passwd=)|(?<=password=)|(?<=key=))[^\s&,;'\"]+"),
    re.compile(r"(?i)(?:(?<=token: )|(?<=secret: )|(?<=password: ))[^\s&,;'\"]+"),
    re.compile(r"(?<=://)[^/@\s]{1,200}(?=@)"),
    re.compile(r"\b[A-Fa-f0-9]{32,}\b|\b(?=\w*\d)(?=\w*[A-Z])(?=\w*[a-z])[A-Za-z0-9]{40,}\b"),
)
_ADDRESS = re.compile(r"\b(?!127\.0\.0\.1\b|0\.0\.0\.0\b)\d{1,3}(?:\.\d{1,3}){3}\b|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b")
_HOMES = re.compile(r"/(?:home|Users)/[^/\s:'\"]+|/root(?=/|\b)")


def collect_bundle_files(checks: Sequence[Check], logs: Sequence[Path] = ()) -> dict[str, bytes]:
    """The files of the archive by name, redacted. Raises OSError for a log that cannot be read."""
    hide = Redaction(os.environ)
    rows = [{"name": check.name, "passed": check.passed, "detail": check.detail, "fix": check.fix} for check in checks]
    variables = {
        name: "<hidden>" if _SECRET_NAME.search(name) else value
        for name, value in sorted(os.environ.items())
        if _NAMES.fullmatch(name)
    }
    found = sorted(
        {f"{distribution.name}=={distribution.version}" for distribution in importlib.metadata.distributions()},
        key=str.lower,
    )
    texts = {
        "doctor.json": json.dumps(rows, indent=1),
        "environment.txt": "".join(f"{name}={value}\n" for name, value in variables.items()),
        "packages.txt": "\n".join(found) + "\n",
    }
    for number, log in enumerate(logs):
        texts[f"log_{number}_{log.name}"] = log.read_bytes().decode("utf-8", "replace")
    return {hide(name): hide(text).encode() for name, text in texts.items()}


def write_bundle(path: Path, files: Mapping[str, bytes]) -> None:
    """Write the archive (tar, gzip) at `path`; neither times nor owners are in it. Raises OSError."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"torchport-doctor/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    write_atomically(path, held.getvalue())


class Redaction:
    """Takes names of users and hosts, home folders, addresses and what looks like a secret out of a text."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        users = {environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER", "USERNAME")} | {_user()}
        hosts = {environ.get("HOSTNAME", ""), socket.gethostname()}
        hosts |= {name.partition(".")[0] for name in hosts}
        secrets = {value for name, value in environ.items() if _SECRET_NAME.search(name) and len(value) >= 6}
        self._home = environ.get("HOME", "").rstrip("/")
        self._exact = dict.fromkeys(secrets, "<hidden>")
        # `root` and `localhost` are no one's names, and short ones are parts of words.
        self._words = {name: "<user>" for name in users if len(name) > 2 and name != "root"}
        self._words |= {name: "<host>" for name in hosts if len(name) > 1 and name != "localhost"}

    def __call__(self, text: str) -> str:
        for value, instead in sorted(self._exact.items(), key=lambda pair: -len(pair[0])):
            text = text.replace(value, instead)
        if len(self._home) > 1:
            text = re.sub(rf"{re.escape(self._home)}(?=/|\b)", "~", text)
        text = _HOMES.sub("~", text)
        for pattern in _SECRETS:
            text = pattern.sub("<hidden>", text)
        text = _ADDRESS.sub("<address>", text)
        for word, instead in sorted(self._words.items(), key=lambda pair: -len(pair[0])):
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", instead, text)
        return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return ""

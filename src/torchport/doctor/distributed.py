"""Ports and addresses of a job of several ranks, as far as the environment names one."""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import Iterator

from torchport.doctor.check import Check, Machine

LISTEN = 29500  # torchrun's own
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
TOLD = "Start the script by torchrun or `torchport run --nproc N`, which set all four; or unset "


def list_checks(machine: Machine) -> Iterator[Check]:
    """Nothing is sent: the port is bound for a moment on this machine, the address looked up."""
    given = [name for name in VARIABLES if machine.environ.get(name)]
    lacking = [name for name in VARIABLES if name not in given]
    if "RANK" in given and lacking:
        fix = f"{TOLD}{' '.join(given)}."
        yield Check("ranks", False, f"{' and '.join(given)} set, but not {' and '.join(lacking)}", fix)
    yield from _numbers(machine)
    address = machine.environ.get("MASTER_ADDR", "")
    if address and (problem := _unknown(address)):
        fix = "export MASTER_ADDR=127.0.0.1 for one machine, else the address of machine 0"
        yield Check("master address", False, f"MASTER_ADDR={address} is not known here: {problem}", fix)
    word = machine.environ.get("MASTER_PORT", "")
    port = int(word) if word.isdecimal() and 0 < int(word) < 65536 else LISTEN
    if machine.environ.get("RANK", "0") == "0" and is_port_taken(port):
        fix = f"ss -ltnp | grep :{port} shows by whom; export MASTER_PORT={_free()}, or torchrun --standalone"
        yield Check("port", not word, f"port {port} is taken{'' if word else ', torchrun takes it by default'}", fix)
    table = machine.environ.get("RANK_TABLE_FILE", "")
    if table and (problem := _table(machine, table)):
        yield Check("rank table", False, f"RANK_TABLE_FILE={table} {problem}", "unset RANK_TABLE_FILE")


def _numbers(machine: Machine) -> Iterator[Check]:
    rank, size = (machine.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    if rank.isdecimal() and size.isdecimal() and int(rank) >= int(size):
        yield Check("ranks", False, f"RANK={rank} of WORLD_SIZE={size}: ranks count from 0", f"{TOLD}RANK WORLD_SIZE.")


def is_port_taken(port: int) -> bool:
    """Whether another process listens on the port; it is not connected to."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _free() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


def _unknown(address: str) -> str:
    """Why an address cannot be looked up; "" where it can."""
    try:
        socket.getaddrinfo(address, None)
    except (OSError, UnicodeError) as error:
        return str(getattr(error, "strerror", None) or error)
    return ""


def _table(machine: Machine, name: str) -> str:
    """What is wrong with a rank table; "" where it can be read and lists servers."""
    try:
        table = json.loads(machine.resolve_path(name).read_bytes())
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except ValueError:
        return "is no JSON"
    servers = table.get("server_list") if isinstance(table, dict) else None
    if not isinstance(servers, list) or not servers:
        return "has no server_list"
    return (
        ""
        if all(isinstance(server, dict) and server.get("device") for server in servers)
        else "has a server without devices"
    )

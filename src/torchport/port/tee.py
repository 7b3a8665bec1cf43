"""Run a command as if this process were it, and keep what it prints.

The command has our standard input, our terminal and our process group, and a stream of ours that is a terminal is one
for it too; it gets the signals that are sent to us, and does not outlive us.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import signal
import subprocess
import termios
import threading
import time
import tty
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from torchport.errors import TorchportError
from torchport.launch.keeper import Ended

PR_SET_PDEATHSIG = 1  # linux/prctl.h
SI_KERNEL = 0x80  # asm-generic/siginfo.h: by a key of the terminal, which the command hears as well
CHUNK = 1 << 16
DRAIN_SECONDS = 2.0  # for what the command's own children still print after its end
FORWARDED = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2})


def run_with_tee(command: Sequence[str], environment: Mapping[str, str], stdout: Path, stderr: Path) -> Ended:
    """Run `command` here until it ends; what it prints goes where ours goes, and to the files `stdout` and `stderr`.

    Raises TorchportError where the command cannot be started. `propagate_status` passes its status on.
    """
    start = time.monotonic()
    waited = {*FORWARDED, signal.SIGCHLD, signal.SIGWINCH}
    with open(stdout, "wb") as out, open(stderr, "wb") as err:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
        try:
            streams = [_Stream(1, out), _Stream(2, err)]
            process = _start(command, environment, streams, before)
            threads = [threading.Thread(target=stream.pump, daemon=True) for stream in streams]
            for thread in threads:
                thread.start()
            while process.poll() is None:
                told = signal.sigwaitinfo(waited)
                if told.si_signo == signal.SIGWINCH:
                    for stream in streams:
                        stream.resize()
                elif told.si_signo != signal.SIGCHLD and told.si_code != SI_KERNEL:
                    process.send_signal(told.si_signo)
            seconds = time.monotonic() - start
            deadline = time.monotonic() + DRAIN_SECONDS
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return Ended(process.returncode, seconds, "")


def propagate_status(status: int) -> int:
    """Give back the exit status of a command that ended with `status`; where a signal ended it, end by that signal."""
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command's own memory is of interest, not ours
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def _start(
    command: Sequence[str], environment: Mapping[str, str], streams: Sequence[_Stream], mask: set[int | signal.Signals]
) -> subprocess.Popen[bytes]:
    end_with_parent = ending_with_parent()

    def prepare() -> None:
        end_with_parent()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    try:
        return subprocess.Popen(
            command, env=environment, stdout=streams[0].end, stderr=streams[1].end, preexec_fn=prepare
        )
    except OSError as error:
        raise TorchportError(f"{command[0]} could not be started: {error.strerror}") from error
    finally:
        for stream in streams:
            os.close(stream.end)


def ending_with_parent() -> Callable[[], None]:
    """A function to be called in a child of this process, which is then killed when this process is gone, be it before
    the call."""
    control, parent = ctypes.CDLL(None).prctl, os.getpid()

    def end_with_parent() -> None:
        control(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the system does not tell of an end that was before
            os.kill(os.getpid(), signal.SIGKILL)

    return end_with_parent


class _Stream:
    """One of our streams, for the command: `end` is what it writes to."""

    def __init__(self, descriptor: int, copy: BinaryIO) -> None:
        self._descriptor = descriptor
        self._copy = copy
        self._terminal = os.isatty(descriptor)
        if self._terminal:
            self._from, self.end = os.openpty()
            tty.setraw(self.end)  # the real terminal does what is to be done with what passes
            self.resize()
        else:
            self._from, self.end = os.pipe()

    def resize(self) -> None:
        """Tell the command how large our terminal is."""
        if self._terminal:
            size = fcntl.ioctl(self._descriptor, termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(self._from, termios.TIOCSWINSZ, size)

    def pump(self) -> None:
        """Copy until the command and its children have closed their ends."""
        try:
            while data := self._read():
                self._copy.write(data)
                self._copy.flush()
                while data:
                    data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EBADF):  # `| head`, `>&-`
                raise
        finally:
            os.close(self._from)  # then the command learns of it, as if it had written there itself

    def _read(self) -> bytes:
        try:
            return os.read(self._from, CHUNK)
        except OSError as error:
            if error.errno == errno.EIO:  # how a pseudo-terminal says that nobody is left on the other side
                return b""
            raise

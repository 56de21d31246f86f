"""A client process, or a socket that one listens on, and lines to and from it with a time limit."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

_MOST_BYTES = 1 << 24  # of a message
_CHUNK = 1 << 16


class ExternalError(RuntimeError):
    """A client is dead, silent, slow, or breaks the rules."""


class Wire:
    """Lines to and from a client."""

    def __init__(self, command: Sequence[str], connect: str, timeout_s: float, **how: Any) -> None:
        """Start `command`, with these options of `subprocess.Popen`, or connect to `unix:/path`."""
        self.timeout_s, self._heard, self._process = timeout_s, b"", None
        try:
            if command:
                self._process = process = subprocess.Popen(
                    list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, **how
                )
                assert process.stdin is not None
                assert process.stdout is not None
                self._name, self._in, self._out = command[0], process.stdout.fileno(), process.stdin.fileno()
                self._end: Callable[[], Any] = weakref.finalize(self, _kill, process, bool(how))
            else:
                peer = socket.socket(socket.AF_UNIX)
                peer.settimeout(timeout_s)
                peer.connect(connect.removeprefix("unix:"))
                self._name, self._in, self._out = connect, peer.fileno(), peer.fileno()
                self._end = weakref.finalize(self, peer.close)
        except OSError as error:
            where = command[0] if command else connect
            raise ExternalError(f"the client '{where}' cannot be reached: {error.strerror or error}") from error
        os.set_blocking(self._out, False)

    def send(self, line: bytes) -> None:
        """Send a line; raises `ExternalError` if the client does not read it in time."""
        until, left = time.monotonic() + self.timeout_s, memoryview(line + b"\n")
        while left:
            try:
                left = left[os.write(self._out, left) :]
            except BlockingIOError:
                self._wait([], [self._out], until, "reads nothing")
            except OSError as error:
                raise self._dead() from error

    def receive(self, until: float | None = None) -> bytes:
        """Return the next line; raises `ExternalError` if none comes in time, or one is endless."""
        until, begun = time.monotonic() + self.timeout_s if until is None else until, 0
        while (end := self._heard.find(b"\n", begun)) < 0:
            begun = len(self._heard)
            if begun > _MOST_BYTES:
                raise ExternalError(f"the client '{self._name}' sends a message of more than {_MOST_BYTES} bytes")
            self._wait([self._in], [], until, "does not answer")
            try:
                chunk = os.read(self._in, _CHUNK)
            except OSError as error:
                raise self._dead() from error
            if not chunk:
                raise self._dead()
            self._heard += chunk
        line, self._heard = self._heard[:end], self._heard[end + 1 :]
        return line

    def close(self) -> None:
        """End the client: it has a moment to end by itself."""
        if self._process is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                assert self._process.stdin is not None
                self._process.stdin.close()
                self._process.wait(1)
        self._end()
        self._in = self._out = -1  # another file may get their numbers

    def _wait(self, readable: list[int], writable: list[int], until: float, what: str) -> None:
        if not any(select.select(readable, writable, [], max(until - time.monotonic(), 0))):
            raise ExternalError(f"the client '{self._name}' {what} within {self.timeout_s:g} s (timeout_s)")

    def _dead(self) -> ExternalError:
        code = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(1)
        ended = "" if code is None else f" with exit code {code}"
        return ExternalError(f"the client '{self._name}' has ended{ended} before the run did")


def _kill(process: subprocess.Popen[Any], group: bool) -> None:
    process.kill()
    process.wait()
    if group:  # what it has started
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()

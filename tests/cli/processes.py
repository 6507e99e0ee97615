"""The command as users run it: real processes, real sockets."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, Self

import httpx

from tests.zygote import Forked, zygote

HEADRACE = str(Path(sys.executable).with_name("headrace"))
ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """What it printed, of a command that succeeded."""
        assert self.code == 0, self
        return json.loads(self.out)

    def refused(self, code: int) -> str:
        """The one line of a command that failed in this way."""
        assert self.code == code, self
        assert self.out == "", self
        assert self.err.startswith("headrace: ") and self.err.count("\n") == 1, self
        return self.err.removeprefix("headrace: ").rstrip("\n")

    def lines(self) -> list[str]:
        """What it printed, of a command that succeeded."""
        assert self.code == 0, self
        return self.out.splitlines()


def eventually(condition: Callable[[], bool], told: Callable[[], object] = lambda: "it never came true") -> None:
    """Wait for something that has no event of its own."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, told()
        time.sleep(0.02)


def environment(**more: str) -> dict[str, str]:
    """The environment without any setting of Headrace but those given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    return kept | {"PYTHONWARNINGS": "error", "XDG_CONFIG_HOME": "/nonexistent"} | more


def headrace(*arguments: str, stdin: str | bytes = b"", **variables: str) -> Result:
    """Run a command to its end, in a process that is forked off and need not import everything first."""
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
        given.write(stdin.encode() if isinstance(stdin, str) else stdin)
        given.seek(0)
        files = [given.fileno(), out.fileno(), err.fileno()]
        code = zygote().start(list(arguments), environment(**variables), files).wait(PATIENCE_SECONDS)
        out.seek(0)
        err.seek(0)
        return Result(code, out.read().decode(), err.read().decode())


def execute(*arguments: str, stdin: str | bytes = b"", cwd: Path | None = None, **variables: str) -> Result:
    """Run the command that is installed to its end."""
    ended = subprocess.run(
        [HEADRACE, *arguments],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        env=environment(**variables),
        cwd=cwd,
    )
    return Result(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def in_terminal(answer: str, *arguments: str, **variables: str) -> Result:
    """Run the command that is installed in a terminal, and answer what it asks; what it printed is `out`."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "r+b", buffering=0) as terminal:
        process = subprocess.Popen(
            [HEADRACE, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**variables)
        )
        os.close(theirs)
        terminal.write(f"{answer}\n".encode())
        told = b""
        # Linux ends a terminal that nobody holds any more with an error.
        with suppress(OSError):
            while part := terminal.read(4096):
                told += part
        return Result(process.wait(PATIENCE_SECONDS), told.decode().replace("\r\n", "\n"), "")


class Running:
    """A command that goes on: its output can be read, and it can be stopped."""

    def __init__(
        self,
        *arguments: str,
        stdin: int | None = None,
        installed: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        source, sink = os.pipe()
        given = os.open(os.devnull, os.O_RDONLY) if stdin is None else os.dup(stdin)
        self._err = TemporaryFile()  # noqa: SIM115
        files = [given, sink, self._err.fileno()]
        self.process: Forked | subprocess.Popen[bytes]
        if installed:
            command = [HEADRACE, *arguments]
            self.process = subprocess.Popen(
                command, stdin=given, stdout=sink, stderr=self._err, env=environment(**variables or {})
            )
        else:
            self.process = zygote().start(list(arguments), environment(**variables or {}), files)
        os.close(sink)
        os.close(given)
        self.out = os.fdopen(source, errors="backslashreplace")

    @property
    def err(self) -> str:
        """What it said on stderr so far."""
        return os.pread(self._err.fileno(), 1 << 20, 0).decode()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait; its exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end; its exit code."""
        return self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        """End it in any case."""
        self.stop(signal.SIGKILL)
        self.out.close()
        self._err.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Server(Running):
    """A running `headrace serve`, by default on any free port."""

    def __init__(
        self,
        store: Path | str,
        *arguments: str,
        installed: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        url = store if isinstance(store, str) else f"file:{store}"
        address = [] if "--http" in arguments else ["--http", "127.0.0.1:0"]
        address += [] if "--flight" in arguments else ["--flight", "127.0.0.1:0"]
        super().__init__("serve", "--store", url, *address, *arguments, installed=installed, variables=variables)
        self.ready = self.out.readline().strip()
        if not self.ready:
            told = self.err
            self.close()
            raise AssertionError(told)
        self.url = next(word for word in self.ready.split() if word.startswith("http"))
        # Where clients and commands connect to; with Flight off there is none.
        self.flight_url = next((word for word in self.ready.split() if word.startswith("headrace") and ":" in word), "")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Ask for a path of it, with all patience."""
        return httpx.get(f"{self.url}{path}", timeout=PATIENCE_SECONDS, **options)

    def post(self, path: str, body: object) -> None:
        """Set something up by the API itself, which is quicker than a command."""
        httpx.post(f"{self.url}/v1/{path}", json=body, timeout=PATIENCE_SECONDS).raise_for_status()

    def run(self, *arguments: str, stdin: str | bytes = b"", **variables: str) -> Result:
        """Run a command against it."""
        return headrace(*arguments, stdin=stdin, **({"HEADRACE_URL": self.flight_url} | variables))

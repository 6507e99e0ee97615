"""The command as users run it: real processes, real sockets."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from types import TracebackType
from typing import Any, Self

from tests.cli.zygote import Zygote, exit_code

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


def environment(**more: str) -> dict[str, str]:
    """The environment without any setting of Headrace but those given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    return kept | {"PYTHONWARNINGS": "error"} | more


@cache
def zygote() -> Zygote:
    """One for all tests."""
    directory = TemporaryDirectory(prefix="headrace-zygote-")
    made = Zygote(Path(directory.name) / "socket")
    atexit.register(directory.cleanup)
    atexit.register(made.close)
    return made


def headrace(*arguments: str, stdin: str | bytes = b"", **variables: str) -> Result:
    """Run a command to its end, in a process that is forked off and need not import everything first."""
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
        given.write(stdin.encode() if isinstance(stdin, str) else stdin)
        given.seek(0)
        files = [given.fileno(), out.fileno(), err.fileno()]
        code = exit_code(zygote().start(list(arguments), environment(**variables), files))
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


class Server:
    """A running `headrace serve`, by default on any free port."""

    def __init__(self, store: Path, *arguments: str, cwd: Path | None = None, **variables: str) -> None:
        self.store = store
        self._log = store.with_name(store.name + ".log")
        defaults = [] if "--http" in arguments else ["--http", "127.0.0.1:0"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [HEADRACE, "serve", "--store", f"file:{store}", *defaults, *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment(**variables),
                cwd=cwd,
            )
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline().strip()
        if not self.ready:
            self.close()
            raise AssertionError(self.log)
        self.url = next(word for word in self.ready.split() if word.startswith("http"))

    @property
    def log(self) -> str:
        """What it logged so far."""
        return self._log.read_text()

    def run(self, *arguments: str, stdin: str | bytes = b"", **variables: str) -> Result:
        """Run a command against it."""
        return headrace(*arguments, stdin=stdin, **({"HEADRACE_URL": self.url} | variables))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stop it as an operator would; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        """End it in any case."""
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
        self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

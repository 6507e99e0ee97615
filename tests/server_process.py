"""The real `headrace serve` in a process of its own: the one way for tests to have a server that they can kill.

It can be killed or stopped, and started again at the same ports on the same store. It is forked from a process that has
everything imported, which takes a fifth of the time. With variables of the environment it is a program of its own: some
of them count before Python runs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.ports import ReservedPort
from tests.zygote import Forked, zygote

ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 60.0


class ServerProcess:
    """A server on a store; `port` is that of HTTP, `url` the address for clients of Flight."""

    def __init__(self, store: str, *arguments: str, variables: Mapping[str, str] | None = None) -> None:
        self.store = store
        self._arguments = arguments
        self._variables = dict(variables or {})
        self._reserved = ReservedPort(), ReservedPort()
        self.port, self.flight_port = (reserved.number for reserved in self._reserved)
        self._process: Forked | subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"headrace://127.0.0.1:{self.flight_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server runs"
        return self._process.pid

    def start(self) -> None:
        """Start, and wait until it answers."""
        command = ["serve", "--store", self.store, "--log-level", "warning"]
        command += ["--http", f"127.0.0.1:{self.port}", "--flight", f"127.0.0.1:{self.flight_port}", *self._arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        source, sink = os.pipe()
        if self._variables:
            program = [sys.executable, "-m", "tests.tuned", *command]
            self._process = subprocess.Popen(program, stdout=sink, cwd=ROOT, env=environment | self._variables)
        else:
            with open(os.devnull, "rb") as nothing:
                self._process = zygote().start(command, environment, [nothing.fileno(), sink, 2], ROOT)
        os.close(sink)
        # Open until the server ends: it may print more.
        self._output = open(source, "rb")  # noqa: SIM115
        assert b"ready" in self._output.readline(), f"the server ended with {self._process.wait(PATIENCE_SECONDS)}"

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self._end(signal.SIGKILL, -signal.SIGKILL)

    def stop(self) -> None:
        """End it cleanly."""
        self._end(signal.SIGTERM, 0)

    def freeze(self) -> None:
        """Suspend it, and wait until it is: nothing is answered any more. `thaw` it, or kill it."""
        os.kill(self.pid, signal.SIGSTOP)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < deadline, "the server is suspended"
            time.sleep(0.001)

    def thaw(self) -> None:
        """Let it run again."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Stop it, and start another one on the same store."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End it, if it runs, and give its ports back."""
        if self._process is not None:
            self.stop()
        for reserved in self._reserved:
            reserved.close()

    def _end(self, number: signal.Signals, expected: int) -> None:
        process = self._process
        assert process is not None, "the server runs"
        self._process = None
        process.send_signal(number)
        code = process.wait(PATIENCE_SECONDS)
        self._output.close()
        assert code == expected, f"the server ended with {code}"

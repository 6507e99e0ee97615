"""A `headrace serve` that is killed, stopped, paused and moved in time, and always returns to its ports."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.ports import ReservedPort

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 60.0
_FIXED: Final = "broker.retention_check_seconds=1"


class CampaignFailed(Exception):
    """A server did what no server may do; the round counts as violated."""


class CampaignServer:
    """One server process after another, on one store and the same ports."""

    def __init__(self, name: str, store: str, directory: Path, protocols: Sequence[str] = ()) -> None:
        """`protocols` are served beside HTTP and Flight."""
        self.name = name
        self._store = store
        self._log = directory / f"{name}.log"
        self._clock = directory / f"{name}.clock"
        self._ports = {protocol: ReservedPort() for protocol in ("http", "flight", *protocols)}
        self._process: subprocess.Popen[bytes] | None = None
        self.set_clock(0)

    @property
    def url(self) -> str:
        return f"headrace://{self.address('flight')}"

    def address(self, protocol: str) -> str:
        """Where a protocol is served."""
        return f"127.0.0.1:{self._ports[protocol].number}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server runs"
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [
            sys.executable,
            "-m",
            "tests.campaign.moved_clock",
            str(self._clock),
            "serve",
            "--store",
            self._store,
            "--log-level",
            "warning",
            "--log-format",
            "text",
            "--fixed",
            _FIXED,
        ]
        for protocol in self._ports:
            command += [f"--{protocol}", self.address(protocol)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=_environment()
            )
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            told = self._log.read_text(errors="replace")[-500:]
            raise CampaignFailed(f"{self.name} did not start, exit code {self._process.wait()}: {told}")

    def end(self, number: signal.Signals) -> None:
        """Send a signal that ends it, and wait for its end."""
        process = self._process
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise CampaignFailed(f"{self.name} did not stop within {STOP_SECONDS:g} s of {number.name}") from None
        finally:
            assert process.stdout is not None
            process.stdout.close()
            self._process = None

    def pause(self, seconds: float) -> None:
        """Stop it, as a hypervisor does, and let it go on."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def set_clock(self, offset_seconds: int) -> None:
        """Move its wall clock; it looks twice a second. Its monotonic clock goes on."""
        fresh = self._clock.with_suffix(".fresh")
        fresh.write_text(f"{offset_seconds}\n")
        fresh.replace(self._clock)

    def close(self) -> None:
        """End it in any case."""
        if self._process is not None:
            self._process.kill()
            self.end(signal.SIGKILL)
        for port in self._ports.values():
            port.close()


def has_strace() -> bool:
    """Whether system calls of a process can be made to fail from outside."""
    return shutil.which("strace") is not None


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}

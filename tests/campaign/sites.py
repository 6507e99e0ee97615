"""Where a campaign takes place: a disk store with one server, or three servers on one PostgreSQL; and their faults.

A fault is a method that does something bad, heals it, and says in a few words what it did. Whatever happened, `heal`
leaves all servers running.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from headrace.verify.run import VerifyRun
from tests.campaign.backups import check_backup
from tests.campaign.servers import CampaignServer, has_strace
from tests.postgres_server import PostgresServer

Fault = Callable[[random.Random, VerifyRun], str]

_ROOM_BYTES: Final = 512 << 20
_SMALL_FILE_BYTES: Final = 8_192
_SERVERS: Final = 3
_CLOCK_JUMPS: Final = (-86_400, -3_600, -60, 60, 3_600, 86_400)


class Site(Protocol):
    """A store with its servers."""

    name: str
    servers: list[CampaignServer]

    def faults(self) -> dict[str, Fault]: ...

    def heal(self) -> None: ...

    def close(self) -> None: ...


class _ServerFaults:
    """What can happen to servers on any store."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.servers: list[CampaignServer] = []

    def server_faults(self) -> dict[str, Fault]:
        """The faults by name."""
        return {"kill": self._kill, "stop": self._stop, "pause": self._pause, "clock": self._clock}

    def heal(self) -> None:
        """All servers run, at the right time."""
        for server in self.servers:
            server.set_clock(0)
            if not server.is_running:
                server.start()

    def close_servers(self) -> None:
        """End all servers."""
        for server in self.servers:
            server.close()

    def _kill(self, chance: random.Random, run: VerifyRun) -> str:
        server = chance.choice(self.servers)
        server.end(signal.SIGKILL)
        time.sleep(chance.uniform(0, 1.5))
        server.start()
        return f"SIGKILL of {server.name}"

    def _stop(self, chance: random.Random, run: VerifyRun) -> str:
        server = chance.choice(self.servers)
        server.end(signal.SIGTERM)
        time.sleep(chance.uniform(0, 1.5))
        server.start()
        return f"SIGTERM of {server.name}"

    def _pause(self, chance: random.Random, run: VerifyRun) -> str:
        server, seconds = chance.choice(self.servers), chance.choice([0.3, 1.0, 5.0])
        server.pause(seconds)
        return f"SIGSTOP of {server.name} for {seconds:g} s"

    def _clock(self, chance: random.Random, run: VerifyRun) -> str:
        server, jump = chance.choice(self.servers), chance.choice(_CLOCK_JUMPS)
        server.set_clock(jump)
        time.sleep(chance.uniform(2, 5))
        server.set_clock(0)
        return f"the clock of {server.name} {jump:+d} s for a while"


class DiskSite(_ServerFaults):
    """One server on a disk store, on a small file system of its own where one may be mounted."""

    name = "disk"

    def __init__(self, directory: Path, protocols: Sequence[str] = ()) -> None:
        super().__init__(directory)
        self._room = directory / "room"
        self._room.mkdir()
        self._is_mounted = _mount(self._room, _ROOM_BYTES)
        self._backups = 0
        self.store = self._room / "store"
        server = CampaignServer("server", f"file:{self.store}?segment_bytes=65536", directory, protocols)
        self.servers = [server]
        server.start()

    def faults(self) -> dict[str, Fault]:
        """The faults by name."""
        faults = self.server_faults() | {"no space": self._fill, "backup": self._back_up}
        if has_strace():
            faults["EIO"] = self._fail_syncs
        return faults

    def close(self) -> None:
        """End all, and give the file system back."""
        self.close_servers()
        if self._is_mounted:
            subprocess.run(["umount", "--lazy", str(self._room)], check=False)

    def _fill(self, chance: random.Random, run: VerifyRun) -> str:
        """No space: the file system is made as small as what is in it; or else files may not grow beyond a size."""
        seconds = chance.uniform(0.5, 3)
        if self._is_mounted:
            used = shutil.disk_usage(self._room).used
            _remount(self._room, used + chance.choice([0, 4_096, 65_536]))
            time.sleep(seconds)
            _remount(self._room, _ROOM_BYTES)
            return f"ENOSPC for {seconds:.1f} s"
        pid = self.servers[0].pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (_SMALL_FILE_BYTES, before[1]))
        time.sleep(seconds)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        return f"EFBIG for {seconds:.1f} s"

    def _fail_syncs(self, chance: random.Random, run: VerifyRun) -> str:
        """Syncs fail with EIO; then the server is restarted, as docs/operations.md says."""
        call = chance.choice(["fdatasync", "fsync", "pwritev"])
        command = ["strace", "-f", "-qq", "-o", "/dev/null", "-p", str(self.servers[0].pid)]
        command += ["-e", f"trace={call}", "-e", f"inject={call}:error=EIO:when=1..{chance.randint(1, 5)}"]
        tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.5, 2))
        tracer.send_signal(signal.SIGINT)
        try:
            tracer.wait(10)
        except subprocess.TimeoutExpired:
            tracer.kill()
            tracer.wait()
        self.servers[0].end(chance.choice([signal.SIGTERM, signal.SIGKILL]))
        self.servers[0].start()
        return f"EIO of {call}"

    def _back_up(self, chance: random.Random, run: VerifyRun) -> str:
        self._backups += 1
        found = check_backup(run, self.store, self.directory / f"backup-{self._backups}", self.directory)
        return f"a backup, {found} acknowledged messages found in it"


class PostgresSite(_ServerFaults):
    """Three servers on one PostgreSQL of its own."""

    name = "postgres"

    def __init__(self, directory: Path, protocols: Sequence[str] = ()) -> None:
        super().__init__(directory)
        self._database = PostgresServer({"autovacuum": "on"})
        store = self._database.fresh_url("segment_bytes=65536&retry_seconds=5")
        names = [f"server-{number}" for number in range(1, _SERVERS + 1)]
        self.servers = [CampaignServer(name, store, directory, protocols) for name in names]
        for server in self.servers:
            server.start()

    def faults(self) -> dict[str, Fault]:
        """The faults by name."""
        return self.server_faults() | {
            "database crash": self._crash,
            "database pause": self._pause_database,
            "connections ended": self._end_connections,
        }

    def close(self) -> None:
        """End all."""
        self.close_servers()
        self._database.stop()

    def _crash(self, chance: random.Random, run: VerifyRun) -> str:
        self._database.kill()
        time.sleep(chance.uniform(0, 2))
        self._database.start()
        return "the database was killed and started"

    def _pause_database(self, chance: random.Random, run: VerifyRun) -> str:
        seconds = chance.uniform(0.3, 4)
        processes = [self._database.pid, *_children(self._database.pid)]
        _signal(processes, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            _signal(processes, signal.SIGCONT)
        return f"the database was paused for {seconds:.1f} s"

    def _end_connections(self, chance: random.Random, run: VerifyRun) -> str:
        share = chance.choice([0.2, 0.5, 1.0])
        with self._database.connect() as connection:
            query = (
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND random() < %s"
            )
            row = connection.execute(query, (share,)).fetchone()
        return f"{row[0] if row else 0} connections of the database ended"


def make_site(name: str, directory: Path, protocols: Sequence[str] = ()) -> DiskSite | PostgresSite:
    """A site by its name, which serves these protocols beside HTTP and Flight."""
    made = Path(tempfile.mkdtemp(prefix=f"campaign-{name}-", dir=directory))
    return DiskSite(made, protocols) if name == "disk" else PostgresSite(made, protocols)


def _mount(directory: Path, size_bytes: int) -> bool:
    """A file system in memory; whether it may be mounted."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    options = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "headrace-campaign", str(directory)]
    return subprocess.run(options, stderr=subprocess.DEVNULL, check=False).returncode == 0


def _remount(directory: Path, size_bytes: int) -> None:
    # What is used may have grown meanwhile; then the size stays, and nothing is short.
    command = ["mount", "-o", f"remount,size={size_bytes}", str(directory)]
    subprocess.run(command, stderr=subprocess.DEVNULL, check=False)


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed]


def _signal(processes: list[int], number: signal.Signals) -> None:
    for pid in processes:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue

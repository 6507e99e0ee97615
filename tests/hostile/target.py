"""A real `headrace serve` with tokens that is attacked, and what it uses: memory, processor time, its log.

The attacker's token has all rights on topics `scratch-*`, which matter to nobody. The victim's may publish to `orders`
and read it. What the server uses is read from the kernel: it need not answer for that.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from uuid import UUID

from headrace.broker import Broker
from headrace.core.limits import PARTITIONS_MAX
from headrace.core.rights import Right
from headrace.protocols.kafka.apis.topic_ids import topic_uuid
from tests.cli.processes import Server
from tests.ports import ReservedPort

ORDERS: Final = "orders"
WIDE, NARROW, DOOMED = "scratch-wide", "scratch-narrow", "scratch-doomed"
TOPICS: Final = {ORDERS: 4, WIDE: PARTITIONS_MAX, NARROW: 4, DOOMED: 4}
GROUP: Final = "scratch-group"
FIXED_GROUP: Final = "scratch-fixed"
GRANTS: Final[dict[str, tuple[str, list[str]]]] = {
    "admin": ("*", list(Right)),
    "victim": (ORDERS, [Right.PUBLISH, Right.READ]),
    "attacker": ("scratch-*", list(Right)),
}
# A server that would take more fails to get it, and the machine lives. Stacks of threads count, 8 MiB each.
MEMORY_BYTES_MAX: Final = 8 << 30
# Options of protocols that have a port of their own.
PROTOCOLS: Final = ("--kafka", "--ydb", "--cursus", "--native")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Address:
    """Where a target listens, as what process it runs, and the tokens by name. Can be sent to other processes."""

    http: int
    flight: int
    kafka: int
    ydb: int
    cursus: int
    native: int
    pid: int
    topic_ids: dict[str, UUID]
    tokens: dict[str, str]

    @property
    def is_running(self) -> bool:
        """Whether the process did not end."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    def memory_bytes(self, kind: str = "VmRSS") -> int:
        """What the kernel says of the process's memory now; `VmHWM` is the most since `forget_peak`."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{kind}:")), 0)

    def forget_peak(self) -> None:
        """Let the peak begin at what it takes now."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def processor_seconds(self) -> float:
        """What all its threads have used of the processors."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


class Target:
    """The server, on a store of its own."""

    def __init__(self, directory: Path, *arguments: str, installed: bool = False) -> None:
        store = f"file:{directory}/store"
        tokens: dict[str, str] = {}
        topic_ids: dict[str, UUID] = {}
        with Broker.open(store) as broker:
            for topic, partitions in TOPICS.items():
                broker.create_topic(topic, partitions)
                topic_ids[topic] = topic_uuid(broker.reader(topic).topic_id)
            broker.register_group(WIDE, GROUP)
            broker.register_group(NARROW, GROUP)
            broker.register_group(NARROW, FIXED_GROUP, consumers=1)
            broker.commit_offsets(WIDE, GROUP, dict.fromkeys(range(PARTITIONS_MAX), 0))
            for name, grant in GRANTS.items():
                tokens[name] = broker.access.create(name, [grant])[1]
        self._ports = [ReservedPort() for _ in PROTOCOLS]
        kafka, ydb, cursus, native = (port.number for port in self._ports)
        options = [
            each
            for port, name in zip(self._ports, PROTOCOLS, strict=True)
            for each in (name, f"127.0.0.1:{port.number}")
        ]
        options += ["--log-level", "error", *arguments]
        self._server = Server(store, *options, installed=installed)
        pid = self._server.process.pid
        resource.prlimit(pid, resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        flight = int(self._server.flight_url.rpartition(":")[2])
        self.address = Address(self._server.port, flight, kafka, ydb, cursus, native, pid, topic_ids, tokens)

    @property
    def log(self) -> str:
        """What it said on stderr: errors, and no warnings."""
        return self._server.err

    @property
    def exit_code(self) -> int | None:
        """The exit code of a process that has ended, or the number of the signal that ended it, below zero."""
        return self._server.process.poll()

    def close(self) -> None:
        """End it in any case."""
        self._server.close()
        for port in self._ports:
            port.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

"""What a server process says about itself for a bug report."""

from __future__ import annotations

import msgspec


class ProcessReport(msgspec.Struct, frozen=True):
    """A server process: its versions, what each thread does now, and its last log lines, oldest first."""

    server_id: str
    pid: int
    versions: dict[str, str]
    stacks: dict[str, str]
    logs: list[str]

"""What a check of a store found: damage, harmless leftovers of crashes, and gaps of earlier losses."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["damage", "leftover", "gap"]
Repair = Literal["none", "possible", "done"]
CheckState = Literal["impossible", "never", "running", "finished", "failed"]


class Finding(msgspec.Struct, frozen=True):
    """Something wrong in a file.

    kind: `damage` if bytes are not what was written, or are missing; `leftover` if a crash left something that opening
        the store cleans up; `gap` if messages were lost before and their offsets are skipped.
    repair: whether it can be repaired without the loss of anything readable, or was.
    """

    file: str
    position: int
    kind: Kind
    what: str
    repair: Repair = "none"


class StoreReport(msgspec.Struct):
    """What was checked, and what was found."""

    topics: int = 0
    segments: int = 0
    frames: int = 0
    messages: int = 0
    bytes: int = 0
    archive_files: int = 0
    findings: list[Finding] = []

    @property
    def is_damaged(self) -> bool:
        """Whether there is damage that was not repaired."""
        return any(finding.kind == "damage" and finding.repair != "done" for finding in self.findings)


class StoreCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The last check of a store that a server did while it ran, or the one it is doing.

    state: `impossible` if the engine cannot check itself (`problem` says what can), `never` since the server started.
    topics: how many topics there were when it began; `report.topics` of them are checked.
    problem: why it failed, or is impossible.
    """

    state: CheckState
    started_us: int | None = None
    ended_us: int | None = None
    topics: int = 0
    report: StoreReport
    problem: str = ""

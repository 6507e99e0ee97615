"""Checks a disk store while its server writes to it: the same checks as the doctor's, and no repairs.

What is being written, rolled or dropped by retention while it is read may look like damage. It no longer does when it
is read again, and damage does: so only what several looks in a row find is reported. Leftovers of crashes are not
looked for, since a running store always has unfinished files.

Files are read into memory, a segment at a time, and not mapped: to touch a part of a map that another thread cut off
would end the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from headrace.core.hashes.columns import Int64s
from headrace.core.reports.store_check import Finding, StoreReport
from headrace.storage.disk.doctor.catalog_check import CheckedCatalog, check_catalog
from headrace.storage.disk.doctor.log_check import LogCheck
from headrace.storage.disk.files.filesystem import FileSystem

# How many looks must find the same, and how many are tried.
LOOKS: Final = 3
ATTEMPTS: Final = 12


class CopyingFileSystem(FileSystem):
    """Reads files in place of mapping them."""

    def map(self, path: Path) -> memoryview:
        """The current content of a file, copied."""
        return memoryview(self.read(path, self.size(path)))


class RunningDoctor:
    """A check of a store that is open; `partitions` are those of its topics now, by topic id."""

    def __init__(
        self,
        catalog: Path,
        topics: Path,
        partitions: Callable[[], dict[int, int]],
        files: FileSystem | None = None,
    ) -> None:
        self._catalog = catalog
        self._topics = topics
        self._partitions = partitions
        self._files = files or CopyingFileSystem()

    def run(self) -> Iterator[StoreReport]:
        """Check everything; yields the report so far after the catalog and each topic."""
        report = StoreReport()
        # Before the logs: offsets that are committed now are within what is read of them later.
        catalog = self._check_catalog()
        report.findings += [self._of_catalog(complaint) for complaint in catalog.complaints]
        yield report
        ends: dict[int, Int64s] = {}
        for topic_id, partitions in self._partitions().items():
            reached = self._check_log(topic_id, partitions, report)
            if reached is not None:
                ends[topic_id] = reached
            yield report
        report.findings += [self._of_catalog(complaint) for complaint in catalog.offsets_past(ends)]
        yield report

    def _of_catalog(self, complaint: str) -> Finding:
        return Finding(str(self._catalog), 0, "damage", complaint)

    def _check_catalog(self) -> CheckedCatalog:
        checked = check_catalog(self._catalog, is_closed=False)
        for _ in range(LOOKS - 1):
            if not checked.complaints:
                break
            known, checked = checked.complaints, check_catalog(self._catalog, is_closed=False)
            checked.complaints = [each for each in checked.complaints if each in known]
        return checked

    def _check_log(self, topic_id: int, count: int | None, report: StoreReport) -> Int64s | None:
        """Check one topic, as often as it takes; its ends, if it is whole."""
        directory = self._topics / f"{topic_id:09d}"
        known: list[Finding] = []
        looked = 0
        for attempt in range(ATTEMPTS):
            count = count if attempt == 0 else self._partitions().get(topic_id)
            if count is None:
                # It was deleted meanwhile.
                return None
            seen = StoreReport()
            check = LogCheck(self._files, directory, topic_id, count, False, seen)
            try:
                check.run()
            except FileNotFoundError:
                # Retention dropped a segment after it was listed, or there is a newer snapshot.
                continue
            looked += 1
            found = [each for each in seen.findings if each.kind != "leftover"]
            known = found if looked == 1 else [each for each in found if each in known]
            if looked == LOOKS or all(each.kind == "gap" for each in known):
                _add(report, seen, known)
                return check.ends
        moving = "it changed while it was read: check the store again when less is written"
        _add(report, StoreReport(), [Finding(str(directory), 0, "leftover", moving)])
        return None


def _add(report: StoreReport, seen: StoreReport, findings: list[Finding]) -> None:
    """Add what was seen of one topic."""
    report.topics += 1
    for name in ("segments", "frames", "messages", "bytes"):
        setattr(report, name, getattr(report, name) + getattr(seen, name))
    report.findings += findings

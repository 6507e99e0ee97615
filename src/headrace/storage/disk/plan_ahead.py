"""Planning ahead: the next frame of a large commit is planned by a thread while the last one is written.

Both are heavy work on whole columns outside of Python's lock, so they share two cores. One frame waits at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from headrace.core.publish.state import Commit


def planned_ahead(commits: Iterable[Commit]) -> Iterator[Commit]:
    """The same commits, each begun when the one before it is taken; whatever planning raises is raised here."""
    planning = iter(commits)
    with ThreadPoolExecutor(1, "headrace-planning") as planner:
        coming: Future[Commit | None] = planner.submit(next, planning, None)
        while (commit := coming.result()) is not None:
            coming = planner.submit(next, planning, None)
            yield commit

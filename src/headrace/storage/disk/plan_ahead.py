"""Plans the next frame of a large commit in a thread while the last one is written.

Both work on whole columns without the GIL, so they use two cores. At most one planned frame waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from headrace.core.publish.state import Commit


def planned_ahead(commits: Iterable[Commit]) -> Iterator[Commit]:
    """The same commits, each planned once the one before it was taken; raises what planning raises."""
    planning = iter(commits)
    with ThreadPoolExecutor(1, "headrace-planning") as planner:
        coming: Future[Commit | None] = planner.submit(next, planning, None)
        while (commit := coming.result()) is not None:
            coming = planner.submit(next, planning, None)
            yield commit

"""The system refuses to show a file: too many are open, or the device fails. Nothing is lost, and a retry helps."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.broker import Broker
from headrace.core.errors import StoreUnavailable
from tests.faults.filesystems import EVERY_LOOK, FailingFileSystem
from tests.faults.invariants import TINY, Ledger, Message, check, opened, verify

ERRORS = [errno.EMFILE, errno.EIO, errno.EACCES]
LOOKS: dict[str, Callable[[Broker], object]] = {
    "fetch": lambda broker: [broker.fetch("t", p, o) for p in (0, 1) for o in range(0, 14, 3)],
    "offset by time": lambda broker: [broker.offset_at("t", p, 0) for p in (0, 1)],
    "lag of a group": lambda broker: broker.describe_group("t", "readers").lag_seconds,
    "description": lambda broker: broker.describe_topic("t").bytes_stored,
}


def filled(directory: Path) -> Ledger:
    """A store with four segments."""
    ledger = Ledger()
    with opened(directory) as broker:
        ledger.create_topic(broker, "t", 2)
        broker.register_group("t", "readers")
        for number in range(14):
            ledger.publish(broker, "t", [Message(b"v%d-%d" % (number, p), partition=p) for p in (0, 1)])
    return ledger


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.__getitem__)
@pytest.mark.parametrize("look", LOOKS)
def test_every_look_at_a_file_may_fail(place: Path, look: str, error: int) -> None:
    ledger = filled(place / "store")
    hits = 0
    for skip in itertools.count():
        files = FailingFileSystem()
        with opened(place / "store", TINY, files) as broker:
            with files.failing(error, EVERY_LOOK, skip=skip, times=1):
                try:
                    LOOKS[look](broker)
                    assert not files.hits
                except StoreUnavailable as caught:
                    assert caught.retry
            hits += len(files.hits)
            # The next look succeeds, and publishing was never touched.
            LOOKS[look](broker)
            check(broker, ledger)
        if not files.hits:
            break
    assert hits > 0
    verify(place / "store", ledger)


def test_publishing_continues_while_nothing_can_be_read(place: Path) -> None:
    ledger = filled(place / "store")
    files = FailingFileSystem()
    with opened(place / "store", TINY, files) as broker:
        with files.failing(errno.EMFILE, EVERY_LOOK):
            for number in range(10):
                ledger.publish(broker, "t", [Message(b"blind-%d" % number)])
        check(broker, ledger)
    verify(place / "store", ledger)

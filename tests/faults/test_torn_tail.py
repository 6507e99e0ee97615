"""The last commit was being written when the process died: its frames end at any byte, or in zeros, or in rubbish."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.core.limits import FRAME_ROWS
from headrace.storage.disk.files import frame
from tests.faults.invariants import Attempt, Ledger, Message, verify
from tests.faults.logs import Prepared, opened_log, prepare, read_rows, topic_of

LAST_SEQNOS = range(100, 109)


def commits() -> list[list[Message]]:
    """Two segments and a half; the last commit has nine messages of one source over three partitions."""
    before = [[Message(b"v%d-%d" % (n, p), b"k", "a", None, 3 * n + p, p) for p in range(3)] for n in range(9)]
    return [*before, [Message(b"last-%d" % n, None, "a", "", n, n % 3) for n in LAST_SEQNOS]]


TEARS: dict[str, Callable[[bytes, int], bytes]] = {
    "cut": lambda data, length: data[:length],
    "zeros": lambda data, length: data[:length] + bytes(len(data) - length),
    "rubbish": lambda data, length: data[:length] + random.Random(length).randbytes(len(data) - length),
}


def frames_of(log: Path) -> list[tuple[int, frame.Header]]:
    """The frames in a segment of topic 1 with three partitions."""
    view = memoryview(log.read_bytes())
    position = frame.ALIGNMENT
    frames = []
    while position < len(view):
        header = frame.read_intact(view, position, 1, log.name)
        assert header is not None
        frames.append((position, header))
        position += header.bytes
    return frames


def last_commit(log: Path) -> tuple[int, int]:
    """Where the last commit of a segment begins, and how many frames it has."""
    frames = frames_of(log)
    count = 1
    while len(frames) > count and frames[-count - 1][1].continues:
        count += 1
    return frames[-count][0], count


@pytest.fixture(params=[1, 3], ids=["one frame", "three frames"])
def prepared(request: pytest.FixtureRequest, place: Path) -> Prepared:
    frame_rows = 3 if request.param > 1 else FRAME_ROWS
    prepared = prepare(place / "store", 3, commits(), closed=False, frame_rows=frame_rows)
    assert last_commit(prepared.logs[-1])[1] == request.param
    return prepared


def ends_of(log: Path, step: int) -> list[int]:
    """Where the last commit may end: every so many bytes, and at each byte near the parts of its frames."""
    start, count = last_commit(log)
    frames = frames_of(log)[-count:]
    edges = [edge for at, header in frames for edge in (at, at + header.body, at + header.bytes)]
    return [
        length
        for length in range(start, log.stat().st_size + 1)
        if (length - start) % step == 0 or any(abs(length - edge) <= 8 for edge in edges)
    ]


@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.campaign)])
@pytest.mark.parametrize("tear", TEARS)
def test_torn_tail_at_any_byte(prepared: Prepared, tear: str, step: int) -> None:
    log_path = prepared.logs[-1]
    data = log_path.read_bytes()
    start, _ = last_commit(log_path)
    torn = 0
    with topic_of(prepared) as (store, topic):
        for place, length in enumerate(ends_of(log_path, step)):
            left = TEARS[tear](data, length)
            log_path.write_bytes(left)
            is_whole = left == data
            torn += not is_whole
            with opened_log(store, topic) as log:
                assert not log.damage
                assert log.state.sources.last_seqno(("a", "")) == (108 if is_whole else 26)
                assert log.offsets().end.tolist() == [12 if is_whole else 9] * 3
                # One partition in turn is read whole.
                partition = place % 3
                rows = [b"v%d-%d" % (n, partition) for n in range(9)]
                rows += [b"last-%d" % n for n in LAST_SEQNOS if n % 3 == partition and is_whole]
                assert read_rows(log, partition, 0) == list(enumerate(rows))
            assert log_path.stat().st_size == (len(data) if is_whole else start)
    assert torn > 90


@pytest.mark.parametrize("tear", TEARS)
def test_a_torn_commit_is_repeated_and_work_continues(prepared: Prepared, tear: str, place: Path) -> None:
    name = prepared.logs[-1].relative_to(prepared.directory)
    data = prepared.logs[-1].read_bytes()
    start, _ = last_commit(prepared.logs[-1])
    for length in range(start, len(data) + 1, 331):
        shutil.rmtree(place / "copy", ignore_errors=True)
        shutil.copytree(prepared.directory, place / "copy")
        (place / "copy" / name).write_bytes(TEARS[tear](data, length))
        verify(place / "copy", ledger_of(prepared))


def ledger_of(prepared: Prepared) -> Ledger:
    """The book of a store whose last commit was not acknowledged."""
    attempts = [Attempt("t", tuple(messages)) for messages in commits()]
    for attempt in attempts[:-1]:
        attempt.places = [place for message in attempt.messages for place in places_of(prepared, message)]
    return Ledger(topics={"t": 3}, attempts=attempts)


def places_of(prepared: Prepared, message: Message) -> list[tuple[int, int]]:
    return [place for place, other in prepared.messages.items() if other == message]

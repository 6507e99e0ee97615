"""One verification: its own topic, clients in threads, then the groups catch up and the log is read.

Every client has a connection of its own; with several servers each begins with another one. After the clients stopped
publishing the groups have to catch up, and then the whole topic is read and recorded. Only a server that cannot be
reached for the whole of `patience_seconds` ends a verification early; everything else is an outcome to be recorded.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from headrace.client import Client, connect
from headrace.core.errors import Damaged, HeadraceError, OffsetOutOfRange
from headrace.verify.history.events import Began, ClientFailed, GapReported, LogEnd, LogRead, Note, OffsetsSeen, Stalled
from headrace.verify.history.file import Recorder
from headrace.verify.members import Members
from headrace.verify.operators import Observer, Operator
from headrace.verify.publishers import BatchPublisher, Connect, MessagePublisher, StagePublisher, message_id
from headrace.verify.workload import IMPORTANT_GROUP, Workload

logger = logging.getLogger(__name__)

_READ_MESSAGES: Final = 5_000
_LOOK_SECONDS: Final = 0.5
_JOIN_SECONDS: Final = 120.0


class VerifyRun:
    """One verification. `note` may be called from any thread while it runs."""

    def __init__(
        self,
        url: str,
        workload: Workload,
        history: Path,
        token: str | None = None,
        root_certificates: str | None = None,
        topic: str | None = None,
    ) -> None:
        workload.check()
        self.topic = topic or f"verify-{uuid.uuid4().hex[:12]}"
        self._workload = workload
        self.history = history
        self._connect = _connections(url, token, root_certificates, workload.patience_seconds)
        self._recorder: Recorder | None = None
        # Set while clients publish: faults are injected only then.
        self.is_publishing = threading.Event()

    def note(self, text: str) -> None:
        """Record that something happened beside the clients."""
        if self._recorder is not None:
            self._recorder.record(Note(text, time.monotonic_ns()))

    def run(self, keep: bool = False) -> None:
        """Do all of it, and write the history; the topic is deleted at the end unless it is to be kept."""
        workload = self._workload
        with Recorder(self.history) as recorder, self._connect() as client:
            self._recorder = recorder
            recorder.record(Began(self.topic, seed=workload.seed))
            settings: dict[str, Any] = {}
            if workload.retention_bytes is not None:
                settings["retention_bytes"] = workload.retention_bytes
            client.create_topic(self.topic, partitions=workload.partitions, **settings)
            for group in workload.group_names():
                client.register_group(self.topic, group, important=group == IMPORTANT_GROUP)
            try:
                self._work(client, recorder)
                read_log(client, self.topic, recorder)
            finally:
                if not keep:
                    client.delete_topic(self.topic)

    def _work(self, client: Client, recorder: Recorder) -> None:
        workload = self._workload
        stop_publishing, stop, settle = threading.Event(), threading.Event(), threading.Event()
        publishing = [
            self._started(publisher.name, publisher.run, self._connect, stop_publishing, workload.patience_seconds)
            for publisher in self._publishers(recorder)
        ]
        operator = Operator(self.topic, workload, recorder)
        publishing.append(self._started("operator", operator.run, self._connect, stop_publishing))
        observer = Observer(self.topic, workload.group_names(), recorder)
        reading = [self._started("observer", observer.run, self._connect, stop)]
        for group, place in itertools.product(workload.group_names(), range(workload.consumers)):
            members = Members(group, place, self.topic, recorder, workload.seed)
            reading.append(self._started(f"{group}-{place}", members.run, self._connect, stop, settle))
        try:
            self.is_publishing.set()
            time.sleep(workload.seconds)
            self.is_publishing.clear()
            stop_publishing.set()
            _join(publishing)
            settle.set()
            self._catch_up(client, observer, recorder)
        finally:
            stop_publishing.set()
            settle.set()
            stop.set()
            _join([*publishing, *reading])

    def _publishers(self, recorder: Recorder) -> list[BatchPublisher | MessagePublisher | StagePublisher]:
        workload = self._workload
        made: list[BatchPublisher | MessagePublisher | StagePublisher] = []
        for number in range(workload.producers):
            common = (self.topic, recorder, workload.rate, workload.seed)
            match number % 5:
                case 0:
                    made.append(BatchPublisher(f"source-{number}", *common, is_source=True, has_keys=True))
                case 1:
                    made.append(StagePublisher(f"writer-{number}", *common))
                case 2:
                    made.append(BatchPublisher(f"nameless-{number}", *common, is_source=False, has_keys=False))
                case 3:
                    made.append(MessagePublisher(f"single-{number}", *common))
                case _:
                    made.append(BatchPublisher(f"linked-{number}", *common, is_source=True, has_keys=False))
        return made

    def _started(self, name: str, target: Callable[..., None], *arguments: Any) -> threading.Thread:
        """A client in its own thread; an unexpected error of it becomes part of the history."""

        def top() -> None:
            try:
                target(*arguments)
            except Exception as error:
                logger.exception("client %r of the verification failed", name)
                assert self._recorder is not None, "clients run while the history is open"
                self._recorder.record(ClientFailed(name, repr(error)[:500], time.monotonic_ns()))

        thread = threading.Thread(target=top, name=f"headrace-verify-{name}", daemon=True)
        thread.start()
        return thread

    def _catch_up(self, client: Client, observer: Observer, recorder: Recorder) -> None:
        """Wait until the groups have committed everything, as long as they make progress."""
        lags: dict[str, int] = {}
        moved_at = time.monotonic()
        while time.monotonic() - moved_at < self._workload.stall_seconds:
            try:
                observer.look(client)
                present = {
                    group: client.describe_group(self.topic, group).lag_messages
                    for group in self._workload.group_names()
                }
            except HeadraceError:
                time.sleep(_LOOK_SECONDS)
                continue
            if not any(present.values()):
                return
            if present != lags:
                lags, moved_at = present, time.monotonic()
            time.sleep(_LOOK_SECONDS)
        for group, lag in lags.items():
            if lag:
                recorder.record(Stalled(group, lag, self._workload.stall_seconds))


def read_log(client: Client, topic: str, recorder: Recorder) -> None:
    """Read a whole topic and record it."""
    offsets = client.offsets(topic)
    recorder.record(OffsetsSeen(offsets, time.monotonic_ns()))
    for partition, (start, end) in offsets.items():
        position = start
        while position < end:
            try:
                batch = client.read(topic, partition, position, min(_READ_MESSAGES, end - position))
            except OffsetOutOfRange as error:
                # Retention dropped it since the offsets were asked for.
                start = position = max(error.start, position + 1)
                continue
            except Damaged as error:
                recorder.record(GapReported(partition, position, position + 1, str(error)))
                position += 1
                continue
            if not batch.num_rows:
                break
            places = batch.column("offset").to_pylist()
            ids = [message_id(value) for value in batch.column("value").to_pylist()]
            # Each at the offset that it says itself: consecutive ones in one event.
            first = 0
            for place in range(1, len(places) + 1):
                if place == len(places) or places[place] != places[place - 1] + 1:
                    recorder.record(LogRead(partition, places[first], ids[first:place]))
                    first = place
            position = places[-1] + 1
        recorder.record(LogEnd(partition, start, end))


def _connections(url: str, token: str | None, root_certificates: str | None, patience_seconds: float) -> Connect:
    """Connections that start with the servers in turn."""
    addresses = url.split(",")
    scheme = addresses[0].partition("://")[0]
    addresses = [address if "://" in address else f"{scheme}://{address.strip()}" for address in addresses]
    numbers = itertools.count()

    def make() -> Client:
        first = next(numbers) % len(addresses)
        turned = [*addresses[first:], *addresses[:first]]
        return connect(turned, token, root_certificates=root_certificates, timeout_seconds=patience_seconds)

    return make


def _join(threads: list[threading.Thread]) -> None:
    deadline = time.monotonic() + _JOIN_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))

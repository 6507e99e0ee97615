"""The facade: everything Headrace does in process, as methods of one object.

    with Broker.open("file:./headrace-data") as broker:
        broker.create_topic("orders", partitions=8)
        receipts = broker.publish("orders", record_batch)
        batch = broker.fetch("orders", partition=0, offset=0)

Thread-safe. Servers and clients use only this facade.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TypeVar, Unpack

import pyarrow as pa

from headrace.broker.access import Access
from headrace.broker.archive_tasks import ArchiveTasks
from headrace.broker.checks import (
    check_batch,
    check_byte_ranges,
    check_commit_key,
    check_epoch,
    check_indexes,
    check_offsets,
    check_stage_names,
    check_staged,
    check_text,
    check_topics,
)
from headrace.broker.clock import Clock, DatabaseClock, SystemClock
from headrace.broker.cluster.notifications import Notifications
from headrace.broker.cluster.servers import Servers
from headrace.broker.counters import Counters
from headrace.broker.describe import archive_of, describe_group, describe_member, describe_topic
from headrace.broker.groups.claims import GroupClaims
from headrace.broker.maintenance import Maintenance, Task
from headrace.broker.maintenance_tasks import MaintenanceTasks
from headrace.broker.monitoring.health import HealthWatch
from headrace.broker.monitoring.metrics import StoreMetrics, TopicMetrics, all_topic_metrics
from headrace.broker.monitoring.store_checks import StoreChecks
from headrace.broker.publish import stages as stages_of
from headrace.broker.publish.intake import TopicIntake
from headrace.broker.publish.producers import open_producer
from headrace.broker.publish.submission import Fence, Submission
from headrace.broker.publish.transactions import StoreTransactions
from headrace.broker.queue_api.registrations import Registrations
from headrace.broker.read.byte_limits import stops_within
from headrace.broker.read.topic_reader import TopicReader
from headrace.broker.read.wakeups import ALL_PARTITIONS
from headrace.broker.settings import ArchiveSettings, BrokerSettings, QueueApiSettings, TopicDefaults
from headrace.broker.topics.registry import Topics
from headrace.core.archive.manifest import ArchiveSnapshot
from headrace.core.checks import check_index, check_seconds, check_whole
from headrace.core.errors import IdNotFound, InvalidInput, MessagesHeld, StorageError, TopicDeleted, TopicNotFound
from headrace.core.groups import group as rules
from headrace.core.groups.group import Held, ReadFrom
from headrace.core.health.findings import Health
from headrace.core.limits import (
    CLOCK_COMPARE_SECONDS,
    DESCRIBED_TOPICS_MAX,
    FETCH_BYTES_DEFAULT,
    FETCH_BYTES_MAX,
    FETCH_MESSAGES_DEFAULT,
    FETCH_MESSAGES_MAX,
    FETCH_WAIT_SECONDS_MAX,
    HEALTH_CHECK_SECONDS,
    LAST_COMMITS_TOPICS_MAX,
    MAX_POLL_SECONDS,
    MICROSECONDS,
    SEQNO_MAX,
    SERVER_HEARTBEAT_SECONDS,
    SESSION_TIMEOUT_SECONDS,
    SOURCES_LISTED,
    SOURCES_LISTED_MAX,
    STOP_SECONDS,
    TIME_US_MAX,
)
from headrace.core.messages import accept
from headrace.core.names import check_group_name, check_id
from headrace.core.publish.receipts import Receipts
from headrace.core.publish.state import CommitKey
from headrace.core.reports.descriptions import (
    CommitOutcome,
    GroupDescription,
    Membership,
    ProducerOpening,
    ServerDescription,
    SourceDescription,
    Staged,
    TopicDescription,
    TransactionOffsets,
    TransactionOutcome,
)
from headrace.core.reports.pipelines import PipelineDescription, PipelineReport, check_report, listed_state
from headrace.core.reports.server_settings import ServerSettings, describe_settings
from headrace.core.reports.store_check import StoreCheck
from headrace.core.topics.retention import trimmed
from headrace.core.topics.settings import TopicOptions
from headrace.storage.interface import Store
from headrace.storage.open import open_store

Result = TypeVar("Result")


class Broker:
    """A broker over one open store."""

    def __init__(
        self,
        store: Store,
        settings: BrokerSettings | None = None,
        clock: Clock | None = None,
        queue_api: QueueApiSettings | None = None,
        topic_defaults: TopicDefaults | None = None,
        archive: ArchiveSettings | None = None,
    ) -> None:
        self.settings = settings or BrokerSettings()
        self.counters = Counters()
        self._store = store
        self._clock = clock or SystemClock()
        comparisons: dict[Task, float] = {}
        if clock is None and store.signals is not None:
            self._clock = shared = DatabaseClock(self._clock, store.catalog.database_us)
            comparisons[shared.compare] = CLOCK_COMPARE_SECONDS
        self.started_us = self._clock.now_us()
        self.servers = Servers(store, self._clock)
        self._topics = Topics(store, self.settings, self._clock, self.counters, self.servers, topic_defaults, archive)
        self.access = Access(store.catalog, self._clock)
        self.registrations = Registrations(self._topics, store.catalog, self._clock, queue_api)
        self._transactions = StoreTransactions(store, self._topics, self._clock)
        chores = MaintenanceTasks(
            store, self._topics, self.registrations, self.settings, self._clock, self.counters, self.servers
        )
        self.claims = GroupClaims(self._topics, store.catalog, self.servers)
        self._checks = StoreChecks(store, self._clock)
        # What `describe_settings` tells: a server has more settings than its broker, and replaces it.
        self.described_settings = list(describe_settings(self.settings, prefix="broker."))
        self.health = HealthWatch(self, self._clock, self.servers.id)
        own = {
            self.servers.beat: SERVER_HEARTBEAT_SECONDS,
            self.claims.release: self.settings.members_check_seconds,
            self.health.look: HEALTH_CHECK_SECONDS,
        }
        self.maintenance = Maintenance(chores.tasks() | own | comparisons)
        holder = self.servers.id if self.servers.is_shared else None
        self.archiving = ArchiveTasks(
            self._topics.archives, self._topics, archive or ArchiveSettings(), self._clock, self.counters, holder
        )
        self.archive_maintenance = Maintenance(self.archiving.tasks(), "archive")
        if store.signals is not None:
            store.signals.listen(Notifications(self._topics).receive)
        self._closing = threading.Lock()
        self._closed = False

    @classmethod
    def open(
        cls,
        url: str,
        settings: BrokerSettings | None = None,
        clock: Clock | None = None,
        queue_api: QueueApiSettings | None = None,
        topic_defaults: TopicDefaults | None = None,
        archive: ArchiveSettings | None = None,
    ) -> Broker:
        """Open the store at a URL and start maintenance."""
        store = open_store(check_text("store", url))
        try:
            broker = cls(store, settings, clock, queue_api, topic_defaults, archive)
        except BaseException:
            store.close()
            raise
        broker.start()
        return broker

    def start(self) -> None:
        """Start maintenance."""
        self.health.start()
        self.maintenance.start()
        self.archive_maintenance.start()

    def close(self, stop_seconds: float = STOP_SECONDS) -> None:
        """Finish accepted publishes, write snapshots so that the store opens quickly, and close it.

        Waits at most `stop_seconds` for each thread of the broker.
        """
        with self._closing:
            if not self._closed:
                self._closed = True
                self.archiving.stop()
                self.maintenance.close(stop_seconds)
                self.archive_maintenance.close(stop_seconds)
                self._topics.close()
                self._checks.close(stop_seconds)
                self.servers.leave()
                self._store.close()

    @property
    def topics(self) -> Topics:
        """The open topics: what is below the facade, for tools and tests in the same process."""
        return self._topics

    @property
    def store(self) -> Store:
        """The open store, for the same."""
        return self._store

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def list_servers(self) -> list[ServerDescription]:
        """The running servers of the store, in the order they started, with their addresses."""
        return self.servers.list()

    def describe_settings(self) -> ServerSettings:
        """The settings that this server runs with, without secrets."""
        return ServerSettings(self.servers.id, self.described_settings)

    def check_store(self) -> StoreCheck:
        """Begin to check every frame, index and catalog row of the store in the background, unless a check runs.

        Reads all of the store once. `last_store_check` tells how far it is, and what it found.
        """
        return self._checks.start()

    def last_store_check(self) -> StoreCheck:
        """The check that runs, or the last one since this server started."""
        return self._checks.last()

    def describe_health(self) -> Health:
        """What needs attention at this server and in its store, as it judges itself."""
        return self.health.latest()

    # Topics

    def create_topic(
        self, /, name: str, partitions: int | None = None, **settings: Unpack[TopicOptions]
    ) -> TopicDescription:
        """Create a topic, by default with one partition or as configured for the store.

        An existing topic is unchanged, except that missing partitions are added. Fewer partitions or other settings
        are an error.
        """
        opened = self._topics.create(name, partitions, dict(settings))
        opened.groups.share_out()
        return describe_topic(opened)

    def alter_topic(
        self, /, name: str, partitions: int | None = None, **settings: Unpack[TopicOptions]
    ) -> TopicDescription:
        """Change settings, or add partitions."""
        opened = self._topics.alter(name, partitions, dict(settings))
        opened.groups.share_out()
        return describe_topic(opened)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and free its disk space; waiting readers and publishers get `TopicDeleted`."""
        self._topics.delete(name)

    def trim_topic(self, name: str, before_us: int) -> int:
        """Delete the messages written before a time, once; returns how many.

        Whole segments are deleted, so some older messages may stay, and nothing that an important group has not read.
        """
        check_whole("before_us", before_us, 0, TIME_US_MAX)
        opened, now_us = self._topics.find(name), self._clock.now_us()
        age_seconds = max(0, -((before_us - now_us) // MICROSECONDS))
        settings = trimmed(opened.record.settings, age_seconds)
        before = opened.topic.offsets().start
        # Hidden at once and durably, in the log and in the archive: these are freed one after the other.
        with suppress(MessagesHeld):
            self._topics.delete_before(name, opened.outlived(settings, now_us))
        opened.groups.drop_outlived(now_us, settings)
        after = opened.topic.offsets().start
        return int(after.sum() - before.sum())

    def delete_messages(self, name: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete the messages of partitions below an offset each; returns the start offset of these partitions.

        Nobody can read them any more when this returns; their space is freed later, in whole segments. If an important
        group has not read up to one of the offsets, nothing is deleted.
        """
        offsets = check_offsets(before, "before")
        start = self._topics.delete_before(name, offsets).topic.offsets().start
        return {partition: int(start[partition]) for partition in offsets}

    def list_topics(self) -> list[str]:
        """The names of all topics, in the order of creation."""
        return [record.name for record in self._topics.records()]

    def knows_topic(self, name: str) -> bool:
        """Whether a topic can be found without blocking; another server of a shared store may have created it."""
        return self._topics.knows(name)

    def known_topics(self) -> list[str]:
        """The names of the topics that are known without blocking, in the order of creation."""
        return [opened.record.name for opened in self._topics.all()]

    def topics_version(self) -> int:
        """Changes whenever a topic is created, altered or deleted, as far as that is known here."""
        return self._topics.version

    def known_topic_name(self, topic_id: int) -> str | None:
        """The name of the topic with this id, if it is known without blocking."""
        found = self._topics.of_id(topic_id)
        return None if found is None else found.record.name

    def topic_name(self, topic_id: int) -> str:
        """The name of the topic with this id."""
        found = self._topics.find_id(topic_id)
        if found is None:
            raise IdNotFound("topic", str(topic_id), "no topic has this id: it was deleted")
        return found.record.name

    def describe_topic(self, name: str) -> TopicDescription:
        """Describe a topic."""
        return describe_topic(self._topics.find(name, is_newest=True))

    def describe_topics(self, topics: Sequence[str]) -> list[TopicDescription]:
        """Describe some topics, but those that are not found, or cannot be opened: `describe_topic` says why."""
        found = []
        for name in check_topics(topics, DESCRIBED_TOPICS_MAX):
            with suppress(TopicNotFound, TopicDeleted, StorageError):
                found.append(describe_topic(self._topics.find(name)))
        return found

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """Start and end offset by partition."""
        return self._topics.find(topic).topic.offsets().by_partition()

    def archive(self, topic: str) -> ArchiveSnapshot:
        """The archive of a topic at this moment: its files, how far it is complete, and the offsets of the topic."""
        return archive_of(self._topics.find(topic).topic, self._topics.archives.url)

    def topic_metrics(self, partitions_max: int | None = None) -> list[TopicMetrics]:
        """Metrics of every topic; one that ends meanwhile is skipped.

        Groups include their positions unless there are more groups and partitions than `partitions_max`.
        """
        return all_topic_metrics(self._topics, self._clock.now_us(), partitions_max)

    def store_metrics(self) -> StoreMetrics:
        """Metrics of the store as a whole."""
        size_bytes, free_bytes = self.disk_space() or (None, None)
        tokens, expiring = self.access.counts()
        return StoreMetrics(
            servers=len(self.list_servers()),
            topics=len(self._topics.records()),
            tokens=tokens,
            tokens_expiring=expiring,
            failing_topics=sorted(self.failing_topics()),
            disk_size_bytes=size_bytes,
            disk_free_bytes=free_bytes,
        )

    def failing_topics(self) -> dict[str, str]:
        """The topics that accept no messages until the store is reopened, with the reason."""
        return self._topics.failing()

    def disk_space(self) -> tuple[int, int] | None:
        """The size and the free space of the file system of the store; None if it is not on one."""
        return self._store.disk_space()

    def can_write(self) -> bool:
        """Whether the store takes new data: not if its disk is full or fails."""
        return self._store.can_write()

    def topics_with_gaps(self) -> dict[str, int]:
        """The topics that skip offsets because messages were lost, and how many they skip."""
        return self._topics.with_gaps()

    # Publishing

    def publish(
        self,
        topic: str,
        batch: pa.RecordBatch,
        commit_key: CommitKey | None = None,
        timeout_seconds: float | None = None,
    ) -> Receipts:
        """Write a batch in one commit over all its partitions; returns a receipt per message, in the order sent.

        If the number of the commit key is at or below the last one of its writer, nothing is written, and every
        receipt has the status `duplicate`.
        """
        patience, found = self._patience(timeout_seconds), self._topics.find(topic).topic
        return found.intake.publish(Submission([check_batch(batch)], check_commit_key(commit_key)), patience)

    def intake(self, topic: str) -> TopicIntake:
        """What waits to be written to a topic: for servers, which publish without a thread for each publisher."""
        return self._topics.find(topic).topic.intake

    def end_waits(self) -> None:
        """Answer publishers at once that wrote faster than their topics allow: the server stops."""
        for opened in self._topics.all():
            opened.topic.intake.end_waits()

    def publish_numbered(self, topic: str, client: str, value: bytes, partition: int | None = None) -> float:
        """Publish a message as the next one of a client of the queue API that counts its messages.

        Returns for how many seconds the client is to be answered later, since it writes too fast.
        """
        return self.registrations.clients.publish(topic, client, value, partition, self._patience(None))

    def last_seqno(self, topic: str, producer_id: str, message_group_id: str = "") -> int | None:
        """The highest seqno written for a source, or None; its producer continues after it."""
        source = (check_text("producer_id", producer_id), check_text("message_group_id", message_group_id))
        return self._topics.find(topic).topic.between_commits(lambda state: state.sources.last_seqno(source))

    def list_sources(
        self, topic: str, producer_id: str | None = None, max_sources: int = SOURCES_LISTED
    ) -> list[SourceDescription]:
        """The sources of a topic, or of one producer, that wrote last, newest first."""
        name = None if producer_id is None else check_text("producer_id", producer_id)
        most, now_us = check_whole("max_sources", max_sources, 1, SOURCES_LISTED_MAX), self._clock.now_us()
        found = self._topics.find(topic).topic
        return found.between_commits(lambda state: state.sources.described(now_us, name, most))

    def reset_source(self, topic: str, producer_id: str, message_group_id: str = "") -> int | None:
        """Reset the highest seqno of a source, durably, so that its next message may have any; returns the old one.

        Its producers can continue to write. A message that is sent again after the reset is written again.
        """
        source = check_text("producer_id", producer_id), check_text("message_group_id", message_group_id)
        return self._topics.find(topic).topic.reset_source(source)

    def open_producer(
        self, topic: str, producer_id: str = "", message_group_id: str = "", epoch: int | None = None
    ) -> ProducerOpening:
        """Open the producer of a source, which fences the previous one; or continue with a known epoch.

        Without a producer id nothing is opened, and the answer only has the limits of the topic.
        """
        found, last_seqno, linked, opened = self._topics.find(topic).topic, None, None, 0
        if epoch is not None:
            check_epoch(epoch)
        if check_text("producer_id", producer_id):
            source = (producer_id, check_text("message_group_id", message_group_id))
            opened, last_seqno, linked = open_producer(found, source, epoch, self._clock.now_us())
        settings = found.record.settings
        return ProducerOpening(
            opened,
            last_seqno,
            found.record.partitions,
            settings.message_bytes_max,
            tuple(settings.codecs),
            settings.deduplication != "off",
            linked,
        )

    def publish_as(
        self, topic: str, batch: pa.RecordBatch, producer_id: str, message_group_id: str, epoch: int
    ) -> Receipts:
        """Publish as the producer that was opened with an epoch, unless another was opened since."""
        found, fence = self._topics.find(topic).topic, Fence((producer_id, message_group_id), check_epoch(epoch))
        return found.intake.publish(Submission([check_batch(batch)], fence=fence), self._patience(None))

    def last_commit(self, topic: str, writer: str) -> int | None:
        """The number of the last commit of a commit key writer, or None."""
        name = check_id("writer", writer)
        return self._topics.find(topic).topic.between_commits(lambda state: state.last_number(name))

    def last_commits(self, topics: Sequence[str], writer: str) -> dict[str, CommitKey]:
        """The last commit of a writer in each of some topics; those that do not exist, or have none, are left out."""
        name, keys = check_id("writer", writer), {}
        for topic in check_topics(topics, LAST_COMMITS_TOPICS_MAX):
            with suppress(TopicNotFound, TopicDeleted):
                keys[topic] = self._topics.find(topic).topic.between_commits(lambda state: state.last_key(name))
        return {topic: key for topic, key in keys.items() if key is not None}

    def stage(self, topic: str, batch: pa.RecordBatch, stage: str | None = None) -> Staged:
        """Stage rows for a later commit, in a new stage or at the end of one; they are checked now."""
        found = self._topics.find(topic).topic
        rows = accept(batch, found.record.settings, found.record.partitions)
        name = check_id("stage", stage if stage is not None else uuid.uuid4().hex)
        with found.using():
            return stages_of.stage(self._store.stages, found, rows, name, self.settings, self._clock.now_us())

    def publish_staged(
        self,
        topic: str,
        stages: Sequence[Staged],
        commit_key: CommitKey | None = None,
        timeout_seconds: float | None = None,
    ) -> tuple[int, int]:
        """Publish stages in one commit; returns how many messages were written, and how many were duplicates.

        If a stage is missing, or has another number of rows than given, nothing is written. A commit key that was
        used before drops the stages and publishes nothing.
        """
        found, key = self._topics.find(topic).topic, check_commit_key(commit_key)
        patience = self._patience(timeout_seconds)
        return stages_of.publish(self._store.stages, found, check_staged(stages), key, patience)

    def commit_transaction(
        self,
        stages: Mapping[str, Sequence[Staged]],
        offsets: Sequence[TransactionOffsets] = (),
        commit_key: CommitKey | None = None,
    ) -> TransactionOutcome:
        """Publish stages of several topics and commit offsets of groups: all of it, or nothing.

        The key is remembered for the store, whatever topics it was used for: if it is known, the stages are dropped.
        """
        return self._transactions.commit(stages, offsets, check_commit_key(commit_key))

    def drop_stages(self, topic: str, stages: Sequence[str]) -> int:
        """Drop stages that will not be published; returns how many existed."""
        return stages_of.drop(self._store.stages, self._topics.find(topic).topic, check_stage_names(stages))

    def _patience(self, timeout_seconds: float | None) -> float:
        if timeout_seconds is None:
            return self.settings.publish_timeout_seconds
        return check_seconds("timeout_seconds", timeout_seconds)

    # Reading

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_messages: int = FETCH_MESSAGES_DEFAULT,
        max_bytes: int = FETCH_BYTES_DEFAULT,
        wait_seconds: float = 0.0,
    ) -> pa.RecordBatch:
        """Read messages of a partition from an offset on, waiting for the first; at least one if there is one."""
        return self._topics.find(topic).topic.fetch(
            check_index("partition", partition),
            check_index("offset", offset),
            check_whole("max_messages", max_messages, 1, FETCH_MESSAGES_MAX),
            check_whole("max_bytes", max_bytes, 1, FETCH_BYTES_MAX),
            check_seconds("wait_seconds", wait_seconds, FETCH_WAIT_SECONDS_MAX),
        )

    def reader(self, topic: str) -> TopicReader:
        """A reader of many partitions of a topic; it ends with the topic, even if another one gets its name."""
        return TopicReader(self._topics.find(topic))

    def await_offsets(self, topic: str, known: Mapping[int, int], wait_seconds: float) -> dict[int, tuple[int, int]]:
        """Start and end offset by partition, once any end differs from the known one, with a timeout."""
        ends, patience = check_offsets(known), check_seconds("wait_seconds", wait_seconds, FETCH_WAIT_SECONDS_MAX)
        found = self._topics.find(topic).topic
        return found.watches.wait_until(
            lambda offsets: any(ends.get(partition) != end for partition, (_, end) in offsets.items()),
            lambda: found.offsets().by_partition(),
            ALL_PARTITIONS,
            patience,
        )

    def offset_at(self, topic: str, partition: int, time_us: int) -> int:
        """The first offset of a partition at or after a time; its end offset if all messages are older."""
        number, time_us = check_index("partition", partition), check_whole("time_us", time_us, 0, TIME_US_MAX)
        return self.reader(topic).positions_at(time_us, [number])[number]

    def offsets_at(self, topic: str, time_us: int, partitions: Sequence[int] | None = None) -> dict[int, int]:
        """The first offset at or after a time, of each of some or all partitions; the end where all are older."""
        time_us = check_whole("time_us", time_us, 0, TIME_US_MAX)
        return self.reader(topic).positions_at(time_us, None if partitions is None else check_indexes(partitions))

    def offsets_within(self, topic: str, ranges: Mapping[int, tuple[int, int, int]]) -> dict[int, int]:
        """For (start, end, bytes) of each partition: the offset at which the range reaches about that many bytes.

        By the mean size of messages in each segment: nothing is read. Offsets that were deleted take no bytes.
        """
        return stops_within(self._topics.find(topic).topic, check_byte_ranges(ranges))

    # Groups

    def register_group(
        self,
        topic: str,
        group: str,
        consumers: int | None = None,
        important: bool | None = None,
        read_from: ReadFrom = "earliest",
    ) -> GroupDescription:
        """Create a group: with `consumers` of a fixed size, otherwise one that members join.

        An existing group keeps its offsets. Another size takes effect at once, in a new generation.
        """
        found, name = self._topics.find(topic), check_group_name(group)
        size = None if consumers is None else rules.check_consumers(consumers)
        given = rules.check_important(important), rules.check_read_from(read_from)
        with self.claims.sized(found.record.name, name, size):
            found.groups.register(name, size, *given)
        return describe_group(found, name, self._clock.now_us())

    def join_group(
        self,
        topic: str,
        group: str,
        member: str,
        session_timeout_seconds: float = SESSION_TIMEOUT_SECONDS,
        max_poll_seconds: float = MAX_POLL_SECONDS,
        topic_index: int | None = None,
    ) -> Membership:
        """Join a group, or renew the membership; the group is created if it does not exist.

        `max_poll_seconds` is how long the member may take to let a partition go; with 0 it is taken at once.
        `topic_index` is that of the topic among several that the member reads: all partitions are then divided evenly.
        """
        found = self._topics.find(topic)
        name, member = check_group_name(group), check_id("member", member)
        times = session_timeout_seconds, max_poll_seconds
        with self.claims.native(found.record.name, name):
            joined = found.groups.join(name, member, *times, topic_index)
        return describe_member(found, joined, member, ())

    def heartbeat(
        self,
        topic: str,
        group: str,
        member: str,
        generation: int | None = None,
        partitions: Sequence[int] | None = None,
    ) -> Membership:
        """Renew the membership and return the current assignment.

        With `partitions` the member acknowledges which ones it holds, as of `generation`: the others are let go.
        """
        found = self._topics.find(topic)
        name, member = check_group_name(group), check_id("member", member)
        present = found.groups.heartbeat(name, member, _held(generation, partitions))
        return describe_member(found, present, member, partitions)

    def leave_group(self, topic: str, group: str, member: str) -> None:
        """Leave a group; the other members get the partitions at once."""
        name, member = check_group_name(group), check_id("member", member)
        self._topics.find(topic).groups.leave(name, member)

    def remove_member(self, topic: str, group: str, member: str) -> None:
        """Remove a member, as an operator does with one that hangs; if it lives, it joins again."""
        self.leave_group(topic, group, member)

    def commit_offsets(
        self,
        topic: str,
        group: str,
        offsets: Mapping[int, int],
        member: int | str | None = None,
        generation: int | None = None,
        partial: bool = False,
    ) -> CommitOutcome:
        """Store the next offset to read of each partition; a commit never moves back, use `seek` for that.

        A member gives its name, a consumer of a fixed group its index; without either the group itself commits. If
        `partial` is set, offsets of partitions that the member no longer owns are left out and reported; otherwise
        they fail the whole commit.
        """
        found, name = self._topics.find(topic), check_group_name(group)
        consumer = None if member is None else _consumer_name(member)
        return found.groups.commit(name, check_offsets(offsets), consumer, generation, partial)

    def committed(self, topic: str, group: str) -> dict[int, int]:
        """The committed offset of each partition that has one."""
        return self._topics.find(topic).groups.committed(check_group_name(group))

    def seek(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        """Move a group to other offsets, forward or back."""
        self._topics.find(topic).groups.seek(check_group_name(group), check_offsets(offsets))

    def forget_offsets(self, topic: str, group: str, partitions: Iterable[int]) -> None:
        """Forget the committed offsets of some partitions, of a group without members."""
        self._topics.find(topic).groups.forget_offsets(check_group_name(group), partitions)

    def delete_group(self, topic: str, group: str) -> None:
        """Delete a group with its offsets."""
        self._topics.find(topic).groups.delete(check_group_name(group))

    def list_groups(self, topic: str) -> list[str]:
        """The groups of a topic by name."""
        return [group.name for group in self._topics.find(topic).groups.all()]

    def topics_of_groups(self, groups: Collection[str] | None = None) -> dict[str, list[str]]:
        """The topics in which groups of these names exist, or all groups, by the group's name."""
        names, found = {record.id: record.name for record in self._topics.records()}, dict[str, list[str]]()
        for topic_id, group in self._store.catalog.named_groups(groups):
            if topic_id in names:
                found.setdefault(group, []).append(names[topic_id])
        return found

    def describe_group(self, topic: str, group: str) -> GroupDescription:
        """Describe a group, with its lag."""
        return describe_group(self._topics.find(topic), check_group_name(group), self._clock.now_us())

    # Pipelines

    def report_pipeline(self, topic: str, pipeline: str, report: PipelineReport) -> None:
        """Report the progress of a pipeline that reads the topic, or writes to it; only the last report is kept."""
        name, checked = check_id("pipeline", pipeline), check_report(report)
        record = self._topics.find(topic).record
        self._store.catalog.pipelines.put(record.id, record.name, name, checked, self._clock.now_us())

    def list_pipelines(self) -> list[PipelineDescription]:
        """The pipelines that report to topics of the store, as they last reported; without those of deleted topics."""
        topics, now_us = {record.id: record.name for record in self._topics.records()}, self._clock.now_us()
        return [
            PipelineDescription(topics[topic_id], name, listed_state(report, reported_us, now_us), reported_us, report)
            for topic_id, name, report, reported_us in self._store.catalog.pipelines.all()
            if topic_id in topics
        ]


def _consumer_name(consumer: object) -> str:
    """The id of a member in a group: its name, or the index of a fixed consumer."""
    return check_id("member", consumer) if isinstance(consumer, str) else str(check_index("consumer", consumer))


def _held(generation: object, partitions: Sequence[int] | None) -> Held | None:
    """What a member acknowledges that it holds; both values are needed for it."""
    if (generation is None) != (partitions is None):
        given = "generation" if partitions is None else "partitions"
        raise InvalidInput(given, "alone", "an acknowledgement needs generation and partitions")
    if partitions is None:
        return None
    return Held(check_whole("generation", generation, 0, SEQNO_MAX), check_indexes(partitions))

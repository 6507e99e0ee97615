"""The client: methods for topics and groups, and for creating producers and consumers.

    client = headrace.connect("headrace://127.0.0.1:7071")
    client.create_topic("orders", partitions=8)

Thread-safe. Calls are retried when the connection breaks, where that is safe; see `retry`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Unpack, overload

import pyarrow as pa

from headrace.client.consumer.assignment import PartitionsChanged, callbacks_of
from headrace.client.consumer.consumer import Consumer
from headrace.client.consumer.options import ConsumerOptions
from headrace.client.consumer.prefetch import Prefetch
from headrace.client.consumer.topics_consumer import SeveralTopics, TopicChoice, TopicsConsumer, check_several
from headrace.client.producer.producer import Producer
from headrace.client.producer.staging import stage_batches
from headrace.client.read.decode import Decoder, OnUndecodable
from headrace.client.read.follow import Following
from headrace.client.read.scan import read_batch, read_decoded, scan
from headrace.client.read.start import Start, parse_start, positions_at
from headrace.client.read.table import table_of
from headrace.client.retry import Calls
from headrace.client.serializers import Deserializer, Serializer
from headrace.client.settings import ConsumerSettings, ProducerSettings
from headrace.client.transaction import ClientTransaction, TransactionWriters
from headrace.client.transport.transport import Transport
from headrace.core.archive.manifest import ArchiveSnapshot
from headrace.core.groups.group import ReadFrom
from headrace.core.health.findings import Health
from headrace.core.limits import (
    AUDIT_LISTED,
    CONSUMER_PREFETCH_BYTES,
    DECODED_BATCH_BYTES_MAX,
    FETCH_BYTES_DEFAULT,
    FETCH_MESSAGES_DEFAULT,
    FETCH_MESSAGES_MAX,
    MAX_POLL_SECONDS,
    PRODUCER_BATCH_BYTES,
    PRODUCER_BUFFER_BYTES,
    SESSION_TIMEOUT_SECONDS,
    SOURCES_LISTED,
)
from headrace.core.positions import microseconds
from headrace.core.publish.state import CommitKey
from headrace.core.reports.clients import ClientDescription
from headrace.core.reports.descriptions import (
    CommitOutcome,
    GroupDescription,
    Identity,
    NewToken,
    ServerDescription,
    SourceDescription,
    Staged,
    TokenDescription,
    TopicDescription,
    TransactionOffsets,
    TransactionOutcome,
)
from headrace.core.reports.pipelines import PipelineDescription, PipelineReport
from headrace.core.reports.process import ProcessReport
from headrace.core.reports.server_settings import ServerSettings
from headrace.core.reports.store_check import StoreCheck
from headrace.core.topics.settings import TopicOptions
from headrace.wire import operations as wire
from headrace.wire.tickets import Read


class Client:
    """A client of one broker.

    >>> from headrace.testing import embedded
    >>> with embedded() as client:
    ...     topic = client.create_topic("orders", partitions=2)
    ...     client.offsets("orders")
    {0: (0, 0), 1: (0, 0)}
    """

    def __init__(self, transport: Transport, timeout_seconds: float = 30.0) -> None:
        self._transport = transport
        self._transaction_writers = TransactionWriters()
        self._timeout_seconds = timeout_seconds
        self._calls = Calls(transport, timeout_seconds)

    def __repr__(self) -> str:
        return f"<headrace.Client of {self._transport!r}>"

    def whoami(self) -> Identity:
        """The identity of this client on the server: the token's name, expiry and rights."""
        return self._calls(wire.Whoami())

    def list_servers(self) -> list[ServerDescription]:
        """The running servers of the store, in the order they started, with their addresses."""
        return self._calls(wire.ListServers())

    def list_clients(self) -> list[ClientDescription]:
        """The clients of the server that answers, those that called last first: who they are, and what they do.

        With the right to read all topics all of them; otherwise those of this token, and what others do in the topics
        that it may read.
        """
        return self._calls(wire.ListClients())

    def describe_health(self) -> Health:
        """What needs attention: the server's own verdict on itself, and on the topics that this client may read.

        >>> from headrace.testing import embedded
        >>> with embedded() as client:
        ...     client.describe_health().state
        'fine'
        """
        return self._calls(wire.DescribeHealth())

    def describe_settings(self) -> ServerSettings:
        """The settings that the server runs with, without secrets. Needs full access."""
        return self._calls(wire.DescribeSettings())

    def describe_process(self) -> ProcessReport:
        """The stacks and the last log lines of the server's process, for a bug report. Needs full access."""
        return self._calls(wire.DescribeProcess())

    def check_store(self) -> StoreCheck:
        """Begin to check every frame, index and catalog row of the store in the background, unless a check runs.

        Reads all of the store once. `last_store_check` tells how far it is, and what it found. Needs full access.
        """
        return self._calls(wire.CheckStore())

    def last_store_check(self) -> StoreCheck:
        """The check that runs, or the last one since the server started. Needs full access."""
        return self._calls(wire.LastStoreCheck())

    # Tokens

    def list_tokens(self) -> list[TokenDescription]:
        """All tokens, without their secrets. Needs full access, as all operations on tokens do."""
        return self._calls(wire.ListTokens())

    def create_token(
        self,
        name: str,
        grants: Iterable[tuple[str, Iterable[str]]],
        groups: Iterable[str] = ("*",),
        producers: Iterable[str] = ("*",),
        life_seconds: float | None = None,
        forward_only: bool = False,
        grace_seconds: float | None = None,
    ) -> NewToken:
        """Make a token with rights on topics, both as patterns: `[("orders*", ["publish", "read"])]`.

        Its text is returned only now. `groups` and `producers` limit it to some groups and producer ids; with
        `forward_only` commits of Kafka's clients do not move groups back. The first token of a store may have
        `grace_seconds`, in which callers without a token are served as before.
        """
        given = [(pattern, list(rights)) for pattern, rights in grants]
        limits = tuple(groups), tuple(producers), life_seconds, forward_only, grace_seconds
        return self._calls(wire.CreateToken("*", name, given, *limits))

    def rotate_token(self, name: str, keep_seconds: float, life_seconds: float | None = None) -> NewToken:
        """Replace the tokens of a name, or one by its id; the old ones stay valid for a while."""
        return self._calls(wire.RotateToken("*", name, keep_seconds, life_seconds))

    def revoke_token(self, token_id: str) -> bool:
        """Revoke a token; returns whether it existed."""
        return self._calls(wire.RevokeToken("*", token_id))

    def list_audit(self, max_entries: int = AUDIT_LISTED) -> list[dict[str, Any]]:
        """The last refusals and changes that the server recorded, newest first. Needs full access."""
        return self._calls(wire.ListAudit(max_entries=max_entries))

    # Topics

    def create_topic(
        self, /, name: str, partitions: int | None = None, **settings: Unpack[TopicOptions]
    ) -> TopicDescription:
        """Create a topic, by default with one partition; one that exists may get more partitions."""
        return self._calls(wire.CreateTopic(name, partitions, dict(settings)))

    def alter_topic(
        self, /, name: str, partitions: int | None = None, **settings: Unpack[TopicOptions]
    ) -> TopicDescription:
        """Change settings, or add partitions."""
        return self._calls(wire.AlterTopic(name, partitions, dict(settings)))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and free its disk space."""
        self._calls(wire.DeleteTopic(name))

    def trim_topic(self, name: str, before: datetime) -> int:
        """Delete the messages written before a time, once; returns how many.

        Whole segments are deleted, so some older messages may stay, and nothing that an important group has not read.
        """
        return self._calls(wire.TrimTopic(name, microseconds(before)))

    def delete_messages(self, name: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete the messages of partitions below an offset each; returns the start offset of these partitions.

        Nobody can read them any more when this returns. If an important group has not read up to one of the offsets,
        nothing is deleted.
        """
        return self._calls(wire.DeleteMessages(name, dict(before)))

    def describe_topic(self, name: str) -> TopicDescription:
        """Describe a topic."""
        return self._calls(wire.DescribeTopic(name))

    def describe_topics(self, topics: Sequence[str]) -> list[TopicDescription]:
        """Describe up to 256 topics in one request, but those that the token may not read, or that are not found."""
        return self._calls(wire.DescribeTopics("*", list(topics)))

    def list_topics(self) -> list[str]:
        """The topics on which the token has any right."""
        return self._calls(wire.ListTopics("*"))

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """Start and end offset by partition."""
        return self._calls(wire.Offsets(topic))

    def archive(self, topic: str) -> ArchiveSnapshot:
        """The archive of a topic at one moment: its files, how far it is complete, and the offsets of the topic."""
        return self._calls(wire.Archive(topic))

    def await_offsets(self, topic: str, known: Mapping[int, int], wait_seconds: float) -> dict[int, tuple[int, int]]:
        """Start and end offset by partition, once any end differs from the known one, with a timeout."""
        return self._calls(wire.AwaitOffsets(topic, dict(known), wait_seconds))

    def offset_at(self, topic: str, partition: int, time: datetime) -> int:
        """The first offset of a partition at or after a time."""
        return self._calls(wire.OffsetAt(topic, partition, microseconds(time)))

    def offsets_at(self, topic: str, time: datetime, partitions: Sequence[int] | None = None) -> dict[int, int]:
        """The first offset at or after a time, of each of some or all partitions, in one request."""
        chosen = None if partitions is None else list(partitions)
        return self._calls(wire.OffsetsAt(topic, microseconds(time), chosen))

    def offsets_within(self, topic: str, ranges: Mapping[int, tuple[int, int, int]]) -> dict[int, int]:
        """For (start, end, bytes) of each partition: the offset at which the range reaches about that many bytes.

        By the mean size of messages in each segment of the log: nothing is read.
        """
        return self._calls(wire.OffsetsWithin(topic, dict(ranges)))

    def last_seqno(self, topic: str, producer_id: str, message_group_id: str = "") -> int | None:
        """The highest seqno written for a source, or None."""
        return self._calls(wire.LastSeqno(topic, producer_id, message_group_id))

    def list_sources(
        self, topic: str, producer_id: str | None = None, max_sources: int = SOURCES_LISTED
    ) -> list[SourceDescription]:
        """The sources of a topic, or of one producer, that wrote last, newest first."""
        return self._calls(wire.ListSources(topic, producer_id, max_sources))

    def reset_source(self, topic: str, producer_id: str, message_group_id: str = "") -> int | None:
        """Reset the highest seqno of a source, so that its next message may have any; returns the old one.

        Needs the right to manage the topic. Messages that are sent again after the reset are written again.
        """
        return self._calls(wire.ResetSource(topic, producer_id, message_group_id))

    # Groups

    def register_group(
        self,
        topic: str,
        group: str,
        consumers: int | None = None,
        important: bool | None = None,
        read_from: ReadFrom | datetime = "earliest",
    ) -> GroupDescription:
        """Create a group, or change an existing one."""
        place = microseconds(read_from, "read_from") if isinstance(read_from, datetime) else read_from
        return self._calls(wire.RegisterGroup(topic, group, consumers, important, place))

    def describe_group(self, topic: str, group: str) -> GroupDescription:
        """Describe a group, with its lag."""
        return self._calls(wire.DescribeGroup(topic, group))

    def list_groups(self, topic: str) -> list[str]:
        """The groups of a topic by name."""
        return self._calls(wire.ListGroups(topic))

    def delete_group(self, topic: str, group: str) -> None:
        """Delete a group with its offsets."""
        self._calls(wire.DeleteGroup(topic, group))

    def remove_member(self, topic: str, group: str, member: str) -> None:
        """Remove a member that hangs: the others get its partitions at once. If it lives, it joins again."""
        self._calls(wire.RemoveMember(topic, group, member))

    def committed(self, topic: str, group: str) -> dict[int, int]:
        """The committed offset of each partition that has one."""
        return self._calls(wire.Committed(topic, group))

    def commit_offsets(
        self,
        topic: str,
        group: str,
        offsets: Mapping[int, int],
        member: int | str | None = None,
        generation: int | None = None,
        partial: bool = False,
    ) -> CommitOutcome:
        """Store the next offset to read by partition; it never moves back, that is what `seek` is for.

        For readers that divide the work by other means: a member says its name, a consumer of a fixed group its index;
        without either the group itself commits, which must have no members then. With a generation, which
        `describe_group` tells, the commit is refused if the group was moved or changed since. If `partial` is set,
        partitions that the member no longer owns are left out and reported, instead of failing the commit.
        """
        return self._calls(wire.CommitOffsets(topic, group, dict(offsets), member, generation, partial))

    def seek(self, topic: str, group: str, to: Start) -> None:
        """Move a group to "earliest", "latest", an offset, a time, or offsets by partition.

        Partitions that are not named keep their offsets.
        """
        position = parse_start(to, "to")
        if isinstance(to, Mapping):
            self._calls(wire.Seek(topic, group, dict(to)))
        else:
            self._calls(wire.Seek(topic, group, positions_at(self._calls, topic, position)))

    # Pipelines

    def report_pipeline(self, topic: str, pipeline: str, report: PipelineReport) -> None:
        """Report the progress of a pipeline that reads the topic, or writes to it; only the last report is kept."""
        self._calls(wire.ReportPipeline(topic, pipeline, report))

    def list_pipelines(self) -> list[PipelineDescription]:
        """The pipelines that report to topics on which the token has any right, as they last reported."""
        return self._calls(wire.ListPipelines())

    # Messages

    def producer(
        self,
        topic: str,
        producer_id: str | None = None,
        message_group_id: str = "",
        *,
        linger_seconds: float = 0.005,
        batch_bytes_max: int = PRODUCER_BATCH_BYTES,
        codec: str = "raw",
        buffer_bytes_max: int = PRODUCER_BUFFER_BYTES,
        timeout_seconds: float = 30.0,
        serializer: Serializer | None = None,
        key_serializer: Serializer | None = None,
    ) -> Producer:
        """A producer; with an id it takes over from any other that has it, and never writes a message twice.

        `serializer` makes bytes of the values that are sent, `key_serializer` of the keys: "text", "json", "msgspec",
        "pydantic" or a callable.
        `timeout_seconds` is how long a sender waits for room, and an unreachable server is tried.
        """
        settings = ProducerSettings(
            producer_id,
            message_group_id,
            linger_seconds,
            batch_bytes_max,
            codec,
            buffer_bytes_max,
            timeout_seconds,
            serializer,
            key_serializer,
        )
        return Producer(self._transport, topic, settings, self._calls)

    @overload
    def consumer(self, topic: str, group: str | None = None, **options: Unpack[ConsumerOptions]) -> Consumer: ...

    @overload
    def consumer(
        self, topic: SeveralTopics = None, group: str | None = None, **options: Unpack[ConsumerOptions]
    ) -> TopicsConsumer: ...

    def consumer(
        self,
        topic: str | SeveralTopics = None,
        group: str | None = None,
        *,
        pattern: str | None = None,
        partitions: Iterable[int] | None = None,
        start: Start = "earliest",
        member_id: str | None = None,
        session_timeout_seconds: float = SESSION_TIMEOUT_SECONDS,
        max_poll_seconds: float = MAX_POLL_SECONDS,
        max_prefetch_bytes: int = CONSUMER_PREFETCH_BYTES,
        auto_commit: bool = False,
        decode: bool = True,
        on_undecodable: OnUndecodable = "raise",
        on_assigned: PartitionsChanged | None = None,
        on_revoked: PartitionsChanged | None = None,
        on_lost: PartitionsChanged | None = None,
        consumer_index: int | None = None,
        serializer: Deserializer | None = None,
        key_serializer: Deserializer | None = None,
        value_type: object = None,
        key_type: object = None,
    ) -> Consumer | TopicsConsumer:
        """Open a consumer of a topic, of several (`["a", "b"]`), or of all that match a regular expression (`pattern`).

        Without a group it reads all partitions, or those in `partitions`. In a group it is a member, which reads the
        partitions assigned to it; with `partitions` it reads these, as no member, and commits for the group. With a
        `consumer_index` it is that consumer of a group of a fixed size, counted from 0. `start` is where reading
        starts; a group with committed offsets continues there.

        `on_undecodable` says what to do with a value that cannot be decoded by its codec: "raise" `Undecodable` after
        the messages before it were returned, return it "raw" as stored, with its codec, or "skip" the message.

        `serializer` and `key_serializer` make objects of the values and keys of single messages (not of batches):
        "text", "json", "msgspec" or "pydantic" with the `value_type` to read, or a callable. A message that does not
        fit is handled as `on_undecodable` says.

        The callbacks get a list of partitions and run inside `poll`: `on_assigned` before the first message of a
        partition, `on_revoked` while it is still owned, so that it may commit, `on_lost` (if omitted, `on_revoked`)
        when the session ended and another member may have it already. A partition that was lost and comes back is read
        from its committed offset, so `on_lost` may drop what it holds of it. See docs/groups.md.
        """
        settings = ConsumerSettings(
            session_timeout_seconds,
            max_prefetch_bytes,
            auto_commit,
            decode,
            self._timeout_seconds,
            on_undecodable,
            serializer,
            key_serializer,
            value_type,
            key_type,
            max_poll_seconds,
        )
        callbacks = callbacks_of(on_assigned, on_revoked, on_lost)
        if isinstance(topic, str) and pattern is None:
            one = group, start, member_id, consumer_index, partitions
            return Consumer(self._transport, topic, settings, *one, callbacks)
        topics = TopicChoice.of([topic] if isinstance(topic, str) else topic, pattern)
        check_several(partitions, consumer_index)
        return TopicsConsumer(self._transport, topics, settings, group, start, member_id, callbacks)

    def read(
        self,
        topic: str,
        partition: int = 0,
        offset: int = 0,
        max_messages: int = FETCH_MESSAGES_DEFAULT,
        *,
        max_bytes: int | None = None,
        decode: bool = True,
        on_undecodable: OnUndecodable = "raise",
    ) -> pa.RecordBatch:
        """Read the available messages of a partition from an offset on, up to a limit; it may return fewer.

        `max_bytes` limits about how many bytes are read, and decoded, in all; at least one message is returned.

        It stops before a value that cannot be decoded by its codec, or would need too much memory. A read that starts
        at the former raises `Undecodable`; with `on_undecodable` "raw" the value is returned as stored, with its codec,
        with "skip" it is omitted. So continue after the last offset that was returned. If it stopped before the limit
        and before the end, `batch.schema.metadata[b"stopped_early"]` says why.
        """
        if not decode:
            return read_batch(self._transport, topic, partition, offset, max_messages, self._timeout_seconds, max_bytes)
        decoder = Decoder(topic, on_undecodable, max_bytes or DECODED_BATCH_BYTES_MAX)
        return read_decoded(self._transport, decoder, partition, offset, max_messages, self._timeout_seconds, max_bytes)

    def table(self, topic: str) -> pa.Table:
        """All messages of a topic as one Arrow table, by partition and offset; `to_arrow` reads a part of it."""
        return self.to_arrow(topic)

    def to_arrow(
        self,
        topic: str,
        start: Start = "earliest",
        end: Start = "latest",
        *,
        partitions: Iterable[int] | None = None,
        columns: Iterable[str] | None = None,
        decode: bool = True,
        on_undecodable: OnUndecodable = "raise",
    ) -> pa.Table:
        """The messages from a start up to an end as one Arrow table, by partition and offset.

        `start` and `end` are "earliest", "latest", an offset, a time, or offsets by partition; the end is excluded.
        """
        starts = positions_at(self._calls, topic, parse_start(start), partitions)
        ends = positions_at(self._calls, topic, parse_start(end, "end"), starts)
        decoder = Decoder(topic, on_undecodable) if decode else None

        def part(partition: int, first: int, stop: int, wanted: list[str] | None) -> Iterator[pa.RecordBatch]:
            return self.scan(topic, partition, first, stop, columns=wanted)

        return table_of(part, starts, ends, columns, decoder)

    def scan(
        self,
        topic: str,
        partition: int,
        offset: int,
        end: int,
        *,
        columns: Iterable[str] | None = None,
        max_messages: int = FETCH_MESSAGES_MAX,
        max_bytes: int = FETCH_BYTES_DEFAULT,
        timeout_seconds: float | None = None,
        topic_id: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The messages of a partition from an offset up to an end, batch by batch as they are stored.

        It continues after a broken connection, and ends early at the end of the partition. With `topic_id`, a topic
        that was deleted and created again is an error.
        """
        patience = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        wanted = None if columns is None else list(columns)
        ticket = Read(
            topic, partition, offset, end, False, max_messages, max_bytes, wanted, sparse=True, topic_id=topic_id
        )
        return scan(self._transport, ticket, patience)

    def scan_ranges(
        self,
        topic: str,
        ranges: Mapping[int, tuple[int, int]],
        *,
        columns: Iterable[str] | None = None,
        max_messages: int = FETCH_MESSAGES_MAX,
        max_bytes: int = FETCH_BYTES_DEFAULT,
        timeout_seconds: float | None = None,
        topic_id: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The messages of many partitions, each from an offset up to an end, in one request and few batches.

        The column `partition` always comes; the rows of one partition are in order. Otherwise as `scan`.
        """
        patience = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        wanted = None if columns is None else list(dict.fromkeys(["partition", *columns]))
        named = dict(ranges)
        ticket = Read(
            topic,
            0,
            0,
            max_messages=max_messages,
            max_bytes=max_bytes,
            columns=wanted,
            sparse=True,
            ranges=named,
            topic_id=topic_id,
        )
        return scan(self._transport, ticket, patience)

    def follow(
        self,
        topic: str,
        partitions: Iterable[int] | None = None,
        *,
        start: Start = "latest",
        max_prefetch_bytes: int = CONSUMER_PREFETCH_BYTES,
        decode: bool = True,
        on_undecodable: OnUndecodable = "raise",
    ) -> Following:
        """Follow some or all partitions, including later ones: yields batches as they arrive.

        `on_undecodable` is as for a consumer.
        """
        decoder = Decoder(topic, on_undecodable) if decode else None
        positions = positions_at(self._calls, topic, parse_start(start), partitions)
        growing = partitions is None
        prefetch = Prefetch(
            self._transport, topic, positions, max_prefetch_bytes, self._timeout_seconds, growing=growing
        )
        return Following(prefetch, decoder)

    # Staging

    def stage(self, topic: str, batches: Iterable[pa.RecordBatch], stage: str | None = None) -> Staged:
        """Put rows aside for a later commit, in a new stage or at the end of one.

        They are checked now and visible to nobody.
        """
        return stage_batches(self._transport, topic, uuid.uuid4().hex if stage is None else stage, batches)

    def publish_staged(
        self, topic: str, stages: Iterable[Staged], commit_key: CommitKey | None = None
    ) -> tuple[int, int]:
        """Publish stages in one commit; returns how many messages were written, and how many were duplicates.

        A commit key whose number is at or below the last one of its writer publishes nothing, so that it may be asked
        again.
        """
        named = [(staged.stage, staged.rows) for staged in stages]
        key = () if commit_key is None else (commit_key.writer, commit_key.number, commit_key.fingerprint)
        return self._calls(wire.PublishStaged(topic, named, *key))

    def commit_transaction(
        self,
        stages: Mapping[str, Iterable[Staged]],
        offsets: Iterable[TransactionOffsets] = (),
        commit_key: CommitKey | None = None,
    ) -> TransactionOutcome:
        """Publish stages of several topics and commit offsets of groups: all of it, or nothing.

        A commit key whose number is at or below the last one of its writer publishes nothing, whatever topics it was
        used for, so that it may be asked again.
        """
        named = {topic: [(staged.stage, staged.rows) for staged in each] for topic, each in stages.items()}
        key = () if commit_key is None else (commit_key.writer, commit_key.number, commit_key.fingerprint)
        return self._calls(wire.CommitTransaction("*", named, list(offsets), *key))

    def transaction(self) -> ClientTransaction:
        """Begin a transaction over topics and groups: all that is sent by it is committed at the end of its block."""
        return ClientTransaction(self, self._transaction_writers)

    def drop_stages(self, topic: str, stages: Iterable[str]) -> int:
        """Drop stages that will not be published; returns how many existed."""
        return self._calls(wire.DropStages(topic, list(stages)))

    def last_commit(self, topic: str, writer: str) -> int | None:
        """The number of the last commit of a writer, or None."""
        return self._calls(wire.LastCommit(topic, writer))

    def close(self) -> None:
        """Close the connection; close producers and consumers first."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

"""Topics, groups and callers as JSON: what the HTTP server answers, and what the command line prints with `--json`.

Structs made from the descriptions of the core. Pure.
"""

from __future__ import annotations

import msgspec

from headrace.core.groups.group import ReadFrom
from headrace.core.reports.clients import ClientDescription
from headrace.core.reports.descriptions import GroupDescription, Identity, TopicDescription
from headrace.core.topics.settings import TopicSettings


class PartitionOut(msgspec.Struct):
    """A partition: its oldest offset kept and the next to be written."""

    partition: int
    start_offset: int
    end_offset: int


class TopicOut(msgspec.Struct):
    """A topic in detail."""

    name: str
    id: int
    created_us: int
    settings: TopicSettings
    partitions: list[PartitionOut]
    bytes_stored: int
    groups: list[str]

    @classmethod
    def of(cls, topic: TopicDescription) -> TopicOut:
        """A description of the broker as JSON."""
        partitions = [PartitionOut(partition, start, end) for partition, (start, end) in topic.offsets.items()]
        return cls(topic.name, topic.id, topic.created_us, topic.settings, partitions, topic.bytes_stored, topic.groups)


class ProgressOut(msgspec.Struct):
    """How far a group is in one partition; `lag_seconds` is the age of the oldest unread message."""

    partition: int
    committed: int | None
    position: int
    end_offset: int
    lag_messages: int
    lag_seconds: float
    consumer: str | None


class ConsumerOut(msgspec.Struct):
    """A member, or a consumer of a fixed group, and the partitions it reads."""

    name: str
    partitions: list[int]


class GroupOut(msgspec.Struct):
    """A group in detail; the lag over all partitions is the sum of messages and the maximum age.

    seek_generation: the generation that the last seek started; positions of earlier generations are invalid.
    """

    topic: str
    name: str
    consumers: int | None
    important: bool
    read_from: ReadFrom
    generation: int
    lag_messages: int
    lag_seconds: float
    members: list[ConsumerOut]
    partitions: list[ProgressOut]
    seek_generation: int = 0

    @classmethod
    def of(cls, group: GroupDescription) -> GroupOut:
        """A description of the broker as JSON."""
        return cls(
            group.topic,
            group.name,
            group.consumers,
            group.important,
            group.read_from,
            group.generation,
            group.lag_messages,
            group.lag_seconds,
            [ConsumerOut(name, partitions) for name, partitions in group.members.items()],
            [
                ProgressOut(partition, at.committed, at.position, at.end, at.lag_messages, at.lag_seconds, at.consumer)
                for partition, at in group.progress.items()
            ],
            group.seek_generation,
        )


class ClientMemberOut(msgspec.Struct):
    """A membership of a client, and when it last asked for messages; null if it does not say."""

    topic: str
    group: str
    member: str
    polled_us: int | None


class ClientProducerOut(msgspec.Struct):
    """A topic that a client writes to, and the producer id that it has, if any."""

    topic: str
    producer_id: str


class ClientOut(msgspec.Struct):
    """A client: what it says of itself, where it calls from, since when and until when, and what it reads and writes.

    seen_us: its last call; that of this answer if it has a connection that the server sees (Kafka).
    """

    server: str
    protocol: str
    principal: str
    address: str
    client_id: str
    host: str
    pid: int
    library: str
    version: str
    since_us: int
    seen_us: int
    members: list[ClientMemberOut]
    producers: list[ClientProducerOut]

    @classmethod
    def of(cls, client: ClientDescription) -> ClientOut:
        """A description of a server as JSON."""
        said = client.identity
        return cls(
            client.server,
            client.protocol,
            client.principal,
            client.address,
            said.client_id,
            said.host,
            said.pid,
            said.library,
            said.version,
            client.since_us,
            client.seen_us,
            [ClientMemberOut(each.topic, each.group, each.member, each.polled_us) for each in client.members],
            [ClientProducerOut(each.topic, each.producer_id) for each in client.producers],
        )


class GrantOut(msgspec.Struct):
    """Rights on the topics that a pattern matches, limited to some groups and producer ids; `*` matches all.

    forward_only: commits do not move groups back.
    """

    topics: str
    rights: list[str]
    groups: list[str]
    producers: list[str]
    forward_only: bool = False


class IdentityOut(msgspec.Struct):
    """The token's name, id and expiry in microseconds (null: never), and its grants."""

    name: str
    token_id: str | None
    expires_us: int | None
    grants: list[GrantOut]

    @classmethod
    def of(cls, identity: Identity) -> IdentityOut:
        """An identity as JSON."""
        grants = [
            GrantOut(grant.pattern, sorted(grant.rights), list(grant.groups), list(grant.producers), grant.forward_only)
            for grant in identity.grants
        ]
        return cls(identity.name, identity.token_id, identity.expires_us, grants)

"""What one request may cost: answers are bounded, work is about what is asked, and nobody learns of others' topics."""

from __future__ import annotations

import logging
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.core.codecs.columns import compress
from headrace.protocols.http import server as sockets
from headrace.protocols.kafka.apis.call import ANSWER_ELEMENT_BYTES
from headrace.protocols.kafka.apis.records.fetch_topic import SessionTopic
from headrace.protocols.kafka.apis.topic_ids import topic_uuid
from headrace.protocols.kafka.server import KafkaServer
from headrace.protocols.kafka.settings import KafkaSettings
from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.raw import RawClient
from tests.protocols.kafka.records.test_codec import NOW_MS, built
from tests.protocols.kafka.test_access import logged_in

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR = 0, 1, 2, 3, 10
CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, OFFSET_FOR_EPOCH = 19, 20, 21, 23
OFFSET_COMMIT, OFFSET_FETCH = 8, 9
DESCRIBE_CONFIGS, ALTER_CONFIGS, CREATE_PARTITIONS, INCREMENTAL = 32, 33, 37, 44
DESCRIBE_TOPIC_PARTITIONS = 75
OUT_OF_RANGE, UNKNOWN, UNSUPPORTED, INVALID, UNKNOWN_ID, INVALID_PARTITIONS = 1, 3, 35, 42, 100, 37
WIDE = 10_000
HUGE, SMALL = (1 << 31) - 1, -(1 << 31)
MEGABYTE = 1 << 20


@pytest.fixture
def client(site: Site) -> Iterator[RawClient]:
    with RawClient(site.port) as client:
        yield client


@contextmanager
def serving(broker: Broker, **settings: Any) -> Iterator[int]:
    """The port of a server with these settings."""
    listeners = sockets.bind("127.0.0.1", 0)
    with KafkaServer(broker, broker.access, KafkaSettings(**settings), listeners):
        yield sockets.port_of(listeners)


def publish(broker: Broker, topic: str, partition: int, *values: bytes) -> None:
    numbers = pa.array([partition] * len(values), pa.int32())
    broker.publish(topic, pa.record_batch({"value": pa.array(values, pa.binary()), "partition": numbers}))


def asked(*partitions: int, offset: int = 0, bytes_max: int = MEGABYTE) -> list[dict[str, int]]:
    return [{"partition": each, "fetch_offset": offset, "partition_max_bytes": bytes_max} for each in partitions]


def fetch(client: RawClient, topic: str, partitions: list[dict[str, int]], **more: Any) -> SimpleNamespace:
    fields = {"max_wait": 0, "min_bytes": 1, "max_bytes": MEGABYTE, "session_epoch": -1, **more}
    return client.call(FETCH, 11, topics=[{"topic": topic, "partitions": partitions}], **fields)


# What is named again


def test_a_topic_that_is_named_again_is_described_once(site: Site, client: RawClient) -> None:
    site.broker.create_topic("wide", WIDE)
    topic_id = topic_uuid(site.broker.reader("wide").topic_id)
    for version, named in ((9, {"name": "wide"}), (12, {"name": None, "topic_id": topic_id})):
        (topic,) = client.call(METADATA, version, topics=[named] * 100).topics
        assert [each.partition_index for each in topic.partitions] == list(range(WIDE))
    resource = {"resource_type": 2, "resource_name": "wide", "configuration_keys": None}
    (described,) = client.call(DESCRIBE_CONFIGS, 4, resources=[resource] * 1000).results
    assert len({each.name for each in described.configs}) == len(described.configs) == 26
    keys = [{**resource, "configuration_keys": [key]} for key in ("retention.ms", "retention.bytes", "nonsense")]
    (described,) = client.call(DESCRIBE_CONFIGS, 4, resources=keys).results
    assert {each.name for each in described.configs} == {"retention.ms", "retention.bytes"}
    found = client.call(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g", "h"] * 5000).coordinators
    assert [(each.key, each.node_id) for each in found] == [("g", 0), ("h", 0)]
    epochs = [{"topic": "wide", "partitions": [{"partition": number % 2} for number in range(1000)]}] * 2
    (ends,) = client.call(OFFSET_FOR_EPOCH, 4, replica_id=-1, topics=epochs).topics
    assert [(each.partition, each.error_code) for each in ends.partitions] == [(0, 0), (1, 0)]


def test_a_change_that_is_named_again_is_refused(site: Site, client: RawClient) -> None:
    """As by Kafka: each name once, and nothing is done about it."""
    site.broker.create_topic("twice")
    topic_id = topic_uuid(site.broker.reader("twice").topic_id)

    def codes(api_key: int, version: int, answers: str, **fields: Any) -> list[int]:
        return [each.error_code for each in getattr(client.call(api_key, version, **fields), answers)]

    new, other = ({"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("new", "other"))
    assert codes(CREATE_TOPICS, 7, "topics", topics=[new, other, new], timeout=1000) == [INVALID, 0]
    grown = {"name": "twice", "count": 3, "assignments": None}
    assert codes(CREATE_PARTITIONS, 3, "results", topics=[grown] * 9, timeout=1000, validate_only=False) == [INVALID]
    for api_key, more in ((ALTER_CONFIGS, {}), (INCREMENTAL, {"config_operation": 0})):
        configs = [{"name": "retention.ms", "value": "1000", **more}]
        resource = {"resource_type": 2, "resource_name": "twice", "configs": configs}
        assert codes(api_key, 1, "responses", resources=[resource] * 9, validate_only=False) == [INVALID]
    assert codes(DELETE_TOPICS, 3, "responses", topic_names=["twice", "twice"], timeout=1000) == [INVALID]
    by_id = [{"name": None, "topic_id": topic_id}] * 2
    assert codes(DELETE_TOPICS, 6, "responses", topics=by_id, timeout=1000) == [INVALID]
    assert site.broker.describe_topic("twice").settings.retention_seconds is None
    assert site.broker.reader("twice").partitions == 1
    assert "new" not in site.broker.list_topics()


def test_partitions_that_are_named_again(site: Site, client: RawClient) -> None:
    site.broker.create_topic("again", 3)
    publish(site.broker, "again", 1, b"a", b"b")
    partitions = [{"partition_index": number, "timestamp": -1} for number in (0, 1, 0, 0)]
    (topic,) = client.call(
        LIST_OFFSETS, 5, replica_id=-1, isolation_level=0, topics=[{"name": "again", "partitions": partitions}]
    ).topics
    told = [(each.partition_index, each.error_code, each.offset) for each in topic.partitions]
    assert told == [(0, INVALID, -1), (1, 0, 2)]
    # Of a partition that is fetched or deleted twice the last counts.
    (found,) = fetch(client, "again", [*asked(1), *asked(1, offset=1)]).responses
    (partition,) = found.partitions
    assert int.from_bytes(partition.records[:8]) == 1
    before = [{"partition_index": 1, "offset": offset} for offset in (2, 1)]
    (topic,) = client.call(DELETE_RECORDS, 2, topics=[{"name": "again", "partitions": before}], timeout=100).topics
    assert [(each.error_code, each.low_watermark) for each in topic.partitions] == [(0, 1)]


# What never has room


def test_an_answer_that_never_has_room_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    many = 2 * MEGABYTE // ANSWER_ELEMENT_BYTES
    with (
        Broker.open("memory:") as broker,
        serving(broker, fetch_bytes_max=MEGABYTE, answers_bytes_max=2 * MEGABYTE) as port,
        RawClient(port) as client,
    ):
        broker.create_topic("many", many)
        broker.create_topic("few")
        for named in ([{"name": "many"}, {"name": "few"}], None):
            topics = client.call(METADATA, 9, topics=named).topics
            assert [(each.name, each.error_code, each.partitions) for each in topics] == [
                ("many", INVALID, []),
                ("few", INVALID, []),
            ]
        assert fetch(client, "many", asked(*range(many))).error_code == INVALID
        assert fetch(client, "many", asked(*range(many)), session_epoch=0).error_code == INVALID
        (topic,) = client.call(METADATA, 9, topics=[{"name": "few"}]).topics
        assert len(topic.partitions) == 1
        assert not caplog.records
        partitions = [{"partition_index": number, "timestamp": -1} for number in range(many)]
        client.request(LIST_OFFSETS, 5, topics=[{"name": "many", "partitions": partitions}])
        assert client.is_closed()
        (record,) = caplog.records
        assert "ask for fewer (limits.answers_bytes_max)" in record.getMessage()


# Numbers that no client sends


def test_partitions_and_offsets_that_cannot_be(site: Site, client: RawClient, caplog: pytest.LogCaptureFixture) -> None:
    site.broker.create_topic("numbers-of", 2)
    publish(site.broker, "numbers-of", 0, b"a")
    with caplog.at_level(logging.WARNING):
        for number in (-1, -2, -5, SMALL, 2, HUGE):
            # Far from its time: an error is answered at once.
            answer = fetch(client, "numbers-of", asked(0, offset=1) + asked(number), max_wait=300_000)
            assert [each.error_code for each in answer.responses[0].partitions] == [0, UNKNOWN]
            first = fetch(client, "numbers-of", asked(number, 0, offset=1), session_epoch=0, max_wait=300_000)
            again = fetch(client, "numbers-of", [], session_id=first.session_id, session_epoch=1, max_wait=300_000)
            assert [each.error_code for each in again.responses[0].partitions] == [UNKNOWN]
            for api_key, version, fields, name in (
                (LIST_OFFSETS, 5, {"partition_index": number, "timestamp": -1}, "name"),
                (LIST_OFFSETS, 5, {"partition_index": number, "timestamp": 5}, "name"),
                (DELETE_RECORDS, 2, {"partition_index": number, "offset": -1}, "name"),
                (OFFSET_FOR_EPOCH, 4, {"partition": number, "leader_epoch": HUGE}, "topic"),
            ):
                (topic,) = client.call(api_key, version, topics=[{name: "numbers-of", "partitions": [fields]}]).topics
                assert [each.error_code for each in topic.partitions] == [UNKNOWN]
        for offset in (-1, -(1 << 63), 2, (1 << 63) - 1):
            limits = {"max_bytes": SMALL, "max_wait": SMALL if offset < 0 else 1, "min_bytes": HUGE}
            (found,) = fetch(client, "numbers-of", asked(0, offset=offset, bytes_max=SMALL), **limits).responses
            assert [each.error_code for each in found.partitions] == [OUT_OF_RANGE]
        for time_ms, error in ((-7, UNSUPPORTED), (-(1 << 63), UNSUPPORTED), ((1 << 63) - 1, 0)):
            partitions = [{"partition_index": 0, "timestamp": time_ms}]
            (topic,) = client.call(LIST_OFFSETS, 5, topics=[{"name": "numbers-of", "partitions": partitions}]).topics
            assert [(each.error_code, each.offset) for each in topic.partitions] == [(error, -1)]
        for count in (0, -1, SMALL, HUGE):
            grown = {"name": "numbers-of", "count": count, "assignments": None}
            (result,) = client.call(CREATE_PARTITIONS, 3, topics=[grown], timeout=SMALL).results
            assert result.error_code == INVALID_PARTITIONS
            made = {"name": "too-many", "num_partitions": count, "replication_factor": 1}
            (result,) = client.call(CREATE_TOPICS, 7, topics=[made], timeout=SMALL, validate_only=True).topics
            assert result.error_code == (0 if count == -1 else INVALID_PARTITIONS)
        for start in (SMALL, -1, 2, HUGE):
            page = client.call(
                DESCRIBE_TOPIC_PARTITIONS,
                0,
                topics=[{"name": "numbers-of"}],
                response_partition_limit=SMALL,
                cursor={"topic_name": "numbers-of", "partition_index": start},
            )
            assert [each.partition_index for each in page.topics[0].partitions] == ([0] if start < 0 else [])
    assert not caplog.records


def test_a_repeated_fetch_of_a_negative_partition(
    site: Site, client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    site.broker.create_topic("repeated-negative")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            (found,) = fetch(client, "repeated-negative", asked(0, -3), max_wait=300_000).responses
            assert [each.error_code for each in found.partitions] == [0, UNKNOWN]
    assert not caplog.records


# Topics of others


def without_ids(answer: Any) -> Any:
    """An answer without the ids that were asked for."""
    if isinstance(answer, list):
        return [without_ids(each) for each in answer]
    if isinstance(answer, UUID):
        return None
    if isinstance(answer, str):
        return "id" if "topic_id is" in answer else answer
    fields = answer._asdict() if hasattr(answer, "_asdict") else getattr(answer, "__dict__", None)
    return answer if fields is None else {name: without_ids(each) for name, each in fields.items()}


def test_an_id_of_a_topic_that_one_may_not_see_is_as_an_unknown_one() -> None:
    with Broker.open("memory:") as broker, serving(broker) as port:
        broker.create_topic("public")
        broker.create_topic("secret")
        _, token = broker.access.create("other", [("public", ["publish", "read", "manage"])])
        secret, public = (topic_uuid(broker.reader(name).topic_id) for name in ("secret", "public"))
        records = built([(NOW_MS, None, b"x", [])])
        with logged_in(port, token) as client:

            def answers(topic: UUID) -> list[Any]:
                parts = [{"index": 0, "records": records}]
                commit = [{"partition_index": 0, "committed_offset": 0}]
                wanted = [{"group_id": "g", "topics": [{"topic_id": topic, "partition_indexes": [0]}]}]
                committing = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
                return [
                    client.call(OFFSET_COMMIT, 10, **committing, topics=[{"topic_id": topic, "partitions": commit}]),
                    client.call(OFFSET_FETCH, 10, groups=wanted, require_stable=False),
                    client.call(METADATA, 12, topics=[{"topic_id": topic, "name": None}]).topics,
                    client.call(FETCH, 13, max_wait=0, topics=[{"topic_id": topic, "partitions": asked(0)}]).responses,
                    client.call(PRODUCE, 13, acks=-1, topic_data=[{"topic_id": topic, "partition_data": parts}]),
                    client.call(DELETE_TOPICS, 6, topics=[{"topic_id": topic, "name": None}]).responses,
                ]

            hidden = [without_ids(each) for each in answers(secret)]
            for strange in (topic_uuid(999), UUID(int=7), UUID(int=0)):
                assert hidden == [without_ids(each) for each in answers(strange)]
            (found,) = client.call(METADATA, 12, topics=[{"topic_id": public, "name": None}]).topics
            assert found.name == "public"
        assert "secret" in broker.list_topics()


# Shares


def test_answers_that_one_token_does_not_read_delay_nobody_else() -> None:
    limits = {"fetch_bytes_max": 16 * MEGABYTE, "answers_bytes_max": 64 * MEGABYTE, "room_seconds_max": 600.0}
    with Broker.open("memory:") as broker, serving(broker, **limits) as port:
        _, greedy = broker.access.create("greedy", [("large", ["read"])])
        _, other = broker.access.create("other", [("large", ["read"])])
        broker.create_topic("large", message_bytes_max=16 * MEGABYTE)
        publish(broker, "large", 0, bytes(12 * MEGABYTE))
        with ExitStack() as stack:
            for _ in range(20):
                hold(stack.enter_context(logged_in(port, greedy)), 16 * MEGABYTE)
            client = stack.enter_context(logged_in(port, other))
            for _ in range(5):
                (found,) = fetch(client, "large", asked(0)).responses
                assert len(found.partitions[0].records) > 12 * MEGABYTE
            # Those of the one token wait for each other.
            late = stack.enter_context(logged_in(port, greedy))
            late._socket.settimeout(0.3)
            with pytest.raises(TimeoutError):
                fetch(late, "large", asked(0))


def hold(client: RawClient, bytes_max: int) -> None:
    """Ask for messages, and read nothing of the answer: the kernel takes some megabytes."""
    client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    wanted = [{"topic": "large", "partitions": asked(0, bytes_max=bytes_max)}]
    client.request(FETCH, 11, max_wait=0, max_bytes=bytes_max, session_epoch=-1, topics=wanted)


def test_a_message_that_is_larger_than_asked_for_has_room_too() -> None:
    """Many clients that ask for a byte and read nothing: what they are given counts, not what they asked for."""
    limits = {"fetch_bytes_max": 16 * MEGABYTE, "answers_bytes_max": 32 * MEGABYTE, "room_seconds_max": 600.0}
    with Broker.open("memory:") as broker, serving(broker, **limits) as port:
        broker.create_topic("large", message_bytes_max=16 * MEGABYTE)
        publish(broker, "large", 0, bytes(12 * MEGABYTE))
        with ExitStack() as stack:
            clients = [stack.enter_context(RawClient(port)) for _ in range(30)]
            for client in clients:
                hold(client, 1)
            places = [client._socket for client in clients]
            assert select.select(places, [], [], 60.0)[0]
            # The others would be answered by now.
            time.sleep(1.0)
            assert len(select.select(places, [], [], 0)[0]) == 1


def test_compressed_messages_grow_to_what_was_asked_for_or_one_message() -> None:
    large, count = 8 * MEGABYTE, 20
    with Broker.open("memory:") as broker, serving(broker) as port, RawClient(port) as client:
        broker.create_topic("compressed", count)
        value = compress(bytes(large), "zstd")
        for number in range(count):
            columns = {"value": [value] * 2, "codec": ["zstd"] * 2, "partition": pa.array([number] * 2, pa.int32())}
            broker.publish("compressed", pa.RecordBatch.from_pydict(columns))
        offsets = dict.fromkeys(range(count), 0)
        seen: list[tuple[int, int]] = []
        while len(seen) < count:
            wanted = [each for number, offset in offsets.items() for each in asked(number, offset=offset)]
            (found,) = fetch(client, "compressed", wanted).responses
            records = {each.partition_index: bytes(each.records) for each in found.partitions if each.records}
            assert large <= sum(map(len, records.values())) < large + MEGABYTE
            for number, given in records.items():
                seen.append((number, int.from_bytes(given[:8])))
                offsets[number] += 1
        assert len(set(seen)) == count


# Sessions


def test_a_session_looks_at_topics_that_changed(site: Site, client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 150
    looks: list[str] = []
    look = SessionTopic.has_messages

    def seen(topic: SessionTopic) -> bool:
        looks.append(topic.name)
        return look(topic)

    monkeypatch.setattr(SessionTopic, "has_messages", seen)
    names = [f"session-{number}" for number in range(count)]
    for name in names:
        site.broker.create_topic(name)
    limits = {"max_wait": 1, "min_bytes": 1, "max_bytes": MEGABYTE}
    topics = [{"topic": name, "partitions": asked(0)} for name in names]
    session = client.call(FETCH, 11, session_epoch=0, topics=topics, **limits).session_id

    def again(epoch: int, **more: Any) -> list[str]:
        looks.clear()
        fields = {**limits, "session_id": session, "session_epoch": epoch, "topics": [], **more}
        return [each.topic for each in client.call(FETCH, 11, **fields).responses]

    assert again(1) == []
    assert again(2) == [] and looks == []
    publish(site.broker, names[70], 0, b"x")
    assert again(3) == [names[70]]
    assert set(looks) == {names[70]}
    assert again(4, topics=[{"topic": names[70], "partitions": asked(0, offset=1)}]) == []
    assert again(5) == [] and looks == []
    # A wait ends when a message comes that nobody has looked for yet.
    client.request(FETCH, 11, **{**limits, "max_wait": 300_000}, session_id=session, session_epoch=6, topics=[])
    time.sleep(0.1)
    publish(site.broker, names[149], 0, b"y")
    assert [each.topic for each in client.answer().responses] == [names[149]]
    assert again(7, forgotten_topics_data=[{"topic": names[149], "partitions": [0]}]) == []
    site.broker.delete_topic(names[3])
    (gone,) = client.call(
        FETCH, 11, **{**limits, "max_wait": 300_000}, session_id=session, session_epoch=8, topics=[]
    ).responses
    assert (gone.topic, gone.partitions[0].error_code) == (names[3], UNKNOWN)
    # One that exists again is read again.
    site.broker.create_topic(names[3])
    publish(site.broker, names[3], 0, b"z")
    assert again(9) == [names[3]]


def test_a_watch_of_a_session_ends_and_begins_again(
    site: Site, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shared store is polled for whoever watches."""
    monkeypatch.setattr("headrace.protocols.kafka.apis.records.fetch_watch.KEPT_SECONDS", 0.05)
    site.broker.create_topic("unwatched")
    watches = site.broker._topics.find("unwatched").topic.watches
    session = fetch(client, "unwatched", asked(0), session_epoch=0).session_id
    for epoch in (1, 2):
        fetch(client, "unwatched", [], session_id=session, session_epoch=epoch)
        until = time.monotonic() + 60.0
        while len(watches):
            assert time.monotonic() < until
            time.sleep(0.01)
    publish(site.broker, "unwatched", 0, b"x")
    (found,) = fetch(client, "unwatched", [], session_id=session, session_epoch=3, max_wait=300_000).responses
    assert found.partitions[0].records


def test_a_server_that_stops_leaves_no_watch_behind() -> None:
    with Broker.open("memory:") as broker:
        broker.create_topic("watched")
        watches = broker._topics.find("watched").topic.watches
        with serving(broker) as port, RawClient(port) as client:
            session = fetch(client, "watched", asked(0), session_epoch=0).session_id
            fetch(client, "watched", [], session_id=session, session_epoch=1)
            assert len(watches) == 1
        assert len(watches) == 0


def test_no_topic_of_a_session_starves(site: Site, client: RawClient) -> None:
    """One has an idle partition and a long backlog in another, the second a backlog: both are read in turns."""
    backlogs = {"starve-a": 1, "starve-b": 0}
    for name, partition in backlogs.items():
        site.broker.create_topic(name, 2)
        publish(site.broker, name, partition, *[bytes(1000)] * 200)
    topics = [{"topic": name, "partitions": asked(0, 1, bytes_max=10_000)} for name in backlogs]
    limits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 10_000}
    session, epoch, offsets = 0, 0, dict.fromkeys(backlogs, 0)
    order: list[str] = []
    for _ in range(12):
        answer = client.call(FETCH, 11, **limits, session_id=session, session_epoch=epoch, topics=topics)
        session, epoch, topics = answer.session_id, epoch + 1, []
        for topic in answer.responses:
            for each in topic.partitions:
                if each.records:
                    order.append(topic.topic)
                    records = bytes(each.records)
                    offsets[topic.topic] = int.from_bytes(records[:8]) + int.from_bytes(records[23:27]) + 1
                    moved = asked(each.partition_index, offset=offsets[topic.topic], bytes_max=10_000)
                    topics.append({"topic": topic.topic, "partitions": moved})
    assert order == ["starve-a", "starve-b"] * 6

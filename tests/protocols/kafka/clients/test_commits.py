"""What clients commit beside the offset that they read next: other offsets, texts, epochs; and where they read then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka as confluent
import kafka
import pytest
from kafka.structs import OffsetAndMetadata

from headrace.broker.groups import note_room
from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.raw import RawClient
from tests.protocols.kafka.test_clients import PATIENCE_SECONDS, produce

OFFSET_COMMIT, OFFSET_FETCH = 8, 9
NONE, OFFSET_METADATA_TOO_LARGE = 0, 12
METADATA_BYTES_MAX = 4096


@pytest.fixture
def client(site: Site) -> Iterator[RawClient]:
    with RawClient(site.port) as raw:
        yield raw


def consumer(site: Site, group: str, reset: str) -> confluent.Consumer:
    settings = {"bootstrap.servers": site.bootstrap, "group.id": group, "auto.offset.reset": reset}
    return confluent.Consumer(settings | {"enable.auto.commit": False})


def read(site: Site, group: str, count: int, reset: str = "earliest") -> list[int]:
    """The offsets of the next messages from where the group is."""
    reader = consumer(site, group, reset)
    try:
        reader.subscribe([group])
        found = [reader.poll(PATIENCE_SECONDS) for _ in range(count)]
        return [message.offset() for message in found]
    finally:
        reader.close()


def commit(site: Site, group: str, offset: int, metadata: str | None = None) -> None:
    committer = consumer(site, group, "earliest")
    place = confluent.TopicPartition(group, 0, offset, metadata or "")
    committer.commit(offsets=[place], asynchronous=False)
    committer.close()


def test_a_commit_beyond_the_end_is_stored_and_skips_nothing(site: Site) -> None:
    topic = "beyond"
    site.broker.create_topic(topic)
    produce(site, topic, 3)
    commit(site, topic, 100)
    asking = consumer(site, topic, "earliest")
    assert asking.committed([confluent.TopicPartition(topic, 0)], PATIENCE_SECONDS)[0].offset == 100
    # The broker's own group is at the end, so retention and other readers pass over nothing later.
    assert site.broker.committed(topic, topic) == {0: 3}
    assert read(site, topic, 3) == [0, 1, 2]
    produce(site, topic, 120)
    # Now there is a message 100: a group that began there would have skipped 97.
    assert asking.committed([confluent.TopicPartition(topic, 0)], PATIENCE_SECONDS)[0].offset == 3
    assert read(site, topic, 2) == [3, 4]
    asking.close()


def test_the_text_of_a_commit_is_kept(site: Site) -> None:
    topic = "texts"
    site.broker.create_topic(topic)
    produce(site, topic, 3)
    commit(site, topic, 2, "hätte")
    asking = consumer(site, topic, "earliest")
    (found,) = asking.committed([confluent.TopicPartition(topic, 0)], PATIENCE_SECONDS)
    assert (found.offset, found.metadata) == (2, "hätte")
    reader = kafka.KafkaConsumer(bootstrap_servers=site.bootstrap, group_id=topic, enable_auto_commit=False)
    try:
        place = kafka.TopicPartition(topic, 0)
        for metadata, epoch in (("other", 5), ("x" * METADATA_BYTES_MAX, -1)):
            reader.commit({place: OffsetAndMetadata(2, metadata, epoch)})
            assert reader.committed(place, metadata=True) == OffsetAndMetadata(2, metadata, epoch)
    finally:
        reader.close()
    with pytest.raises(confluent.KafkaException) as caught:
        commit(site, topic, 3, "x" * (METADATA_BYTES_MAX + 1))
    assert caught.value.args[0].name() == "OFFSET_METADATA_TOO_LARGE"
    # A commit of a native reader says nothing.
    site.broker.commit_offsets(topic, topic, {0: 3})
    (found,) = asking.committed([confluent.TopicPartition(topic, 0)], PATIENCE_SECONDS)
    assert (found.offset, found.metadata or "") == (3, "")
    asking.close()


def test_texts_that_a_topic_has_no_room_for_are_refused(
    site: Site, client: RawClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One who may only read could fill the catalog with them, in groups without number."""
    monkeypatch.setattr(note_room, "COMMIT_NOTES_BYTES_MAX", 4 * METADATA_BYTES_MAX)
    topic = "full"
    site.broker.create_topic(topic, 3)
    text = "x" * METADATA_BYTES_MAX
    for texts, codes in (
        ((text, None, None), (NONE, NONE, NONE)),
        ((None, text, "y"), (NONE, OFFSET_METADATA_TOO_LARGE, OFFSET_METADATA_TOO_LARGE)),
    ):
        partitions = [
            {"partition_index": number, "committed_offset": 0, "committed_metadata": said}
            for number, said in enumerate(texts)
        ]
        topics = [{"name": topic, "partitions": partitions}]
        fields = {"group_id": topic, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
        (answer,) = client.call(OFFSET_COMMIT, 8, **fields).topics
        assert tuple(each.error_code for each in answer.partitions) == codes
    assert "a commit of 'anyone' to topic 'full' was refused: metadata of commits" in caplog.text


@pytest.mark.parametrize("offset", [-1, -2, -(1 << 63)])
def test_a_negative_offset_is_stored_and_the_group_is_at_its_beginning(
    site: Site, client: RawClient, offset: int
) -> None:
    """kafkajs commits -1 and -2 where a group is to begin at an end."""
    topic = f"negative{offset}"
    site.broker.create_topic(topic)
    produce(site, topic, 3)
    commit(site, topic, 2)
    said: dict[str, Any] = {"committed_offset": offset, "committed_leader_epoch": 4, "committed_metadata": None}
    topics = [{"name": topic, "partitions": [{"partition_index": 0, **said}]}]
    fields = {"group_id": topic, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    (answer,) = client.call(OFFSET_COMMIT, 8, **fields).topics
    assert answer.partitions[0].error_code == NONE
    groups = [{"group_id": topic, "topics": None}]
    (group,) = client.call(OFFSET_FETCH, 8, groups=groups, require_stable=False).groups
    (found,) = group.topics[0].partitions
    assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (offset, 4, "")
    assert site.broker.committed(topic, topic) == {0: 0}
    assert read(site, topic, 3) == [0, 1, 2]


def test_auto_offset_reset_says_where_a_group_begins_whose_offset_is_nowhere(site: Site) -> None:
    topic = "nowhere"
    site.broker.create_topic(topic)
    produce(site, topic, 3)
    commit(site, topic, 50)
    reader = consumer(site, topic, "latest")
    try:
        reader.subscribe([topic])
        while not reader.assignment():
            reader.poll(0.1)
        while reader.position([confluent.TopicPartition(topic, 0)])[0].offset < 0:
            produce(site, topic, 1)
            reader.poll(0.1)
        assert reader.position([confluent.TopicPartition(topic, 0)])[0].offset > 3
    finally:
        reader.close()

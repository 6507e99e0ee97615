"""librdkafka's consumers in groups in which the server assigns (`group.protocol=consumer`, KIP-848)."""

from __future__ import annotations

import threading
from typing import Any

import confluent_kafka as confluent
import pytest
from confluent_kafka.admin import AdminClient

from headrace.core.errors import GroupNotFound, GroupSizeConflict
from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.raw import RawClient
from tests.protocols.kafka.test_clients import PATIENCE_SECONDS, produce, until

HEARTBEAT, DESCRIBE, JOIN_GROUP, LIST_GROUPS = 68, 69, 11, 16


class Consumer:
    """A member, polled in a thread until it is closed."""

    def __init__(self, site: Site, group: str, topic: str, **more: Any) -> None:
        self.values: list[bytes] = []
        self.assigned: set[int] = set()
        self._is_over = threading.Event()
        self._consumer = confluent.Consumer(
            {
                "bootstrap.servers": site.bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                **more,
            }
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            for message in self._consumer.consume(100, 0.05):
                assert message.error() is None, message.error()
                self.values.append(message.value())
            self.assigned = {each.partition for each in self._consumer.assignment()}
        self._consumer.close()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()


def test_members_come_and_go(site: Site) -> None:
    site.broker.create_topic("newer", 4)
    produce(site, "newer", 100)
    first = Consumer(site, "newer", "newer")
    until(lambda: len(first.values) == 100 and first.assigned == {0, 1, 2, 3})
    second = Consumer(site, "newer", "newer")
    until(lambda: len(first.assigned) == len(second.assigned) == 2 and not first.assigned & second.assigned)
    with RawClient(site.port) as client:
        (described,) = client.call(DESCRIBE, 1, group_ids=["newer"]).groups
        assert (described.error_code, described.assignor_name, len(described.members)) == (0, "uniform", 2)
        listed = client.call(LIST_GROUPS, 5, states_filter=[], types_filter=["consumer"]).groups
        assert [(each.group_id, each.group_type) for each in listed] == [("newer", "consumer")]
        assert client.call(LIST_GROUPS, 5, states_filter=["dead"], types_filter=[]).groups == []
    with pytest.raises(GroupSizeConflict, match="Kafka members"):
        site.broker.join_group("newer", "newer", "native")
    produce(site, "newer", 100)
    until(lambda: len(first.values) + len(second.values) == 200)
    first.close()
    until(lambda: second.assigned == {0, 1, 2, 3})
    second.close()
    assert sum(site.broker.committed("newer", "newer").values()) == 200
    site.broker.join_group("newer", "newer", "native")
    site.broker.leave_group("newer", "newer", "native")


def heartbeat(client: RawClient, group: str, **fields: Any) -> Any:
    given = {"member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["plain"], "rebalance_timeout": 1000}
    return client.call(HEARTBEAT, 1, group_id=group, **(given | fields))


def test_what_is_wrong_has_the_right_error(site: Site) -> None:
    site.broker.create_topic("plain")
    with RawClient(site.port) as client:
        assert heartbeat(client, "").error_code == 24
        assert heartbeat(client, "g", server_assignor="roulette").error_code == 112
        assert heartbeat(client, "g", member_id="m" * 3_000).error_code == 42
        assert heartbeat(client, "g", subscribed_topic_names=["x"] * 1_001).error_code == 42
        assert heartbeat(client, "g", subscribed_topic_names=[""]).error_code == 42
        assert heartbeat(client, "g", subscribed_topic_regex="(").error_code == 128
        assert heartbeat(client, "g", subscribed_topic_regex="x" * 1_001).error_code == 42
        assert heartbeat(client, "g", subscribed_topic_names=None).error_code == 42
        assert heartbeat(client, "g", member_epoch=5).error_code == 25
        assert heartbeat(client, "g", member_epoch=-1).error_code == 25
        joined = heartbeat(client, "g")
        assert (joined.error_code, joined.member_id) == (0, "m")
        assert [each.partitions for each in joined.assignment.topic_partitions] == [[0]]
        assert heartbeat(client, "g", member_epoch=77).error_code == 110
        older = {"session_timeout": 60_000, "rebalance_timeout": 60_000, "member_id": "", "protocol_type": "consumer"}
        protocols = [{"name": "range", "metadata": b"\x00\x00" + bytes(4)}]
        assert client.call(JOIN_GROUP, 3, group_id="g", protocols=protocols, **older).error_code == 23
        assert client.call(JOIN_GROUP, 3, group_id="h", protocols=protocols, **older).error_code == 0
        assert heartbeat(client, "h").error_code == 69
        assert client.call(DESCRIBE, 1, group_ids=["h"]).groups[0].error_code == 69
        assert heartbeat(client, "g", member_epoch=-1).error_code == 0


def test_topics_are_subscribed_to_by_an_expression(site: Site) -> None:
    """Those that are created later too; the group is listed, also while no topic matches."""
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    member = Consumer(site, "matching", "^metrics-[a-z]+$", **{"topic.metadata.refresh.interval.ms": 100})

    def listed() -> list[tuple[str, str]]:
        found = admin.list_consumer_groups().result(PATIENCE_SECONDS)
        assert not found.errors
        return [(each.group_id, each.type.name) for each in found.valid if each.group_id == "matching"]

    try:
        until(lambda: listed() == [("matching", "CONSUMER")])
        for topic in ("metrics-cpu", "metrics-1", "metrics-disk"):
            site.broker.create_topic(topic)
            produce(site, topic, 3)
        until(lambda: len(member.values) == 6)
        with RawClient(site.port) as client:
            (described,) = client.call(DESCRIBE, 1, group_ids=["matching"]).groups
            # librdkafka puts each expression into parentheses.
            assert described.members[0].subscribed_topic_regex == "(^metrics-[a-z]+$)"
            assert described.members[0].subscribed_topic_names == ["metrics-cpu", "metrics-disk"]
    finally:
        member.close()
    assert site.broker.committed("metrics-disk", "matching") == {0: 3}
    with pytest.raises(GroupNotFound):
        site.broker.committed("metrics-1", "matching")

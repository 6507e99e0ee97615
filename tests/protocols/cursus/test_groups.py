"""Groups: members that join, lose partitions and join again, and what they commit."""

from __future__ import annotations

import re

from headrace.broker import Broker
from headrace.protocols.cursus.server import CursusServer
from headrace.protocols.cursus.settings import CursusSettings
from headrace.protocols.http import server as sockets
from tests.protocols.cursus.conftest import CursusSite
from tests.protocols.cursus.raw import RawCursus, batch, records


class Member:
    """A member, as its client knows itself."""

    def __init__(self, client: RawCursus, topic: str, name: str = "m") -> None:
        self.client, self.topic, self.name = client, topic, name
        self.generation, self.partitions = 0, list[int]()
        self.join()

    def join(self) -> None:
        answer = self.client.ask(f"JOIN_GROUP topic={self.topic} group=g member={self.name}")
        found = re.fullmatch(r"OK generation=(\d+) member=(\S+) assignments=\[([\d ]*)\]", answer)
        assert found, answer
        self.generation, self.name = int(found[1]), found[2]
        self.partitions = [int(each) for each in found[3].split()]

    def ask(self, command: str, more: str = "") -> str:
        named = f"topic={self.topic} group=g member={self.name} generation={self.generation}"
        return self.client.ask(f"{command} {named} {more}")


def test_members_share_partitions_and_hear_that_they_lost_some(client: RawCursus, topic: str) -> None:
    one = Member(client, topic)
    assert one.partitions == [0, 1]
    two = Member(client, topic)
    assert (len(two.partitions), two.name != one.name) == (1, True)
    assert one.ask("HEARTBEAT").startswith(f"ERROR: GEN_MISMATCH current={two.generation} requested={one.generation}")
    name = one.name
    one.join()
    assert (one.name, one.generation) == (name, two.generation)
    assert sorted(one.partitions + two.partitions) == [0, 1]
    assert one.ask("HEARTBEAT") == f"OK member={one.name} generation={one.generation}"
    # Without the generation, as the clients in Python and Java leave.
    client.ask(f"LEAVE_GROUP topic={topic} group=g member={two.name}")
    one.join()
    assert one.partitions == [0, 1]


def test_what_a_member_lost_is_not_given_to_it(client: RawCursus, topic: str) -> None:
    client.acknowledged(batch(topic, records(3), partition=0))
    client.acknowledged(batch(topic, records(3), partition=1))
    one, two = Member(client, topic), Member(client, topic)
    lost = two.partitions[0]
    assert one.ask("CONSUME", f"partition={lost} offset=0").startswith("ERROR: GEN_MISMATCH")
    one.join()
    assert one.ask("CONSUME", f"partition={lost} offset=0") == (
        f"ERROR: NOT_OWNER partition={lost} member={one.name} group=g generation={one.generation}"
    )


def test_a_late_commit_of_a_lost_partition_counts_for_nothing_and_ends_no_membership(
    site: CursusSite, client: RawCursus, topic: str
) -> None:
    """The Python client keeps what was not committed, and would join again each time that it is refused."""
    client.acknowledged(batch(topic, records(3), partition=0))
    client.acknowledged(batch(topic, records(3), partition=1))
    one, two = Member(client, topic), Member(client, topic)
    lost, kept = two.partitions[0], 1 - two.partitions[0]
    assert one.ask("BATCH_COMMIT", f"P{lost}:2,P{kept}:2").startswith("ERROR: NOT_OWNER")
    assert one.ask("COMMIT_OFFSET", f"partition={kept} offset=1") == "OK"
    one.join()
    assert one.ask("BATCH_COMMIT", f"P{lost}:2,P{kept}:2") == "OK batched=1"
    assert one.ask("COMMIT_OFFSET", f"partition={lost} offset=2") == "OK"
    assert site.broker.committed(topic, "g") == {kept: 2}
    assert one.ask("HEARTBEAT").startswith("OK")


def test_a_batch_of_commits_leaves_what_was_committed_further(client: RawCursus, topic: str) -> None:
    client.acknowledged(batch(topic, records(3), partition=0))
    one = Member(client, topic)
    assert one.ask("BATCH_COMMIT", "P0:3,P1:0") == "OK batched=2"
    assert one.ask("BATCH_COMMIT", "P0:1,P1:0") == "OK batched=2"
    assert client.ask(f"FETCH_OFFSET topic={topic} partition=0 group=g") == "OK offset=3"


def test_reading_begins_at_the_commit_or_where_the_client_has_read_on(client: RawCursus, topic: str) -> None:
    """The Python client asks by itself for what comes after the last message, and commits later."""
    client.acknowledged(batch(topic, records(5)))
    one = Member(client, topic)
    one.ask("COMMIT_OFFSET", "partition=0 offset=2")

    def read(offset: int) -> list[str]:
        named = f"group=g member={one.name} generation={one.generation}"
        found = client.read(f"CONSUME topic={topic} partition=0 offset={offset} {named}")
        return [each.payload for each in found]

    assert (read(0), read(4), read(5)) == (["3", "4", "5"], ["5"], [])


def test_a_position_that_retention_has_passed_is_told_once(site: CursusSite, client: RawCursus, topic: str) -> None:
    client.acknowledged(batch(topic, records(5)))
    one = Member(client, topic)
    one.ask("COMMIT_OFFSET", "partition=0 offset=1")
    site.broker.delete_messages(topic, {0: 3})
    named = f"CONSUME topic={topic} partition=0 group=g member={one.name} generation={one.generation}"
    assert client.ask(f"{named} offset=1") == "ERROR: OFFSET_OUT_OF_RANGE requested=1 earliest=3 latest=5"
    assert [each.payload for each in client.read(f"{named} offset=3")] == ["4", "5"]
    assert [each.payload for each in client.read(f"{named} offset=1 autoOffsetReset=earliest")] == ["4", "5"]
    assert client.read(f"{named} offset=1 autoOffsetReset=latest") == []


def test_a_group_that_is_moved_is_joined_again_and_read_from_there(
    site: CursusSite, client: RawCursus, topic: str
) -> None:
    client.acknowledged(batch(topic, records(5)))
    one = Member(client, topic)
    one.ask("COMMIT_OFFSET", "partition=0 offset=5")
    site.broker.seek(topic, "g", {0: 1})
    assert one.ask("COMMIT_OFFSET", "partition=0 offset=5").startswith("ERROR: GEN_MISMATCH")
    assert one.ask("CONSUME", "partition=0 offset=5").startswith("ERROR: GEN_MISMATCH")
    one.join()
    assert client.ask(f"FETCH_OFFSET topic={topic} partition=0 group=g") == "OK offset=1"


def test_members_of_other_protocols_share_the_group(site: CursusSite, client: RawCursus, topic: str) -> None:
    one = Member(client, topic)
    site.broker.join_group(topic, "g", "native")
    one.join()
    native = site.broker.heartbeat(topic, "g", "native")
    assert sorted(one.partitions + native.partitions) == [0, 1]
    site.broker.register_group(topic, "fixed", 2)
    refused = client.ask(f"JOIN_GROUP topic={topic} group=fixed member=m")
    assert refused.startswith(f"ERROR: register_group_failed topic={topic} reason=\"group 'fixed'")


def test_members_are_listed_by_name(site: CursusSite, client: RawCursus, topic: str) -> None:
    one = Member(client, topic, "billing-7")
    assert set(site.broker.describe_group(topic, "g").members) == {one.name}
    assert re.fullmatch(r"billing-7-\d{4}", one.name)
    client.read(f"CONSUME topic={topic} partition=0 offset=0 group=g member={one.name} generation=1")
    (seen,) = [each for each in site.server.gate.limits.clients.list("") if each.identity.client_id == one.name]
    assert (seen.protocol, seen.principal, seen.address) == ("cursus", "anyone", "127.0.0.1")
    assert [(each.topic, each.group, each.member) for each in seen.members] == [(topic, "g", one.name)]
    assert seen.members[0].polled_us is not None
    # Each time that it is lost it gets another name, which does not grow without end.
    for _ in range(3):
        site.broker.remove_member(topic, "g", one.name)
        assert one.ask("HEARTBEAT") == f"ERROR: member_not_found member={one.name} group=g"
        one.join()
        assert re.fullmatch(r"billing-7-\d{4}-\d{4}", one.name)


def test_a_member_without_heartbeats_leaves(topic: str) -> None:
    settings = CursusSettings(session_seconds=1.0)
    listeners = sockets.bind("127.0.0.1", 0)
    with (
        Broker.open("memory:") as broker,
        CursusServer(broker, broker.access, settings, listeners),
        RawCursus(sockets.port_of(listeners)) as client,
        RawCursus(sockets.port_of(listeners)) as stream,
    ):
        client.ask("CREATE topic=t partitions=1")
        one = Member(client, "t")
        stream.stream(f"topic=t partition=0 group=g member={one.name} generation={one.generation}")
        while not (frame := stream.frame()):
            pass
        assert frame == b"STREAM_CONTROL type=CLOSE reason=removed offset=0"
        assert one.ask("HEARTBEAT") == f"ERROR: member_not_found member={one.name} group=g"

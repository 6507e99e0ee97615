"""The answers of the protocol, each as a client reads it."""

from __future__ import annotations

import json
import re
import struct

import pytest

from headrace.protocols.cursus.commands.discovery import FEATURES
from headrace.protocols.cursus.commands.table import PUBLIC, SERVED
from tests.protocols.cursus.conftest import CursusSite
from tests.protocols.cursus.raw import RawCursus, batch, envelope, framed, records

_OPEN = "auth_policy=open read_acl= write_acl="
POLICY = f"cleanup_policy=delete partitioner=hash_key {_OPEN} retention_hours=0 retention_bytes=0"
ACK = r'\{"status": "OK", "producer_epoch": %s, "producer_id": "p", "seq_start": %s, "seq_end": %s, "last_offset": %s\}'
# Requests in their order, and what each is answered; <here> is the server's address, <me> the member that joined.
TABLE = [
    ("PROTOCOL_INFO", r"OK protocol=cursus min_version=1 max_version=1 default_version=1 features=\S+ error_.+"),
    ("NEGOTIATE version=9", "ERROR: UNSUPPORTED_PROTOCOL_VERSION requested=9 min=1 max=1"),
    ("NEGOTIATE version=x", "ERROR: invalid_protocol_version requested=x min=1 max=1"),
    ("NEGOTIATE", "ERROR: missing_protocol_version command=NEGOTIATE"),
    (
        "NEGOTIATE version=1 features=stream_control_v1,topic_compaction_v1 require_features=false",
        "OK protocol_version=1 enabled=stream_control_v1 unsupported=topic_compaction_v1",
    ),
    (
        "NEGOTIATE version=1 features=topic_compaction_v1 require_features=true",
        "ERROR: UNSUPPORTED_FEATURE features=topic_compaction_v1",
    ),
    ("METADATA topic=t", "ERROR: topic_not_found topic=t"),
    ("CREATE topic=t partitions=2", f"OK topic=t partitions=2 {POLICY}"),
    ("create TOPIC=x topic=t partitions=3", f"OK topic=t partitions=3 {POLICY}"),
    ("CREATE topic=t partitions=1", 'ERROR: create_topic_failed topic=t reason=".+"'),
    ("CREATE partitions=1", "ERROR: missing_topic command=CREATE"),
    ("CREATE topic=u partitions=0", 'ERROR: invalid_partitions reason="must be a positive integer"'),
    ("CREATE topic=a/b", 'ERROR: invalid_topic_name topic="a/b" reason=".+"'),
    ("CREATE topic=u cleanup_policy=compact", "ERROR: unsupported_topic_policy cleanup_policy=compact reason=.+"),
    (
        "CREATE topic=kept partitions=1 retention_hours=2 retention_bytes=4096 partitioner=round_robin",
        "OK topic=kept partitions=1 .* partitioner=round_robin .* retention_hours=2 retention_bytes=4096",
    ),
    ("LIST topic=t", "OK count=2 topics=t,kept"),
    ("METADATA topic=t", f"OK topic=t partitions=3 leaders=<here>,<here>,<here> epochs=0,0,0 {POLICY}"),
    ("DELETE topic=kept", "OK topic=kept deleted=true"),
    ("DELETE topic=kept", "ERROR: topic_not_found topic=kept"),
    ("PUBLISH topic=t message=x", "ERROR: missing_producer_id command=PUBLISH"),
    ("PUBLISH topic=t producerId=p", "ERROR: missing_message command=PUBLISH"),
    ("PUBLISH topic=t producerId=p acks=7 message=x", "ERROR: invalid_acks value=7"),
    ("PUBLISH topic=u producerId=p message=x", "ERROR: topic_not_found topic=u"),
    ("PUBLISH topic=t producerId=p partition=9 message=x", "ERROR: partition_not_found partition=9"),
    ("PUBLISH topic=t producerId=p partition=0 message=  one two  ", ACK % (0, 0, 0, 0)),
    ("PUBLISH topic=t producerId=p partition=0 acks=all seqNum=4 epoch=2 message=x", ACK % (2, 4, 4, 1)),
    ("PUBLISH topic=t producerId=p partition=0 acks=0 message=x", "OK"),
    ("LIST_OFFSETS topic=t partition=0", "OK topic=t partitions=3 offsets=P0:earliest=0:latest=3:leo=3:hwm=3"),
    ("LIST_OFFSETS topic=t", "OK topic=t partitions=3 offsets=P0:earliest=0:latest=3:leo=3:hwm=3,P1:.+,P2:.+"),
    ("LIST_OFFSETS topic=t partition=9", "ERROR: partition_not_found partition=9"),
    ("FIND_COORDINATOR group=g", r"OK coordinator_id=\S+ coordinator_type=group host=<host> port=<port>"),
    ("FIND_COORDINATOR transactional_id=x", r"OK coordinator_id=\S+ coordinator_type=transaction .+"),
    ("FIND_COORDINATOR", "ERROR: missing_coordinator_key command=FIND_COORDINATOR"),
    ("FETCH_OFFSET topic=t partition=0 group=g", "ERROR: group_not_found group=g"),
    ("JOIN_GROUP topic=u group=g member=m", "ERROR: topic_not_found topic=u"),
    ("JOIN_GROUP topic=t group=g", "ERROR: missing_member command=JOIN_GROUP"),
    ("JOIN_GROUP topic=t group=g member=m", r"OK generation=1 member=(m-\d{4}) assignments=\[0 1 2\]"),
    ("SYNC_GROUP topic=t group=g member=<me> generation=1", r"OK generation=1 member=<me> assignments=\[0 1 2\]"),
    ("JOIN_GROUP topic=t group=g member=<me> generation=1", r"OK generation=1 member=<me> assignments=.+ resumed=true"),
    ("JOIN_GROUP topic=t group=g member=<me>", r"OK generation=1 member=<me> assignments=\[0 1 2\]"),
    ("HEARTBEAT topic=t group=g member=<me> generation=1", "OK member=<me> generation=1"),
    ("HEARTBEAT topic=t group=g member=x generation=1", "ERROR: member_not_found member=x group=g"),
    ("HEARTBEAT topic=t group=h member=<me> generation=1", "ERROR: group_not_found group=h"),
    (
        "HEARTBEAT topic=t group=g member=<me> generation=2",
        "ERROR: GEN_MISMATCH current=1 requested=2 group=g member=<me>",
    ),
    ("FETCH_OFFSET topic=t partition=0 group=g", "OK offset=0"),
    ("COMMIT_OFFSET topic=t partition=0 group=g offset=2 generation=1", "ERROR: missing_member command=COMMIT_OFFSET"),
    ("COMMIT_OFFSET topic=t partition=0 group=g offset=2 member=<me>", "ERROR: missing_generation .+"),
    ("COMMIT_OFFSET topic=t partition=0 group=g offset=2 generation=1 member=<me>", "OK"),
    ("COMMIT_OFFSET topic=t partition=0 group=g offset=2 generation=1 member=<me>", "OK"),
    ("COMMIT_OFFSET topic=t partition=0 group=g offset=1 generation=1 member=<me>", "ERROR: offset_regression .+"),
    (
        "COMMIT_OFFSET topic=t partition=0 group=g offset=9999 generation=1 member=<me>",
        "ERROR: OFFSET_OUT_OF_RANGE requested=9999 earliest=0 latest=3",
    ),
    ("COMMIT_OFFSET topic=t partition=0 group=g offset=3 generation=1 member=x", "ERROR: member_not_found .+"),
    ("BATCH_COMMIT topic=t group=g member=<me> generation=1 P0:3,P1:0", "OK batched=2"),
    ("BATCH_COMMIT topic=t group=g member=<me> generation=1 P0:3,1:1", 'ERROR: invalid_partition entry="1:1"'),
    (
        "BATCH_COMMIT topic=t group=g member=<me> generation=1 P1:0,P1:0",
        "ERROR: duplicate_partition partition=1 group=g topic=t",
    ),
    ("BATCH_COMMIT topic=t group=g member=<me> generation=1", "ERROR: no_valid_offsets"),
    ("FETCH_OFFSET topic=t partition=0 group=g", "OK offset=3"),
    ("REGISTER_GROUP topic=t group=h", "OK group=h topic=t registered=true"),
    ("LIST_GROUPS", "OK count=2 groups=g,h"),
    ("LEAVE_GROUP topic=t group=g member=<me>", "OK group=g member=<me> left=true"),
    ("LEAVE_GROUP topic=t group=g member=<me> generation=1", "ERROR: member_not_found member=<me> group=g"),
    ("CONSUME topic=t partition=0 offset=0", "ERROR: invalid_consume_syntax"),
    ("CONSUME topic=u partition=0 offset=0 member=m", 'ERROR: command_failed reason="topic_not_found topic=u"'),
    ("CONSUME topic=t partition=9 offset=0 member=m", 'ERROR: command_failed reason="partition_not_found partition=9"'),
    (
        "CONSUME topic=t partition=0 offset=99 member=m",
        "ERROR: OFFSET_OUT_OF_RANGE requested=99 earliest=0 latest=3",
    ),
    ("CONSUME topic=t partition=0 offset=0 member=m isolation=x", "ERROR: invalid_isolation isolation=x"),
    ("STREAM topic=t partition=0", "ERROR: invalid_stream_syntax"),
    ("APPEND_STREAM topic=t key=k version=1 message=x", "ERROR: event_sourcing_not_enabled topic=t"),
    ("AUTH principal=p", "ERROR: invalid_auth command=AUTH"),
    ("CLUSTER_STATUS", 'ERROR: unknown_command command=CLUSTER_STATUS reason=".+"'),
    ("NONSENSE a=b", "ERROR: malformed_input reason=missing_topic_or_payload"),
]  # fmt: skip


def test_each_request_has_its_answer(site: CursusSite, client: RawCursus) -> None:
    host, _, port = site.address.partition(":")
    me = "m"
    for request, expected in TABLE:
        pattern = expected.replace("<here>", site.address).replace("<host>", host).replace("<port>", port)
        answer = client.ask(request.replace("<me>", me))
        found = re.fullmatch(pattern.replace("<me>", me), answer)
        assert found, f"{request}: {answer}"
        me = found[1] if found.groups() else me


def test_help_names_what_is_served(client: RawCursus) -> None:
    commands = client.ask("HELP").removeprefix("OK commands=").split(",")
    assert commands == [*SERVED, *PUBLIC, "EXIT"]
    client.send(envelope("EXIT"))
    assert client.is_closed()


def test_features_that_are_announced_can_be_negotiated(client: RawCursus) -> None:
    wanted = ",".join(sorted(FEATURES))
    assert client.ask("NEGOTIATE version=1 features=*") == f"OK protocol_version=1 enabled={wanted} unsupported="


@pytest.mark.parametrize(
    ("request_text", "expected"),
    [
        ("METADATA topic=none", "ERROR: topic_not_found class=not_found retryable=false topic=none"),
        ("CREATE", "ERROR: missing_topic class=validation retryable=false command=CREATE"),
        (
            "HEARTBEAT topic=structured group=none member=m generation=1",
            "ERROR: group_not_found class=not_found retryable=false group=none",
        ),
    ],
)
def test_errors_have_a_class_where_that_was_negotiated(client: RawCursus, request_text: str, expected: str) -> None:
    client.ask("CREATE topic=structured")
    client.ask("NEGOTIATE version=1 features=structured_errors_v1")
    assert client.ask(request_text) == expected


def test_commands_come_bare_and_in_envelopes(client: RawCursus) -> None:
    client.send(framed(b"PROTOCOL_INFO") + envelope("PROTOCOL_INFO", "admin") + framed(b"  protocol_info  "))
    assert [client.frame()[:11] for _ in range(3)] == [b"OK protocol"] * 3


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"x", 'ERROR: decode_failed reason="data too short"'),
        (struct.pack(">H", 9) + b"abc", 'ERROR: decode_failed reason="the name is longer than the request"'),
        (b"\0\0LIST \xff", 'ERROR: malformed_input reason="a command must be UTF-8"'),
        (b"\0\0LIST " + b"a" * (256 << 10), 'ERROR: malformed_input reason="a command without .+"'),
    ],
)
def test_what_cannot_be_read_is_refused(client: RawCursus, body: bytes, answer: str) -> None:
    client.send(framed(body))
    assert re.fullmatch(answer, client.frame().decode())
    assert client.ask("PROTOCOL_INFO").startswith("OK")


@pytest.mark.parametrize("body", [b"", b" \t\n", b"\0\0  ", b"\x0b", b"\0\0\x0c"])
def test_a_request_of_blanks_ends_the_connection(client: RawCursus, body: bytes) -> None:
    client.send(framed(body))
    assert client.is_closed()


def test_requests_are_answered_in_their_order(client: RawCursus, topic: str) -> None:
    one = framed(batch(topic, records(3)))
    client.send(one + envelope(f"LIST_OFFSETS topic={topic} partition=0") + one + envelope("PROTOCOL_INFO"))
    answers = [client.frame().decode() for _ in range(4)]
    assert [json.loads(answers[place])["last_offset"] for place in (0, 2)] == [2, 5]
    assert ":latest=3:" in answers[1]
    assert answers[3].startswith("OK protocol")


def test_a_description_has_all_that_clients_read(site: CursusSite, client: RawCursus, topic: str) -> None:
    client.acknowledged(batch(topic, records(3)))
    described = json.loads(client.ask(f"DESCRIBE topic={topic}"))
    here = {"leader": site.address, "replicas": [site.address], "isr": [site.address]}
    assert described["partitions"] == [{"id": 0, **here, "leo": 3, "hwm": 3}, {"id": 1, **here, "leo": 0, "hwm": 0}]
    joined = client.ask(f"JOIN_GROUP topic={topic} group=described member=m")
    member = joined.split()[2].removeprefix("member=")
    status = json.loads(client.ask("GROUP_STATUS group=described"))
    assert status == {
        "status": "OK",
        "group_name": "described",
        "topic_name": topic,
        "state": "Stable",
        "generation": 1,
        "member_count": 1,
        "partition_count": 2,
        "members": [{"member_id": member, "assignments": [0, 1]}],
    }
    assert client.ask("GROUP_STATUS group=none") == "ERROR: group_not_found group=none"

"""Tokens by SASL, rights by topic and group, TLS."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as confluent
import pytest
import trustme

from headrace.broker import Broker
from headrace.edge.event_loop.frame_connection import UNKNOWN_BYTES_MAX
from headrace.protocols.http import server as sockets
from headrace.protocols.kafka.server import KafkaServer
from headrace.protocols.kafka.settings import KafkaSettings
from tests.protocols.kafka.raw import RawClient
from tests.protocols.kafka.records.test_codec import NOW_MS, built

PATIENCE_SECONDS = 60.0
METADATA, SASL_HANDSHAKE, SASL_AUTHENTICATE = 3, 17, 36
SASL_FAILED = 58
JOIN_GROUP, HEARTBEAT_CLASSIC, LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS = 11, 12, 13, 14, 15, 16
OFFSET_DELETE, CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE = 47, 68, 69
GROUP_DENIED, INVALID_REQUEST, GROUP_NOT_FOUND = 30, 42, 69
HEARTBEAT = {"member_id": "", "member_epoch": 0, "rebalance_timeout": 30_000, "topic_partitions": []}


class Guarded:
    """A server with TLS and two tokens: one for everything, one for reading `orders` as group `billing`."""

    def __init__(self, broker: Broker, port: int, ca: Path) -> None:
        self.broker = broker
        self.port = port
        self._ca = ca
        _, self.all = broker.access.create("all", [("*", ["publish", "read", "manage"])])
        _, self.reader = broker.access.create("reader", [("orders", ["read"])], groups=["billing"])

    def settings(self, token: str, mechanism: str = "PLAIN") -> dict[str, str]:
        return {
            "bootstrap.servers": f"localhost:{self.port}",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": "anything",
            "sasl.password": token,
            "ssl.ca.location": str(self._ca),
        }


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    authority, directory = trustme.CA(), tmp_path_factory.mktemp("tls")
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    listeners = sockets.bind("127.0.0.1", 0)
    settings = KafkaSettings(advertised=f"localhost:{sockets.port_of(listeners)}", rebalance_delay_seconds=0.05)
    with Broker.open("memory:") as broker, KafkaServer(broker, broker.access, settings, listeners, context):
        broker.create_topic("orders")
        yield Guarded(broker, sockets.port_of(listeners), directory / "ca.pem")


@pytest.fixture(scope="module")
def plain_port(guarded: Guarded) -> Iterator[int]:
    """The same broker without TLS, for clients that are written here."""
    listeners = sockets.bind("127.0.0.1", 0)
    with KafkaServer(guarded.broker, guarded.broker.access, KafkaSettings(), listeners):
        yield sockets.port_of(listeners)


def test_a_token_as_password_over_tls(guarded: Guarded) -> None:
    producer = confluent.Producer(guarded.settings(guarded.all))
    producer.produce("orders", b"over TLS")
    assert producer.flush(PATIENCE_SECONDS) == 0
    assert guarded.broker.offsets("orders")[0][1] == 1
    consumer = confluent.Consumer(
        guarded.settings(guarded.reader) | {"group.id": "billing", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    message = consumer.poll(PATIENCE_SECONDS)
    assert message is not None and message.value() == b"over TLS"
    consumer.close()


def test_rights_are_those_of_the_token(guarded: Guarded) -> None:
    failures: list[confluent.KafkaError] = []
    producer = confluent.Producer(guarded.settings(guarded.reader))
    producer.produce("orders", b"x", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(PATIENCE_SECONDS) == 0
    assert failures[0].name() == "TOPIC_AUTHORIZATION_FAILED"
    consumer = confluent.Consumer(guarded.settings(guarded.reader) | {"group.id": "another"})
    consumer.subscribe(["orders"])
    message = consumer.poll(PATIENCE_SECONDS)
    assert message is not None and message.error().name() == "GROUP_AUTHORIZATION_FAILED"
    consumer.close()
    assert [*consumer_topics(guarded)] == ["orders"]


def consumer_topics(guarded: Guarded) -> list[str]:
    guarded.broker.create_topic("secret")
    consumer = confluent.Consumer(guarded.settings(guarded.reader) | {"group.id": "billing"})
    names = list(consumer.list_topics(timeout=PATIENCE_SECONDS).topics)
    consumer.close()
    return names


def logged_in(port: int, token: str, mechanism: str = "PLAIN") -> RawClient:
    client = RawClient(port)
    assert client.call(SASL_HANDSHAKE, 1, mechanism=mechanism).error_code == 0
    sent = b"\x00user\x00" + token.encode()
    if mechanism == "OAUTHBEARER":
        sent = b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"
    assert client.call(SASL_AUTHENTICATE, 2, auth_bytes=sent).error_code == 0
    return client


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_both_mechanisms(guarded: Guarded, plain_port: int, mechanism: str) -> None:
    with logged_in(plain_port, guarded.all, mechanism) as client:
        assert client.call(METADATA, 12, topics=[]).controller_id == 0


def test_bad_logins_are_refused(plain_port: int) -> None:
    with RawClient(plain_port) as client:
        assert client.call(SASL_AUTHENTICATE, 2, auth_bytes=b"\x00u\x00p").error_code == 34
        answer = client.call(SASL_HANDSHAKE, 1, mechanism="GSSAPI")
        mechanisms = ["PLAIN", "OAUTHBEARER", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert (answer.error_code, answer.mechanisms) == (33, mechanisms)
        for mechanism, sent in (("PLAIN", b"x"), ("PLAIN", b"\x00user\x00hr_wrong"), ("OAUTHBEARER", b"n,,\x01\x01")):
            client.call(SASL_HANDSHAKE, 1, mechanism=mechanism)
            answer = client.call(SASL_AUTHENTICATE, 2, auth_bytes=sent)
            assert answer.error_code == 58 and answer.error_message
        client.request(METADATA, 12, topics=[])
        assert client.is_closed()


def test_without_a_token_nothing_but_logging_in(plain_port: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "headrace.protocols"):
        with RawClient(plain_port) as client:
            client.request(METADATA, 12, topics=[])
            assert client.is_closed()
        with RawClient(plain_port) as client:
            client.send(struct.pack(">i", UNKNOWN_BYTES_MAX + 1))
            assert client.is_closed()
    assert len(caplog.records) == 2


def test_a_revoked_token_ends_its_connections(guarded: Guarded, plain_port: int) -> None:
    record, token = guarded.broker.access.create("short", [("*", ["read"])])
    with logged_in(plain_port, token) as client:
        assert client.call(METADATA, 12, topics=[]).controller_id == 0
        guarded.broker.access.revoke(record.id)
        client.request(METADATA, 12, topics=[])
        assert client.is_closed()


def test_a_limited_producer_id_is_a_right_of_its_own(guarded: Guarded, plain_port: int) -> None:
    _, token = guarded.broker.access.create("till", [("orders", ["publish"])], producers=["till-*"])
    with logged_in(plain_port, token) as client:
        for producer, code in (((-1, -1, -1), 0), ((9, 0, 0), 29)):
            records = built([(NOW_MS, None, b"x", [])], producer=producer)
            data = [{"name": "orders", "partition_data": [{"index": 0, "records": records}]}]
            answer = client.call(0, 9, acks=-1, timeout=1000, topic_data=data)
            assert answer.responses[0].partition_responses[0].error_code == code


def test_a_producer_id_that_a_token_names_is_refused_to_others(guarded: Guarded, plain_port: int) -> None:
    record, till = guarded.broker.access.create("till", [("orders", ["publish"])], producers=["kafka:11"])
    _, other = guarded.broker.access.create("other", [("*", ["publish"])])
    for token, producer_id, code in ((other, 11, 29), (till, 11, 0), (other, 12, 0)):
        with logged_in(plain_port, token) as client:
            records = built([(NOW_MS, None, b"x", [])], producer=(producer_id, 0, 0))
            data = [{"name": "orders", "partition_data": [{"index": 0, "records": records}]}]
            answer = client.call(0, 9, acks=-1, timeout=1000, topic_data=data)
            assert answer.responses[0].partition_responses[0].error_code == code
    guarded.broker.access.revoke(record.id)


def test_members_of_a_group_are_nothing_to_those_without_a_right_to_it(guarded: Guarded, plain_port: int) -> None:
    guarded.broker.create_topic("payroll")
    _, stranger = guarded.broker.access.create("stranger", [("orders", ["publish"])])
    _, other = guarded.broker.access.create("other", [("orders", ["read"])])
    subscription = struct.pack(">hih7si", 0, 1, 7, b"payroll", 0)
    joining = {"session_timeout": 30_000, "rebalance_timeout": 30_000, "protocol_type": "consumer"}
    joining |= {"protocols": [{"name": "range", "metadata": subscription}], "member_id": ""}
    empty = joining | {"protocols": [{"name": "range", "metadata": struct.pack(">hii", 0, 0, 0)}]}
    with (
        logged_in(plain_port, guarded.all) as owner,
        logged_in(plain_port, stranger) as client,
        logged_in(plain_port, other) as reader,
    ):
        member = owner.call(JOIN_GROUP, 3, group_id="wages", **joining).member_id
        joined = owner.call(CONSUMER_HEARTBEAT, 0, group_id="bonus", **HEARTBEAT, subscribed_topic_names=["payroll"])
        assert joined.error_code == 0
        for caller in (client, reader):
            assert not {each.group_id for each in caller.call(LIST_GROUPS, 5).groups} & {"wages", "bonus"}
            (described,) = caller.call(DESCRIBE_GROUPS, 5, groups=["wages"]).groups
            assert (described.error_code, described.members) == (GROUP_DENIED, [])
            (described,) = caller.call(CONSUMER_DESCRIBE, 0, group_ids=["bonus"]).groups
            assert (described.error_code, described.members) == (GROUP_NOT_FOUND, [])
        named = {"group_id": "wages", "generation_id": 1, "member_id": member}
        assert client.call(JOIN_GROUP, 3, group_id="wages", **empty).error_code == GROUP_DENIED
        assert client.call(HEARTBEAT_CLASSIC, 3, **named).error_code == GROUP_DENIED
        assert client.call(SYNC_GROUP, 2, **named, assignments=[]).error_code == GROUP_DENIED
        assert client.call(LEAVE_GROUP, 2, group_id="wages", member_id=member).error_code == GROUP_DENIED
        leaving = HEARTBEAT | {"member_id": joined.member_id, "member_epoch": -1}
        assert client.call(CONSUMER_HEARTBEAT, 0, group_id="bonus", **leaving).error_code == GROUP_DENIED
        assert client.call(CONSUMER_HEARTBEAT, 0, group_id="bonus", **HEARTBEAT).error_code == GROUP_DENIED
        strange = leaving | {"member_epoch": -3}
        assert owner.call(CONSUMER_HEARTBEAT, 0, group_id="bonus", **strange).error_code == INVALID_REQUEST
        # Whoever joins says what it reads.
        assert reader.call(CONSUMER_HEARTBEAT, 0, group_id="bonus", **HEARTBEAT).error_code == INVALID_REQUEST
        topics = [{"name": "payroll", "partitions": [{"partition_index": 0}]}]
        answer = reader.call(OFFSET_DELETE, 0, group_id="bonus", topics=topics)
        assert answer.topics[0].partitions[0].error_code == GROUP_DENIED
        assert {each.group_id for each in owner.call(LIST_GROUPS, 5).groups} >= {"wages", "bonus"}
        assert owner.call(LEAVE_GROUP, 2, group_id="wages", member_id=member).error_code == 0
        assert owner.call(CONSUMER_HEARTBEAT, 0, group_id="bonus", **leaving).error_code == 0


def scram_login(port: int, user: str, password: str) -> tuple[int, RawClient]:
    """The code of the last answer to a login by SCRAM-SHA-256, whose signature is checked; and the connection."""
    client = RawClient(port)
    assert client.call(SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256").error_code == 0
    bare = f"n={user},r=abc"
    challenge = client.call(SASL_AUTHENTICATE, 2, auth_bytes=f"n,,{bare}".encode())
    if challenge.error_code:
        return challenge.error_code, client
    first = challenge.auth_bytes.decode()
    nonce, salt, iterations = (field[2:] for field in first.split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(salt), int(iterations))
    key = hmac.digest(salted, b"Client Key", "sha256")
    signed = f"{bare},{first},c=biws,r={nonce}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    answer = client.call(SASL_AUTHENTICATE, 2, auth_bytes=f"c=biws,r={nonce},p={proof}".encode())
    if not answer.error_code:
        ours = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
        assert answer.auth_bytes == b"v=" + base64.b64encode(ours)
    return answer.error_code, client


def test_scram_proves_a_token_and_ends_with_it(guarded: Guarded, plain_port: int) -> None:
    record, token = guarded.broker.access.create("prover", [("orders", ["read"])])
    other, secret = guarded.broker.access.create("other", [("orders", ["read"])])
    for user, password in ((record.id, secret), (other.id, token), ("nobody", token), (record.id, "")):
        code, client = scram_login(plain_port, user, password)
        with client:
            assert code == SASL_FAILED
            client.request(METADATA, 5, topics=None)
            assert client.is_closed()
    code, client = scram_login(plain_port, record.id, token)
    with client:
        assert code == 0
        assert [topic.name for topic in client.call(METADATA, 5, topics=None).topics] == ["orders"]
        guarded.broker.access.revoke(record.id)
        client.request(METADATA, 5, topics=None)
        assert client.is_closed()
    # Whoever guesses ids learns nothing: the salt of one that does not exist stays the same.
    salts = set()
    for _ in range(2):
        with RawClient(plain_port) as asking:
            asking.call(SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-512")
            challenge = asking.call(SASL_AUTHENTICATE, 2, auth_bytes=b"n,,n=guessed,r=abc").auth_bytes
            salts.add(challenge.split(b",")[1])
            refused = asking.call(SASL_AUTHENTICATE, 2, auth_bytes=b"c=biws,r=abc,p=AAAA")
            assert refused.error_code == SASL_FAILED and "another exchange" in refused.error_message
    assert len(salts) == 1

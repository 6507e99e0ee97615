"""One group of a native member, a read session of YDB and a member of cursus, at two servers: each message once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import headrace
from headrace.verify.history.events import Began, Poll
from headrace.verify.history.file import Recorder, read_history
from tests.broker.background import eventually
from tests.campaign.mixed_members import TOPIC, MemberProcess
from tests.ports import ReservedPort
from tests.postgres_server import PostgresServer
from tests.server_process import ServerProcess

MESSAGES = 1_000


def test_members_of_three_protocols_at_two_servers_share_the_partitions(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    store, history = postgres.fresh_url(), tmp_path / "history.jsonl"
    with ReservedPort() as one, ReservedPort() as two, Recorder(history) as recorder:
        recorder.record(Began(TOPIC))
        addresses = {"ydb": f"127.0.0.1:{one.number}", "cursus": f"127.0.0.1:{two.number}"}
        servers = [ServerProcess(store, f"--{protocol}", address) for protocol, address in addresses.items()]
        members: list[MemberProcess] = []
        try:
            with headrace.connect(servers[1].url) as client:
                client.create_topic(TOPIC, partitions=6)
                client.register_group(TOPIC, "g")
                for number, (kind, address) in enumerate([*addresses.items(), ("native", servers[1].url)]):
                    members.append(MemberProcess(kind, address, "g", number, recorder, tmp_path / "errors"))
                    members[-1].stay()
                eventually(
                    lambda: [len(each) for each in client.describe_group(TOPIC, "g").members.values()] == [2] * 3
                )
                with client.producer(TOPIC) as producer:
                    for number in range(MESSAGES):
                        producer.send(b"p:%d" % number, partition=number % 6)
                eventually(lambda: client.describe_group(TOPIC, "g").lag_messages == 0)
                for member in members:
                    member.leave()
                assert [member.join() for member in members] == [0, 0, 0], (tmp_path / "errors").read_text()
        finally:
            for member in members:
                member.kill()
            for server in servers:
                server.close()
    polls = [event for event in read_history(history) if isinstance(event, Poll)]
    given = Counter(message for poll in polls for _, _, messages in poll.runs for message in messages)
    assert given == {f"p:{number}": 1 for number in range(MESSAGES)}
    assert len({poll.member for poll in polls}) == 3

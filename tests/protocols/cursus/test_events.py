"""Events: versions, snapshots, and streams that are read back."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.core.hashes.columns import partition_of
from tests.protocols.cursus.conftest import CursusSite
from tests.protocols.cursus.raw import RawCursus, envelope


@pytest.fixture
def store(client: RawCursus, topic: str) -> str:
    """A topic of events with two partitions."""
    assert client.ask(f"CREATE topic={topic}.es partitions=2 event_sourcing=true").startswith("OK")
    return f"{topic}.es"


def append(client: RawCursus, store: str, version: int, key: str = "k", message: str = "x") -> str:
    fields = f"topic={store} key={key} version={version} event_type=T schema_version=3 producerId=p metadata=m"
    return client.ask(f"APPEND_STREAM {fields} message={message}")


def read(client: RawCursus, store: str, more: str = "", key: str = "k") -> tuple[dict[str, object], list[int]]:
    client.send(envelope(f"READ_STREAM topic={store} key={key} {more}"))
    told = json.loads(client.frame())
    return told, [message.aggregate_version for message in client.messages()]


def test_each_request_about_events_has_its_answer(client: RawCursus, store: str) -> None:
    partition = partition_of(b"k", 2)
    assert append(client, store, 2) == "ERROR: version_conflict current=0 expected=2"
    assert append(client, store, 1) == f"OK version=1 offset=0 partition={partition}"
    assert append(client, store, 1) == "ERROR: version_conflict current=1 expected=1"
    assert append(client, store, 2) == f"OK version=2 offset=1 partition={partition}"
    named = f"topic={store} key=k"
    assert client.ask(f"STREAM_VERSION {named}") == "OK version=2"
    assert client.ask(f"STREAM_VERSION topic={store} key=none") == "OK version=0"
    assert client.ask(f"SAVE_SNAPSHOT {named} version=1 message=old") == f"OK version=1 partition={partition}"
    assert client.ask(f"SAVE_SNAPSHOT {named} version=1 message=a b") == f"OK version=1 partition={partition}"
    exceeds = "ERROR: snapshot_version_exceeds_stream version=9 current=2"
    assert client.ask(f"SAVE_SNAPSHOT {named} version=9 message=x") == exceeds
    assert client.ask(f"READ_SNAPSHOT {named}") == 'OK snapshot={"version":1,"payload":"a b"}'
    assert client.ask(f"READ_SNAPSHOT topic={store} key=none") == "OK snapshot=null"
    told, versions = read(client, store)
    assert told == {
        "status": "OK",
        "topic": store,
        "key": "k",
        "snapshot": {"version": 1, "payload": "a b"},
        "partition": partition,
        "count": 1,
    }
    assert versions == [2]
    told, versions = read(client, store, "from_version=2")
    assert ("snapshot" in told, versions) == (False, [2])
    assert read(client, store, key="none")[1] == []


def test_what_is_not_a_request_about_events_is_refused(client: RawCursus, store: str, topic: str) -> None:
    assert append(client, topic, 1) == f"ERROR: event_sourcing_not_enabled topic={topic}"
    assert client.ask(f"APPEND_STREAM topic={store} version=1 message=x") == "ERROR: missing_key command=APPEND_STREAM"
    assert client.ask(f"APPEND_STREAM topic={store} key=k message=x").startswith("ERROR: missing_version")
    assert append(client, store, 0) == "ERROR: invalid_version value=0"
    client.send(envelope(f"READ_STREAM topic={topic} key=k"))
    assert json.loads(client.frame()) == {"status": "ERROR", "error": f"event_sourcing_not_enabled topic={topic}"}


def test_events_are_messages_with_attributes(client: RawCursus, store: str) -> None:
    append(client, store, 1)
    (message,) = client.read(f"CONSUME topic={store} partition={partition_of(b'k', 2)} offset=0 member=m")
    kept = message.key, message.event_type, message.schema_version, message.aggregate_version, message.metadata
    assert kept == ("k", "T", 3, 1, "m")


def test_of_those_who_append_the_same_version_one_succeeds(site: CursusSite, client: RawCursus, store: str) -> None:
    def race(_: int) -> list[str]:
        with RawCursus(site.port) as racer:
            return [append(racer, store, version) for version in range(1, 21)]

    with ThreadPoolExecutor(4) as pool:
        answers = [answer for each in pool.map(race, range(4)) for answer in each]
    assert sum(answer.startswith("OK") for answer in answers) == 20
    assert read(client, store)[1] == list(range(1, 21))


def test_a_stream_is_found_among_others_and_after_partitions_were_added(
    site: CursusSite, client: RawCursus, store: str
) -> None:
    for version in range(1, 4):
        append(client, store, version)
        for other in range(150):
            append(client, store, version, f"other-{other}")
    site.broker.alter_topic(store, 7)
    assert append(client, store, 4).startswith("OK version=4")
    assert read(client, store)[1] == [1, 2, 3, 4]
    assert read(client, store, "from_version=3")[1] == [3, 4]


def test_a_stream_that_is_too_large_for_an_answer_says_so(client: RawCursus, store: str) -> None:
    for version in range(1, 4):
        append(client, store, version, message="x" * 30_000)
    client.send(envelope(f"READ_STREAM topic={store} key=k"))
    refused = json.loads(client.frame())
    assert refused["status"] == "ERROR"
    assert "read from a later version" in refused["error"]
    assert read(client, store, "from_version=2")[1] == [2, 3]


def test_deleting_a_topic_of_events_deletes_its_snapshots(site: CursusSite, client: RawCursus, store: str) -> None:
    assert f"{store}.snap" in site.broker.list_topics()
    client.ask(f"DELETE topic={store}")
    assert not [name for name in site.broker.list_topics() if name.startswith(store)]

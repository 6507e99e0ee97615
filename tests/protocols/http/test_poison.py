"""Messages that no reader could show: refused on the way in; those that are stored from before harm no answer."""

from __future__ import annotations

from typing import Any

import httpx
import pyarrow as pa
import pytest

from headrace.core import messages
from headrace.core.messages import TIMESTAMP
from tests.protocols.http.event_client import subscribed
from tests.protocols.http.site import Site, checked, create_topic, path_of, problem, publish, publish_arrow


def batch(*times_us: int | None) -> pa.RecordBatch:
    created_at = pa.array(times_us, pa.int64()).cast(TIMESTAMP)
    return pa.record_batch({"value": [b"%d" % row for row in range(len(times_us))], "created_at": created_at})


@pytest.mark.parametrize(
    "created_at", ["0001-01-01T00:00:00+14:00", "0001-01-01T12:00:00Z", "9999-12-31T23:59:59-12:00"]
)
def test_a_time_out_of_range_as_json_is_refused(client: httpx.Client, created_at: str) -> None:
    create_topic(client, "poison-json")
    body = {"messages": [{"value": "good"}, {"value": "bad", "created_at": created_at}]}
    found = problem(client.post(path_of("topics", "poison-json", "messages"), json=body), 422, "invalid_message")
    assert (found["fields"]["field"], found["fields"]["row"]) == ("created_at", 1)


@pytest.mark.parametrize("time_us", [-(2**63), 2**63 - 1, 253_402_300_800_000_000])
def test_a_time_out_of_range_as_arrow_is_refused(client: httpx.Client, time_us: int) -> None:
    create_topic(client, "poison-arrow")
    found = problem(publish_arrow(client, "poison-arrow", batch(0, time_us)), 422, "invalid_message")
    assert (found["fields"]["field"], found["fields"]["row"]) == ("created_at", 1)


def test_a_time_that_is_stored_and_cannot_be_shown_harms_no_answer(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    create_topic(site.client, "orders")
    with monkeypatch.context() as before:
        # As versions did that took any time.
        before.setattr(messages, "_check_created_at", lambda _: None)
        assert publish_arrow(site.client, "orders", batch(0, 2**63 - 1, -(2**63), None)).status_code == 200
    publish(site.client, "orders", "after")

    def check(found: list[dict[str, Any]]) -> None:
        assert [message["value"] for message in found] == ["0", "1", "2", "3", "after"]
        assert [message.get("created_at") for message in found] == ["1970-01-01T00:00:00Z", None, None, None, None]

    path = path_of("topics", "orders", "partitions", 0, "messages")
    check(checked(site.client.get(path, params={"offset": 0}), 200)["messages"])
    member = path_of("topics", "orders", "groups", "g", "members", "m")
    checked(site.client.put(member, json={}), 200)
    check(checked(site.client.get(f"{member}/messages"), 200)["messages"])
    with subscribed(site.client, path_of("topics", "orders", "events"), **{"from": "earliest"}) as reader:
        check(reader.messages(5))

"""Listing and resetting sources through the client, in process, over Flight and on a database; and who may."""

from __future__ import annotations

import asyncio

import pytest

from headrace.aio import AsyncClient
from headrace.broker import Broker
from headrace.client import Client
from headrace.core.errors import Forbidden, SourceNotFound
from headrace.core.reports.descriptions import SourceDescription
from headrace.core.rights import Caller, check_grants
from headrace.testing import EmbeddedTransport

ON_POSTGRES = True


def test_a_source_is_listed_and_reset(client: Client) -> None:
    client.create_topic("orders")
    with client.producer("orders", producer_id="loader", message_group_id="file") as producer:
        producer.send(b"a", seqno=500).result()
    listed = client.list_sources("orders")
    assert [(each.producer_id, each.message_group_id, each.last_seqno) for each in listed] == [("loader", "file", 500)]
    assert client.list_sources("orders", "nobody", max_sources=5) == []
    assert client.reset_source("orders", "loader", "file") == 500
    with client.producer("orders", producer_id="loader", message_group_id="file") as producer:
        assert producer.last_seqno is None
        assert producer.send(b"b", seqno=1).result().status == "written"
    with pytest.raises(SourceNotFound):
        client.reset_source("orders", "loader")

    async def list_and_reset() -> tuple[list[SourceDescription], int | None]:
        asynchronous = AsyncClient(client)
        return await asynchronous.list_sources("orders"), await asynchronous.reset_source("orders", "loader", "file")

    (found,), forgotten = asyncio.run(list_and_reset())
    assert (found.last_seqno, forgotten) == (1, 1)


def test_a_reset_needs_the_right_to_manage(broker: Broker) -> None:
    with Client(EmbeddedTransport(broker)) as owner:
        owner.create_topic("orders")
        with owner.producer("orders", producer_id="loader") as producer:
            producer.send(b"a").result()
        grants = check_grants([("orders", ["read", "publish"])])
        with Client(EmbeddedTransport(broker, Caller("till", grants))) as other:
            assert other.list_sources("orders")[0].last_seqno == 1
            with pytest.raises(Forbidden):
                other.reset_source("orders", "loader")
        assert owner.last_seqno("orders", "loader") == 1

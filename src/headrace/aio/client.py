"""The client for asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Unpack

from headrace.aio.bridge import Opening, ThreadBridge, awaited, opening, streamed
from headrace.aio.consumer import AsyncConsumer
from headrace.aio.follow import AsyncFollowing
from headrace.aio.producer import AsyncProducer
from headrace.aio.transaction import AsyncTransaction
from headrace.client import connection as connecting
from headrace.client.client import Client
from headrace.client.consumer.base import BaseConsumer
from headrace.client.consumer.options import ConsumerOptions
from headrace.client.consumer.topics_consumer import SeveralTopics


class AsyncClient(ThreadBridge[Client]):
    """A way to one broker.

    >>> import asyncio
    >>> from headrace.testing import embedded
    >>> async def main(client: AsyncClient) -> list[str]:
    ...     await client.create_topic("orders")
    ...     return await client.list_topics()
    >>> with embedded() as client:
    ...     asyncio.run(main(AsyncClient(client)))
    ['orders']
    """

    create_topic = awaited(Client.create_topic)
    alter_topic = awaited(Client.alter_topic)
    delete_topic = awaited(Client.delete_topic)
    describe_topic = awaited(Client.describe_topic)
    describe_topics = awaited(Client.describe_topics)
    list_topics = awaited(Client.list_topics)
    trim_topic = awaited(Client.trim_topic)
    delete_messages = awaited(Client.delete_messages)
    archive = awaited(Client.archive)
    whoami = awaited(Client.whoami)
    list_tokens = awaited(Client.list_tokens)
    create_token = awaited(Client.create_token)
    rotate_token = awaited(Client.rotate_token)
    revoke_token = awaited(Client.revoke_token)
    list_audit = awaited(Client.list_audit)
    list_servers = awaited(Client.list_servers)
    list_clients = awaited(Client.list_clients)
    describe_health = awaited(Client.describe_health)
    describe_settings = awaited(Client.describe_settings)
    describe_process = awaited(Client.describe_process)
    check_store = awaited(Client.check_store)
    last_store_check = awaited(Client.last_store_check)
    report_pipeline = awaited(Client.report_pipeline)
    list_pipelines = awaited(Client.list_pipelines)
    offsets = awaited(Client.offsets)
    await_offsets = awaited(Client.await_offsets)
    offset_at = awaited(Client.offset_at)
    offsets_at = awaited(Client.offsets_at)
    offsets_within = awaited(Client.offsets_within)
    last_seqno = awaited(Client.last_seqno)
    list_sources = awaited(Client.list_sources)
    reset_source = awaited(Client.reset_source)
    register_group = awaited(Client.register_group)
    describe_group = awaited(Client.describe_group)
    list_groups = awaited(Client.list_groups)
    delete_group = awaited(Client.delete_group)
    remove_member = awaited(Client.remove_member)
    committed = awaited(Client.committed)
    commit_offsets = awaited(Client.commit_offsets)
    seek = awaited(Client.seek)
    read = awaited(Client.read)
    table = awaited(Client.table)
    to_arrow = awaited(Client.to_arrow)
    scan = streamed(Client.scan)
    scan_ranges = streamed(Client.scan_ranges)
    follow = opening(Client.follow, AsyncFollowing)
    stage = awaited(Client.stage)
    publish_staged = awaited(Client.publish_staged)
    commit_transaction = awaited(Client.commit_transaction)
    drop_stages = awaited(Client.drop_stages)
    last_commit = awaited(Client.last_commit)
    producer = opening(Client.producer, AsyncProducer)

    def transaction(self) -> AsyncTransaction:
        """Begin a transaction over topics and groups, as `Client.transaction`."""
        return AsyncTransaction(self._wrapped.transaction())

    def consumer(
        self,
        topic: str | SeveralTopics = None,
        group: str | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Opening[AsyncConsumer]:
        """Open a consumer, as `Client.consumer`."""

        async def opened() -> AsyncConsumer:
            return AsyncConsumer(await self._run(partial(self._open_consumer, topic, group, options)))

        return Opening(opened())

    def _open_consumer(
        self, topic: str | SeveralTopics, group: str | None, options: ConsumerOptions
    ) -> BaseConsumer[Any]:
        return self._wrapped.consumer(topic, group, **options)


def connect(
    url: str | Sequence[str] | None = None,
    token: str | None = None,
    *,
    root_certificates: connecting.Pem | None = None,
    client_certificate: connecting.Pem | None = None,
    client_key: connecting.Pem | None = None,
    timeout_seconds: float = 30.0,
    client_id: str | None = None,
) -> AsyncClient:
    """A client for asyncio of the server at a URL, as `headrace.connect` makes it; nothing is awaited here."""
    return AsyncClient(
        connecting.connect(
            url,
            token,
            root_certificates=root_certificates,
            client_certificate=client_certificate,
            client_key=client_key,
            timeout_seconds=timeout_seconds,
            client_id=client_id,
        )
    )

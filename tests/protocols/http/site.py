"""A server in a thread, on a port of its own and a temporary disk store, with a client that talks to it."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, cast
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest
import uvicorn

from headrace.broker import Broker, BrokerSettings, QueueApiSettings
from headrace.broker.clock import Clock
from headrace.broker.settings import ArchiveSettings
from headrace.core.errors import OutcomeUnknown
from headrace.edge.draining import Draining
from headrace.edge.limits import Limits
from headrace.protocols.http.app import make_app
from headrace.protocols.http.connection import HttpConnection
from headrace.protocols.http.formats import ARROW, stream_of
from headrace.protocols.http.settings import HttpSettings
from headrace.storage.disk.engine import DiskStore
from headrace.storage.disk.options import DiskOptions
from tests.faults.filesystems import FailingFileSystem

PATIENCE_SECONDS = 60.0
JSON_BODY = {"content-type": "application/json"}


class Site:
    """A running server."""

    def __init__(
        self,
        directory: Path,
        settings: HttpSettings | None = None,
        clock: Clock | None = None,
        broker_settings: BrokerSettings | None = None,
        queue_api: QueueApiSettings | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.settings = settings or HttpSettings()
        self._files = FailingFileSystem()
        store = DiskStore(directory / "store", DiskOptions(durability="os", segment_frames=3), self._files)
        archive = ArchiveSettings(url=str(directory / "archive"))
        self.broker = Broker(store, broker_settings, clock, queue_api, archive=archive)
        self.broker.start()
        self.access = self.broker.access
        self._clients: list[httpx.Client] = []
        self._draining = Draining()
        self._server = self._start()
        self.client = self.new_client()

    def _start(self) -> _Server:
        app = make_app(self.broker, self.access, self.settings, self._draining, self.limits)
        config = uvicorn.Config(
            cast(Any, app),
            http=cast(Any, partial(HttpConnection, self.settings)),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            # Longer than clients keep an idle connection: else both may let go of it at the same moment.
            timeout_keep_alive=int(2 * PATIENCE_SECONDS),
        )
        return _Server(config)

    def fail(self, topic: str) -> None:
        """Let a write to a topic fail: it accepts no more messages."""
        broken = self._files.failing(errno.EIO, frozenset({"write"}))
        with broken, pytest.raises(OutcomeUnknown):
            self.broker.publish(topic, pa.record_batch({"value": [b"lost"]}))

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def new_client(self, token: str | None = None) -> httpx.Client:
        """A client that shows a token, if it has one; closed with the site, if not before."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        client = httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_SECONDS, trust_env=False)
        self._clients.append(client)
        return client

    def drain(self) -> None:
        """Begin to stop, as a server does at SIGTERM."""
        self._server.call(self._draining.begin)

    def stop(self) -> None:
        """Stop serving; the store stays open."""
        self.drain()
        self._server.stop()

    def __enter__(self) -> Site:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            client.close()
        self.stop()
        self.broker.close()


class _Server(uvicorn.Server):
    """Uvicorn in a thread."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.port = int(listener.getsockname()[1])
        self._loop: Any = None
        self._thread = threading.Thread(target=self.run, args=([listener],), name="test-server")
        self._thread.start()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.started:
            assert time.monotonic() < deadline, "the server starts"
            time.sleep(0.002)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def call(self, function: Any) -> None:
        self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        if self._thread.is_alive():
            self.should_exit = True
            self._thread.join(PATIENCE_SECONDS)
            assert not self._thread.is_alive(), "the server stops"


def path_of(*parts: str | int) -> str:
    """A path under /v1 with each part quoted; a part that is all dots too, since clients take those for steps."""
    quoted = [quote(str(part), safe="") for part in parts]
    return "/v1/" + "/".join(part if part.strip(".") else part.replace(".", "%2E") for part in quoted)


def create_topic(client: httpx.Client, name: str, partitions: int = 1, **settings: Any) -> dict[str, Any]:
    """Make a topic; what it is."""
    body = {"name": name, "partitions": partitions, "settings": settings}
    return checked(client.post("/v1/topics", json=body), 201)


def publish(client: httpx.Client, topic: str, *values: str, **fields: Any) -> list[dict[str, Any]]:
    """Publish texts; their receipts."""
    messages = [{"value": value, **fields} for value in values]
    answer = checked(client.post(path_of("topics", topic, "messages"), json={"messages": messages}), 200)
    receipts: list[dict[str, Any]] = answer["receipts"]
    return receipts


def publish_arrow(client: httpx.Client, topic: str, batch: pa.RecordBatch) -> httpx.Response:
    """Publish a batch as Arrow."""
    return client.post(path_of("topics", topic, "messages"), content=stream_of(batch), headers={"content-type": ARROW})


def checked(response: httpx.Response, status: int) -> dict[str, Any]:
    """The JSON of an answer that must have this status."""
    assert response.status_code == status, response.text
    answer: dict[str, Any] = response.json() if response.content else {}
    return answer


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem of an answer that must be one."""
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    found: dict[str, Any] = response.json()
    assert (found["status"], found["code"]) == (status, code), found
    assert found["type"] and found["title"] and found["detail"], found
    assert isinstance(found["retry"], bool)
    if status == 503 or (status == 429 and found["retry"]):
        assert int(response.headers["retry-after"]) > 0
    return found

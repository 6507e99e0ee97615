"""Clients that talk to a real server over sockets."""

from __future__ import annotations

import http.client
import json
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from tests.server_process import PATIENCE_SECONDS


class Client:
    """One keep-alive connection. For one thread at a time."""

    def __init__(self, port: int, token: str | None = None) -> None:
        self.port = port
        self._token = token
        self._connection: http.client.HTTPConnection | None = None

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        sent = {"content-type": "application/json"} if headers is None else dict(headers)
        if self._token is not None:
            sent["authorization"] = f"Bearer {self._token}"
        try:
            self._connection.request(method, path, body, sent)
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        return response.status, {name.lower(): value for name, value in response.getheaders()}, answer

    def json(self, method: str, path: str, value: Any = None, query: dict[str, Any] | None = None) -> tuple[int, Any]:
        """Send JSON, or nothing, and get JSON."""
        target = path if query is None else f"{path}?{urlencode(query)}"
        body = None if value is None else json.dumps(value).encode()
        status, _, answer = self.send(method, target, body)
        return status, json.loads(answer) if answer else None

    def close(self) -> None:
        """Hang up; the next request connects again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class QueueClient(Client):
    """A client of PgQueue; whatever is answered has the form of its API."""

    def call(self, method: str, path: str, value: Any = None, query: dict[str, Any] | None = None) -> tuple[int, Any]:
        """Status and answer."""
        status, answer = self.json(method, path, value, query)
        check_form(status, answer)
        return status, answer

    def raw(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """The same with bytes as they are."""
        status, answered, answer = self.send(method, path, body, headers)
        assert answered["content-type"] == "application/json"
        said = json.loads(answer)
        check_form(status, said)
        return status, said

    def done(self, method: str, path: str, value: Any = None) -> Any:
        """The answer to something that must succeed."""
        status, answer = self.call(method, path, value)
        assert status == 200, answer
        return answer

    def create(self, topic: str, **more: Any) -> None:
        self.done("POST", "/topics", {"name": topic, **more})

    def producer(self, topic: str) -> int:
        producer_id = self.done("POST", "/producer/register", {"topic": topic})["producer_id"]
        assert isinstance(producer_id, int)
        return producer_id

    def consumer(self, topic: str) -> int:
        consumer_id = self.done("POST", "/consumer/register", {"topic": topic})["consumer_id"]
        assert isinstance(consumer_id, int)
        return consumer_id

    def produce(self, topic: str, producer_id: int, message: str, **more: Any) -> None:
        self.done("POST", "/producer/produce", {"topic": topic, "producer_id": producer_id, "message": message, **more})

    def consume(self, topic: str, consumer_id: int) -> str | None:
        """The next message, or none."""
        status, answer = self.call("GET", "/consumer/consume", {"topic": topic, "consumer_id": consumer_id})
        if status == 200:
            message = answer["message"]
            assert isinstance(message, str)
            return message
        assert status == 500
        assert "nothing to read" in answer["message"]
        return None

    def rest(self, topic: str, consumer_id: int) -> list[str]:
        """All messages that are left."""
        messages = []
        while (message := self.consume(topic, consumer_id)) is not None:
            messages.append(message)
        return messages

    def size(self, topic: str, consumer_id: int) -> int:
        size = self.done("GET", "/size", {"topic": topic, "consumer_id": consumer_id})["size"]
        assert isinstance(size, int)
        return size


def check_form(status: int, answer: Any) -> None:
    """Success says so with 200; a failure says why, and shows nothing of the inside."""
    assert isinstance(answer, dict)
    assert answer["status"] == ("success" if status == 200 else "failure")
    if status != 200:
        assert set(answer) == {"status", "message"}
        assert answer["message"]
        for inside in ("Traceback", 'File "', "<html", "sqlalchemy"):
            assert inside not in answer["message"]

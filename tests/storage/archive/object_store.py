"""A real S3 server for tests (moto's, or a program), behind a proxy that fails as it is told to.

    with ObjectStore() as store:
        files = open_files(store.url)
        with store.faulty(lambda request: "500" if request.method == "PUT" else None): ...

What a fault may be: `500` answers with an error and does not pass the request on; `slow` waits a little before it
passes it on; `lost` passes it on and breaks the connection instead of answering; `hold` breaks off once `released` is
set; `hold_answer` passes it on first.
"""

from __future__ import annotations

import http.client
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Protocol

from moto.server import ThreadedMotoServer

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_MAX_ATTEMPTS": "2",
}
BUCKET = "history"
SLOW_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for."""

    method: str
    path: str

    @property
    def completes_upload(self) -> bool:
        return self.method == "POST" and "uploadId=" in self.path

    @property
    def sends_data(self) -> bool:
        return self.method == "PUT" and self.path != f"/{BUCKET}"


Fault = Callable[[Request], str | None]


class S3Server(Protocol):
    """A server with the bucket."""

    port: int

    def stop(self) -> None: ...


class MotoServer:
    """moto's server, in a thread."""

    def __init__(self) -> None:
        self._moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._moto.start()
        _, self.port = self._moto.get_host_and_port()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("PUT", f"/{BUCKET}")
        assert connection.getresponse().status == 200
        connection.close()

    def stop(self) -> None:
        self._moto.stop()


class ObjectStore:
    """An S3 server and its proxy."""

    def __init__(self, server: S3Server | None = None) -> None:
        self.server = server or MotoServer()
        self.fault: Fault | None = None
        self.hits: list[Request] = []
        self.released = threading.Event()
        self.held = threading.Event()
        self._proxy = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._proxy.daemon_threads = True
        self._thread = threading.Thread(target=self._proxy.serve_forever, name="s3-proxy")
        self._thread.start()

    @property
    def port(self) -> int:
        """That of the proxy."""
        return self._proxy.server_port

    @property
    def url(self) -> str:
        host = f"127.0.0.1%3A{self.port}"
        options = f"scheme=http&region=us-east-1&endpoint_override={host}"
        return f"s3://{BUCKET}/archive?{options}"

    @contextmanager
    def faulty(self, fault: Fault) -> Iterator[None]:
        """Let requests fail for a while."""
        self.hits, self.fault = [], fault
        try:
            yield
        finally:
            self.fault = None

    def __enter__(self) -> ObjectStore:
        self._before = {name: os.environ.get(name) for name in CREDENTIALS}
        os.environ.update(CREDENTIALS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, value in self._before.items():
            os.environ.pop(name)
            os.environ |= {} if value is None else {name: value}
        self.released.set()
        self._proxy.shutdown()
        self._proxy.server_close()
        self._thread.join()
        self.server.stop()

    def _ask(self, method: str, path: str, body: bytes, headers: Any) -> tuple[int, Any, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass_on(self) -> None:
                request = Request(self.command, self.path)
                if self.headers.get("expect", "").lower() == "100-continue":
                    self.send_response_only(100)
                    self.end_headers()
                body = self._body()
                what = None if store.fault is None else store.fault(request)
                if what is not None:
                    store.hits.append(request)
                if what == "500":
                    self._answer(500, [], b"<Error><Code>InternalError</Code></Error>")
                    return
                if what == "slow":
                    time.sleep(SLOW_SECONDS)
                if what == "hold":
                    self._hold()
                    return
                replaced = ("transfer-encoding", "content-length")
                headers = {name: value for name, value in self.headers.items() if name.lower() not in replaced}
                headers["content-length"] = str(len(body))
                try:
                    answer = store._ask(self.command, self.path, body, headers)
                except (OSError, http.client.HTTPException):
                    # The server was killed.
                    what = "lost"
                if what == "lost":
                    self.close_connection = True
                    return
                if what == "hold_answer":
                    self._hold()
                    return
                self._answer(*answer)

            def _hold(self) -> None:
                store.held.set()
                store.released.wait()
                self.close_connection = True

            def _body(self) -> bytes:
                if self.headers.get("transfer-encoding", "") != "chunked":
                    return self.rfile.read(int(self.headers.get("content-length", 0)))
                parts = []
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)

            def _answer(self, status: int, headers: Any, body: bytes) -> None:
                self.send_response_only(status)
                known = {name.lower() for name, _ in headers}
                for name, value in headers:
                    if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                        self.send_header(name, value)
                length = str(len(body))
                if self.command == "HEAD" and "content-length" in known:
                    length = next(value for name, value in headers if name.lower() == "content-length")
                self.send_header("content-length", length)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815

            def log_message(self, *_: Any) -> None:
                """Silent."""

        return Handler

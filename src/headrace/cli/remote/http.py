"""The HTTP client of all commands.

Turns every error into a `Failure`: one line for people and an exit code for scripts. The token is sent in a header and
appears nowhere else.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import httpx
import msgspec

from headrace.cli.exits import Exit, Failure, exit_of_status
from headrace.cli.options import DEFAULT_URL, is_flight

if TYPE_CHECKING:
    import pyarrow as pa

ARROW: Final = "application/vnd.apache.arrow.stream"

# Added to the time that a request asks the server to wait for messages.
_TIMEOUT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class ServerProblem:
    """The problem+json answer of a server."""

    status: int
    code: str
    detail: str
    retry: bool
    fields: dict[str, Any]


class Refused(Failure):
    """The server answered with an error."""

    def __init__(self, problem: ServerProblem) -> None:
        super().__init__(exit_of_status(problem.status), problem.detail)
        self.problem = problem


class ServerUnreachable(Failure):
    """There was no answer: whether the request was carried out is unknown."""

    def __init__(self, line: str) -> None:
        super().__init__(Exit.UNREACHABLE, line)


class HttpClient:
    """A connection to one server."""

    def __init__(self, url: str, token: str | None = None, ca: Path | None = None) -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            # Loading the trusted certificates is slow and needed for HTTPS only; redirects are not followed.
            if is_flight(self.url):
                raise Failure(
                    Exit.USAGE, f"--url {url!r} works only with produce, consume and bench: write it as {DEFAULT_URL}"
                )
            is_plain = self.url.startswith("http://") and ca is None
            verify: Any = not is_plain if ca is None else ssl.create_default_context(cafile=ca)
            if not self.url.startswith("http://"):
                verify = _with_client_certificate(verify)
            self._http = httpx.Client(base_url=self.url, headers=headers, verify=verify, timeout=_TIMEOUT_SECONDS)
        except (OSError, ValueError) as error:
            raise Failure(Exit.USAGE, f"cannot use --ca {ca}: {error}") from None
        except (httpx.InvalidURL, UnicodeEncodeError):
            raise Failure(Exit.USAGE, f"--url {url!r} is not a valid address: write it as {DEFAULT_URL}") from None

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def get(self, path: str, **query: Any) -> Any:
        """GET a path."""
        return _json(self._send("GET", path, params=_given(query)))

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """POST a body to a path."""
        return _json(self._send("POST", path, json=body))

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """PUT a body to a path."""
        return _json(self._send("PUT", path, json=body))

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """PATCH a path."""
        return _json(self._send("PATCH", path, json=body))

    def delete(self, path: str, **query: Any) -> Any:
        """DELETE a path."""
        return _json(self._send("DELETE", path, params=_given(query)))

    def post_arrow(self, path: str, batch: pa.RecordBatch) -> pa.Table:
        """POST an Arrow batch to a path; returns the answer as a table."""
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        headers = {"Content-Type": ARROW, "Accept": ARROW}
        answer = self._send("POST", path, content=sink.getvalue().to_pybytes(), headers=headers)
        return pa.ipc.open_stream(answer.content).read_all()

    def get_arrow(self, path: str, wait_seconds: float = 0.0, **query: Any) -> pa.Table:
        """GET a table; the server may wait the given seconds for messages."""
        import pyarrow as pa

        params = _given(query | {"wait_seconds": wait_seconds})
        timeout = _TIMEOUT_SECONDS + wait_seconds
        answer = self._send("GET", path, params=params, headers={"Accept": ARROW}, timeout=timeout)
        return pa.ipc.open_stream(answer.content).read_all()

    @contextmanager
    def stream(self, path: str, query: Mapping[str, Any], last_event_id: str | None) -> Iterator[Iterator[str]]:
        """The lines of an event stream; the server sends keep-alive lines when there are no events."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_event_id} if last_event_id else {})
        with self._failures(), self._http.stream("GET", path, params=_given(query), headers=headers) as answer:
            if not answer.is_success:
                answer.read()
                raise Refused(_problem(answer))
            yield answer.iter_lines()

    def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        with self._failures():
            answer = self._http.request(method, path, **arguments)
        if answer.is_success:
            return answer
        raise Refused(_problem(answer))

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn every transport error into one line."""
        try:
            yield
        except (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError) as error:
            raise Failure(Exit.USAGE, f"cannot call {self.url}: {error}; write --url as {DEFAULT_URL}") from None
        except httpx.TimeoutException:
            raise ServerUnreachable(
                f"{self.url} does not answer in time: check that the server is healthy, or retry"
            ) from None
        except httpx.TransportError as error:
            hint = "start one with `headrace serve`, or give another address with --url"
            raise ServerUnreachable(f"no server at {self.url} ({error}): {hint}") from None


def _with_client_certificate(verify: bool | ssl.SSLContext) -> bool | ssl.SSLContext:
    """Whom to trust, with the client's own certificate if the environment names one."""
    certificate, key = os.environ.get("HEADRACE_CLIENT_CERTIFICATE"), os.environ.get("HEADRACE_CLIENT_KEY")
    if not certificate and not key:
        return verify
    context = verify if isinstance(verify, ssl.SSLContext) else ssl.create_default_context()
    try:
        # With no password, since OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate or "", key or "", password="")
    except (OSError, ValueError) as error:
        names = f"HEADRACE_CLIENT_CERTIFICATE {certificate!r} and HEADRACE_CLIENT_KEY {key!r}"
        line = f"cannot use {names}: {error}; both name PEM files, the key has no password"
        raise Failure(Exit.USAGE, line) from None
    return context


def _given(query: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}


def _json(answer: httpx.Response) -> Any:
    if not answer.content:
        return None
    try:
        return msgspec.json.decode(answer.content)
    except msgspec.DecodeError:
        raise Failure(Exit.FAILING, f"{answer.url} did not answer like a Headrace server: check --url") from None


def _told(problem: dict[str, Any]) -> str:
    """Format one validation problem reported by the server's framework."""
    return f"{problem['key']}: {problem['message']}" if "key" in problem else str(problem["message"])


def _problem(answer: httpx.Response) -> ServerProblem:
    try:
        given = msgspec.json.decode(answer.content, type=dict[str, Any])
        fields = given.get("fields", {})
        detail = "; ".join([given["detail"], *map(_told, fields.get("problems", []))])
        return ServerProblem(answer.status_code, given["code"], detail, given["retry"], fields)
    except (msgspec.DecodeError, KeyError):
        detail = f"{answer.url} answered {answer.status_code} {answer.reason_phrase}: is it a Headrace server?"
        return ServerProblem(answer.status_code, "unknown", detail, False, {})

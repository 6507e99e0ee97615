"""What every answer tells browsers, the pages of the server, and that nothing of the inside is ever shown."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar.types import Receive, Scope, Send

from headrace.protocols.http.middleware.headers import policy_of, with_headers
from headrace.protocols.http.middleware.limits import with_limits
from headrace.protocols.http.routes import pages
from headrace.protocols.http.settings import HttpSettings
from tests.protocols.http.site import Site

PATHS = [
    "/",
    "/docs",
    "/docs/openapi.json",
    "/v1/topics",
    "/v1/nowhere",
    "/nowhere",
    "/topics",
    "/metrics",
    "/health/live",
]


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_is_protected(client: httpx.Client, path: str) -> None:
    headers = client.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'") and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert "strict-transport-security" not in headers, "there is no TLS here"


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_may_run_what_stands_in_it_and_loads_nothing_from_elsewhere(client: httpx.Client, path: str) -> None:
    page = client.get(path)
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"] == policy_of(page.content).decode()
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page.text)
    assert not re.search(r"""\s(style|on[a-z]+)=""", page.text), "the policy would not let it run"


def test_the_front_page_says_what_this_is_and_where_the_docs_are(client: httpx.Client) -> None:
    page = client.get("/").text
    assert "Headrace" in page
    for link in re.findall(r'href="(/[^"]*)"', page):
        assert client.get(link).status_code == 200, link
    assert 'href="/docs"' in page


def answered(app: Any, path: str, scheme: str = "http") -> tuple[int, dict[bytes, bytes], bytes]:
    """What an application answers to a GET."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope: Any = {"type": "http", "method": "GET", "path": path, "scheme": scheme, "headers": []}
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]), sent[-1]["body"]


async def _failing(scope: Scope, receive: Receive, send: Send) -> None:
    raise RuntimeError("the secret inside")


def test_with_tls_browsers_come_back_with_tls() -> None:
    app = with_headers(with_limits(_failing, HttpSettings()), pages.POLICIES)
    assert b"strict-transport-security" in answered(app, "/", "https")[1]
    assert b"strict-transport-security" not in answered(app, "/")[1]


@pytest.mark.parametrize("path", ["/v1/topics", "/topics"])
def test_what_fails_around_the_application_shows_nothing_of_it(path: str) -> None:
    status, headers, body = answered(with_headers(with_limits(_failing, HttpSettings()), pages.POLICIES), path)
    assert status == 500
    assert b"secret" not in body and b"Traceback" not in body
    assert (b'"status":"failure"' in body) == (path == "/topics")
    assert headers[b"content-type"].endswith(b"json")


def test_what_fails_in_a_handler_shows_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the secret inside")

    with Site(tmp_path) as site:
        monkeypatch.setattr(site.broker, "list_topics", fail)
        for path in ("/v1/topics", "/topics"):
            answer = site.client.get(path)
            assert answer.status_code == 500
            assert "secret" not in answer.text and "Traceback" not in answer.text

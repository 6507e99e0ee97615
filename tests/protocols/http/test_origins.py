"""What web pages can do to a server on loopback: nothing, by rebinding a name, by forms, by links; programs can."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.core.rights import Right
from headrace.protocols.http.settings import HttpSettings
from tests.protocols.http.raw_client import Answer, send
from tests.protocols.http.site import Site, create_topic

PAGE = "https://console.example"
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server without tokens, as `headrace serve` is at first."""
    settings = HttpSettings(allowed_origins=(PAGE,))
    with Site(tmp_path_factory.mktemp("opened"), settings) as site:
        create_topic(site.client, "secrets")
        yield site


def refused(answer: Answer, code: str) -> None:
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (answer.status, problem["code"], problem["retry"]) == (403, code, False)


def failed(answer: Answer, status: int) -> None:
    """Refused in the form of the queue API."""
    said = answer.json()
    assert (answer.status, said["status"]) == (status, "failure"), said
    assert set(said) == {"status", "message"}


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example:{port}", "10.9.8.7", ""],
)
@pytest.mark.parametrize("path", ["/v1/topics", "/docs", "/metrics", "/", "/health/ready"])
def test_a_name_that_was_rebound_gets_nothing(opened: Site, host: str, path: str) -> None:
    refused(send(opened.port, "GET", path, {"host": host.format(port=opened.port)}), "host_not_allowed")


def test_a_rebound_name_cannot_delete_nor_use_the_queue_api(opened: Site) -> None:
    evil = {"host": f"evil.example:{opened.port}", "content-type": "application/json"}
    refused(send(opened.port, "DELETE", "/v1/topics/secrets", evil), "host_not_allowed")
    failed(send(opened.port, "GET", "/topics", evil), 403)
    failed(send(opened.port, "POST", "/producer/register", evil, b'{"topic": "made"}'), 403)
    assert opened.broker.list_topics() == ["secrets"]


@pytest.mark.parametrize(
    "host",
    ["localhost", "LocalHost:{port}", "127.0.0.1:{port}", "127.0.0.1", "[::1]:{port}", "localhost:1", "a.localhost"],
)
def test_loopback_names_and_addresses_are_served(opened: Site, host: str) -> None:
    assert send(opened.port, "GET", "/v1/topics", {"host": host.format(port=opened.port)}).status == 200


def test_one_host_is_needed(opened: Site) -> None:
    assert send(opened.port, "GET", "/v1/topics").status == 400
    assert send(opened.port, "GET", "/v1/topics", {"host": "localhost", "Host": "localhost"}).status == 400
    assert send(opened.port, "GET", "/v1/topics", version="1.0").status == 200, "programs of old have none"


def test_names_can_be_allowed_and_then_count_with_tokens_too(tmp_path: Path) -> None:
    settings = HttpSettings(allowed_hosts=("broker.example", "other.example:7070"))
    with Site(tmp_path, settings) as site:

        def status(host: str) -> int:
            return send(site.port, "GET", "/v1/topics", {"host": host}).status

        assert status("broker.example:1") == status("other.example:7070") == status("localhost") == 200
        assert status("other.example:1") == status("evil.example") == 403
        site.access.create("root", [("*", list(Right))])
        assert status("broker.example") == 401
        assert status("evil.example") == 403


def test_with_tokens_any_name_will_do_and_a_page_has_no_token(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        _, token = site.access.create("root", [("*", list(Right))])
        assert send(site.port, "GET", "/v1/topics", {"host": "broker.example"}).status == 401
        headers = {"host": "broker.example", "authorization": f"Bearer {token}"}
        assert send(site.port, "GET", "/v1/topics", headers).status == 200


def here(site: Site, **more: str) -> dict[str, str]:
    """Headers of a browser that was sent to this server by some page."""
    return {"host": f"localhost:{site.port}"} | {name.replace("_", "-"): value for name, value in more.items()}


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:3000", "file://", "https://"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
def test_other_origins_are_refused(opened: Site, origin: str, method: str) -> None:
    headers = here(opened, origin=origin, content_type="application/json")
    refused(send(opened.port, method, "/v1/topics", headers, b"{}"), "origin_not_allowed")
    failed(send(opened.port, method, "/topics", headers, b'{"name": "made"}'), 403)
    assert opened.broker.list_topics() == ["secrets"]


@pytest.mark.parametrize("site_said", ["cross-site", "same-site"])
def test_requests_without_an_origin_are_judged_by_what_the_browser_says(opened: Site, site_said: str) -> None:
    foreign = here(opened, sec_fetch_site=site_said, sec_fetch_mode="no-cors")
    failed(send(opened.port, "GET", "/consumer/consume?topic=secrets&consumer_id=1", foreign), 403)
    refused(send(opened.port, "GET", "/v1/topics", foreign), "origin_not_allowed")
    for path in ("/", "/docs"):
        assert send(opened.port, "GET", path, foreign).status == 200, "a link may be followed"


def test_pages_of_this_server_and_typed_addresses_are_served(opened: Site) -> None:
    own = here(opened, origin=f"http://localhost:{opened.port}", sec_fetch_site="same-origin")
    assert send(opened.port, "GET", "/v1/topics", own).status == 200
    assert send(opened.port, "GET", "/v1/topics", here(opened, sec_fetch_site="none")).status == 200


def test_a_listed_origin_is_served_and_may_see_the_answer(opened: Site) -> None:
    headers = here(opened, origin=PAGE, sec_fetch_site="cross-site")
    asked = send(opened.port, "OPTIONS", "/v1/topics", headers | {"access-control-request-method": "POST"})
    assert asked.status == 204
    assert asked.headers["access-control-allow-origin"] == PAGE
    assert "POST" in asked.headers["access-control-allow-methods"]
    assert "authorization" in asked.headers["access-control-allow-headers"]
    answer = send(opened.port, "GET", "/v1/topics", headers)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "access-control-allow-origin" not in send(opened.port, "GET", "/v1/topics", here(opened)).headers


@pytest.mark.parametrize(
    "content_type", [FORM, "multipart/form-data; boundary=x", "text/plain", "TEXT/plain;a=b", None]
)
def test_v1_takes_only_bodies_that_say_they_are_json(opened: Site, content_type: str | None) -> None:
    body = json.dumps({"name": "made"}).encode()
    headers = here(opened) | ({} if content_type is None else {"content-type": content_type})
    answer = send(opened.port, "POST", "/v1/topics", headers, body)
    assert (answer.status, answer.json()["code"]) == (415, "unsupported_media_type")
    assert opened.broker.list_topics() == ["secrets"]


@pytest.mark.parametrize("content_type", [FORM, "multipart/form-data; boundary=x", "text/plain", None])
def test_the_queue_api_takes_no_forms_of_pages(opened: Site, content_type: str | None) -> None:
    for origin in (PAGE, f"http://localhost:{opened.port}"):
        headers = here(opened, origin=origin) | ({} if content_type is None else {"content-type": content_type})
        failed(send(opened.port, "POST", "/topics", headers, b'{"name": "made"}'), 415)
    assert opened.broker.list_topics() == ["secrets"]


@pytest.mark.parametrize("content_type", [FORM, "text/plain", "application/json", "anything/else", None])
def test_the_queue_api_takes_any_type_of_programs(site: Site, content_type: str | None) -> None:
    headers = here(site) | ({} if content_type is None else {"content-type": content_type})

    def call(method: str, path: str, **body: Any) -> Any:
        answer = send(site.port, method, path, headers, json.dumps(body).encode())
        assert answer.status == 200, answer.body
        return answer.json()

    call("POST", "/topics", name="jobs")
    producer = call("POST", "/producer/register", topic="jobs")["producer_id"]
    consumer = call("POST", "/consumer/register", topic="jobs")["consumer_id"]
    call("POST", "/producer/produce", topic="jobs", producer_id=producer, message="hello")
    assert call("GET", "/consumer/consume", topic="jobs", consumer_id=consumer)["message"] == "hello"

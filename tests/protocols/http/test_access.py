"""Who may call what: every route of the server says which right it needs, and nobody without it comes in."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from litestar.routes import HTTPRoute

from headrace.broker import Broker
from headrace.core.rights import Right
from headrace.edge.operations import OPERATIONS
from headrace.protocols.http.app import make_litestar
from headrace.protocols.http.formats import ARROW, stream_of
from headrace.protocols.http.settings import HttpSettings
from tests.protocols.http.event_client import subscribed
from tests.protocols.http.site import Site, create_topic, path_of, problem, publish

TOPIC = "secret/Orders"
PUBLIC_PATHS = {"/", "/docs", "/docs/openapi.json", "/docs/{path:str}", "/health/live", "/health/ready", "/status"}
PLACES = {"{topic:str}": path_of(TOPIC).removeprefix("/v1/"), "{partition:int}": "0", "{path:str}": "x"}


PUBLIC, CHECKED_INSIDE, ANY_RIGHT = "public", "checked inside", "any right"


def right_of(opt: dict[str, Any]) -> object:
    """The right that the guard asks for, by the table."""
    need = OPERATIONS.get(opt.get("operation", ""))
    if need is None or need.is_public:
        return None if need is None else PUBLIC
    if need.any_right:
        return ANY_RIGHT
    return CHECKED_INSIDE if need.right is None or opt.get("checked_inside") else need.right


def all_routes() -> list[tuple[str, str, Any]]:
    """Method, path and right of every route there is, in one order: the framework keeps methods in a set.

    It adds OPTIONS, which says nothing.
    """
    with Broker.open("memory:") as broker:
        app = make_litestar(broker, broker.access, HttpSettings())
        return [
            (method, route.path, right_of(handler.opt))
            for route in app.routes
            if isinstance(route, HTTPRoute)
            for method, (handler, _) in sorted(route.route_handler_map.items(), key=lambda entry: entry[0])
        ]


ROUTES = all_routes()
V1 = [(method, path, right) for method, path, right in ROUTES if path.startswith("/v1") and method != "OPTIONS"]


def filled(path: str) -> str:
    for place, value in PLACES.items():
        path = path.replace(place, value)
    return (
        path.replace("{group:str}", "g")
        .replace("{member:str}", "m")
        .replace("{pipeline:str}", "p")
        .replace("{producer:str}", "p")
        .replace("{writer:str}", "w")
    )


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with tokens."""
    with Site(tmp_path_factory.mktemp("guarded")) as site:
        create_topic(site.client, TOPIC)
        site.access.create("root", [("*", list(Right))])
        yield site


def client_with(site: Site, *grants: tuple[str, list[str]]) -> httpx.Client:
    return site.new_client(site.access.create("someone", grants)[1])


def test_there_are_routes_to_look_at() -> None:
    assert len(V1) > 20
    assert {path for _, path, _ in ROUTES} > {"/v1/topics/{topic:str}/events", "/metrics", "/docs"}


@pytest.mark.parametrize(("method", "path", "right"), ROUTES, ids=lambda part: str(part))
def test_every_route_says_what_right_it_needs(method: str, path: str, right: object) -> None:
    if method == "OPTIONS":
        assert right is None or path in PUBLIC_PATHS, "denied by default"
    elif right == PUBLIC:
        assert path in PUBLIC_PATHS
    elif right == CHECKED_INSIDE:
        assert "{topic:" not in path or (method, path) == ("PUT", "/v1/topics/{topic:str}/groups/{group:str}")
    elif right == ANY_RIGHT:
        assert path == "/v1/topics/{topic:str}/pipelines/{pipeline:str}"
    else:
        assert isinstance(right, Right), f"{method} {path} says nothing and would be denied"


@pytest.mark.parametrize(("method", "path", "right"), ROUTES, ids=lambda part: str(part))
def test_nobody_comes_in_without_a_token(guarded: Site, method: str, path: str, right: object) -> None:
    if right == PUBLIC:
        assert guarded.client.request(method, filled(path)).status_code not in (401, 403)
        return
    for client in (guarded.client, guarded.new_client("hr_0_wrong"), guarded.new_client("junk")):
        response = client.request(method, filled(path))
        assert response.status_code == 401, response.text
        if path.startswith("/v1"):
            problem(response, 401, "unauthenticated")
        assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(("method", "path", "right"), V1, ids=lambda part: str(part))
def test_the_right_on_another_topic_and_other_rights_are_not_enough(
    guarded: Site, method: str, path: str, right: object
) -> None:
    if not isinstance(right, Right):
        return
    others = [other.value for other in Right if other != right]
    for client in (
        client_with(guarded, ("public/*", [right.value])),
        client_with(guarded, (TOPIC, others)),
        client_with(guarded, ("secret%2FOrders", [right.value])),
    ):
        denied = problem(client.request(method, filled(path)), 403, "forbidden")
        assert denied["fields"].items() >= {"caller": "someone", "right": right.value, "topic": TOPIC}.items()


@pytest.mark.parametrize(("method", "path", "right"), V1, ids=lambda part: str(part))
@pytest.mark.parametrize("pattern", ["secret/orders", "SECRET/*", "*"])
def test_the_right_is_enough(guarded: Site, method: str, path: str, right: object, pattern: str) -> None:
    if not isinstance(right, Right) or (method, path) == ("DELETE", "/v1/topics/{topic:str}"):
        return
    client = client_with(guarded, (pattern, [right.value]))
    with client.stream(method, filled(path)) as response:
        assert response.status_code not in (401, 403)


def test_any_right_on_its_topic_lets_a_pipeline_report(guarded: Site) -> None:
    path, report = path_of("topics", TOPIC, "pipelines", "land"), {"run_id": "1", "state": "running", "started_us": 1}
    for right in Right:
        client = client_with(guarded, (TOPIC, [right.value]))
        assert client.put(path, json=report).status_code == 204
        (listed,) = client.get("/v1/pipelines").json()["pipelines"]
        assert (listed["name"], listed["topic"], listed["state"]) == ("land", TOPIC, "running")
    other = client_with(guarded, ("public/*", ["read", "publish", "manage"]))
    problem(other.put(path, json=report), 403, "forbidden")
    assert other.get("/v1/pipelines").json() == {"pipelines": []}
    admin = client_with(guarded, ("*", ["read"]))
    problem(admin.put(path, json=report | {"state": "happy"}), 422, "invalid_input")
    problem(admin.put(path, json=report | {"messages": -1}), 422, "invalid_input")
    problem(admin.put(path_of("topics", "nowhere", "pipelines", "p"), json=report), 404, "topic_not_found")


def test_topics_are_listed_and_made_by_those_who_may(guarded: Site) -> None:
    reader, maker = client_with(guarded, ("pub*", ["read"])), client_with(guarded, ("public/*", ["manage"]))
    problem(reader.post("/v1/topics", json={"name": "public/a"}), 403, "forbidden")
    problem(maker.post("/v1/topics", json={"name": "secret/b"}), 403, "forbidden")
    create_topic(maker, "public/a")
    assert reader.get("/v1/topics").json() == {"topics": ["public/a"]}
    assert client_with(guarded, ("none", ["read"])).get("/v1/topics").json() == {"topics": []}
    problem(maker.get(path_of("topics", "public/a")), 403, "forbidden")


def test_an_encoded_name_is_checked_as_it_is_used(guarded: Site) -> None:
    client = client_with(guarded, ("public/*", ["read"]))
    problem(client.get("/v1/topics/%73ecret%2forders"), 403, "forbidden")
    problem(client.get("/v1/topics/public%2F..%2Fnone"), 404, "topic_not_found")


def test_without_tokens_everyone_may_do_everything(shared_site: Site) -> None:
    create_topic(shared_site.client, "open")
    assert publish(shared_site.new_client("hr_0_whatever"), "open", "a")


def test_a_revoked_token_is_out(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        site.access.create("root", [("*", list(Right))])
        record, text = site.access.create("short-lived", [("*", ["read"])])
        client = site.new_client(text)
        assert client.get("/v1/topics").status_code == 200
        site.access.revoke(record.id)
        problem(client.get("/v1/topics"), 401, "unauthenticated")


def test_tokens_are_in_no_log_and_in_no_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Site(tmp_path) as site, caplog.at_level(logging.DEBUG):
        _, text = site.access.create("someone", [("mine", ["read", "publish"])])
        secret = text[-20:]
        client = site.new_client(text)
        answers = [
            client.request(method, filled(path), json=body) for method, path, _ in V1 for body in ({}, {"name": "x"})
        ]
        wrong = site.new_client(text + "x")
        answers += [wrong.get("/v1/topics"), wrong.get("/metrics"), client.get("/v1/nowhere"), client.put("/v1/topics")]
        answers += [client.get("/v1/topics", headers={"authorization": f"Basic {text}"})]
        answers += [client.get("/v1/topics", params={"token": "x"})]
        for answer in answers:
            assert secret not in answer.text + str(answer.headers)
            assert answer.status_code < 500
        assert secret not in caplog.text


def test_a_subscription_ends_when_its_token_is_revoked(tmp_path: Path) -> None:
    with Site(tmp_path, HttpSettings(heartbeat_seconds=0.1)) as site:
        create_topic(site.client, "t")
        site.access.create("root", [("*", list(Right))])
        record, text = site.access.create("short-lived", [("t", ["read"])])
        with subscribed(site.new_client(text), path_of("topics", "t", "events")) as reader:
            site.access.revoke(record.id)
            assert [(event.kind, event.data["code"]) for event in reader.events()] == [("end", "unauthenticated")]


def test_a_token_publishes_only_as_its_own_producers_and_writers(guarded: Site) -> None:
    _, text = guarded.access.create("till", [(TOPIC, ["publish"])], producers=["till-*"])
    client, path = guarded.new_client(text), path_of("topics", TOPIC, "messages")
    for producer, writer, status in (
        ("till-7", None, 200),
        (None, None, 200),
        ("office", None, 403),
        (None, "till-7", 200),
        ("till-7", "office", 403),
    ):
        message = {"value": "a"} if producer is None else {"value": "a", "producer_id": producer}
        body: dict[str, Any] = {"messages": [message]}
        if writer is not None:
            body["commit_key"] = {"writer": writer, "number": 1}
        assert client.post(path, json=body).status_code == status, (producer, writer)
    batch = pa.record_batch({"value": [b"a", b"b"], "producer_id": ["till-7", "office"]})
    headers = {"content-type": ARROW}
    denied = problem(client.post(path, content=stream_of(batch), headers=headers), 403, "forbidden")
    assert denied["fields"]["producer_id"] == "office"

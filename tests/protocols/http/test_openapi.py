"""The OpenAPI document: complete, shown by the server alone, and kept: generated requests find no way around it."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import httpx
import jsonschema_rs
import pytest
import schemathesis
from schemathesis.engine import events, from_schema

from headrace.core.rights import Right
from tests.protocols.http.site import PATIENCE_SECONDS, Site, create_topic, path_of, publish

EVENTS = ("/v1/topics/{topic}/events", "/v1/topics/{topic}/groups/{group}/members/{member}/events")
PHASES = ("examples", "coverage", "fuzzing", "stateful")
METHODS = ("get", "post", "put", "patch", "delete")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, httpx.Client]]:
    """A server with tokens and with what the examples name."""
    with Site(tmp_path_factory.mktemp("guarded")) as site:
        client = site.new_client(site.access.create("root", [("*", list(Right))])[1])
        create_topic(client, "orders", 2)
        publish(client, "orders", "a", "b", "c", producer_id="till-7")
        client.put(path_of("topics", "orders", "groups", "billing"), json={})
        client.put(path_of("topics", "orders", "groups", "fixed"), json={"consumers": 2})
        client.put(path_of("topics", "orders", "groups", "billing", "members", "worker-1"), json={})
        yield site, client


@pytest.fixture(scope="module")
def document(guarded: tuple[Site, httpx.Client]) -> dict[str, Any]:
    response = guarded[0].client.get("/docs/openapi.json")
    assert response.status_code == 200
    found: dict[str, Any] = response.json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        if path.startswith("/v1"):
            for method in METHODS:
                if method in item:
                    yield method, path, item[method]


def test_the_page_names_no_other_host(guarded: tuple[Site, httpx.Client]) -> None:
    response = guarded[0].client.get("/docs")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    assert response.content == (files("headrace.protocols.http.openapi") / "docs.html").read_bytes()
    assert not re.search(r"https?:|//[a-z]+\.|@import|[: ]url\(", response.text)
    assert "/docs/openapi.json" in response.text


def test_every_operation_is_described_with_examples(document: dict[str, Any]) -> None:
    found = list(operations(document))
    assert len(found) > 20
    for method, path, operation in found:
        where = f"{method} {path}"
        assert operation["summary"] and operation["description"] and operation["tags"], where
        for parameter in operation.get("parameters", ()):
            assert parameter["description"], f"{where} {parameter['name']}"
        if "requestBody" in operation:
            assert operation["requestBody"]["content"]["application/json"]["example"], where
        success = next(response for status, response in operation["responses"].items() if status < "300")
        for kind, media in success.get("content", {}).items():
            assert "arrow" in kind or media["example"], where


def test_every_operation_documents_its_errors_as_problems(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        errors = {status: response for status, response in operation["responses"].items() if status >= "400"}
        assert {"401", "403", "422", "503"} <= set(errors), f"{method} {path}"
        for response in errors.values():
            schema = response["content"]["application/problem+json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/Problem"}


def test_examples_fit_their_schemas(document: dict[str, Any]) -> None:
    checked = 0
    for _, _, operation in operations(document):
        medias = list(operation.get("requestBody", {}).get("content", {}).items())
        for response in operation["responses"].values():
            medias += response.get("content", {}).items()
        for _, media in medias:
            if "example" in media:
                schema = {**media["schema"], "components": document["components"]}
                jsonschema_rs.validate(schema, media["example"])
                checked += 1
    assert checked > 20


def test_both_media_types_of_messages_are_documented(document: dict[str, Any]) -> None:
    both = {"application/json", "application/vnd.apache.arrow.stream"}
    publishing = document["paths"]["/v1/topics/{topic}/messages"]["post"]
    plain = {"application/octet-stream", "application/x-ndjson", "text/plain"}
    assert set(publishing["requestBody"]["content"]) == both | plain
    assert set(publishing["responses"]["200"]["content"]) == both
    for path in (
        "/v1/topics/{topic}/partitions/{partition}/messages",
        "/v1/topics/{topic}/groups/{group}/members/{member}/messages",
    ):
        assert set(document["paths"][path]["get"]["responses"]["200"]["content"]) == both


def test_bearer_tokens_are_documented(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    scheme = document["components"]["securitySchemes"]["token"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert document["security"] == [{"token": []}]


# Generated requests


def without_waiting(document: dict[str, Any]) -> dict[str, Any]:
    """The document for a generator that cannot make Arrow, and would wait for the end of polls and subscriptions."""
    made = copy.deepcopy(document)
    paths = made["paths"].items()
    made["paths"] = {path: item for path, item in paths if path.startswith("/v1") and path not in EVENTS}
    for _, _, operation in operations(made):
        content = operation.get("requestBody", {}).get("content", {})
        content.pop("application/vnd.apache.arrow.stream", None)
        parameters = operation.get("parameters", [])
        operation["parameters"] = [parameter for parameter in parameters if parameter["name"] != "wait_seconds"]
    return made


def with_known_names(document: dict[str, Any]) -> dict[str, Any]:
    """The document with few names, so that most requests find what they name."""
    made = without_waiting(document)
    names = {"topic": ["orders", "none"], "group": ["billing", "fixed", "new"], "member": ["worker-1", "0"]}
    for _, _, operation in operations(made):
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path" and parameter["name"] in names:
                parameter["schema"] = {"enum": names[parameter["name"]]}
    # Others need what it would delete.
    del made["paths"]["/v1/topics/{topic}"]["delete"]
    return made


def failures_of(
    site: Site, client: httpx.Client, document: dict[str, Any], phases: tuple[str, ...], *unchecked: str
) -> list[str]:
    """What requests find wrong that are made from examples, to cover every constraint, at random, and in sequences.

    That a request which fits the schema is taken is not asked: a topic may be there with other settings. And the number
    of a topic is not what it is found by, which sequences of requests would suppose.
    """
    off = ["positive_data_acceptance", "ensure_resource_availability", *unchecked]
    config = schemathesis.Config.from_dict(
        {
            "seed": 20261115,
            "base-url": site.url,
            "auth": {"openapi": {"token": {"bearer": client.headers["authorization"].removeprefix("Bearer ")}}},
            "request-timeout": PATIENCE_SECONDS,
            "generation": {"max-examples": 12, "deterministic": True},
            "checks": {name: {"enabled": False} for name in off},
            "phases": {name: {"enabled": name in phases} for name in PHASES},
        }
    )
    schema = schemathesis.openapi.from_dict(document, config=config)
    found = []
    requests = 0
    for event in from_schema(schema).execute():
        if isinstance(event, events.NonFatalError | events.FatalError):
            found.append(str(event))
        if isinstance(event, events.ScenarioFinished):
            requests += len(event.recorder.interactions)
            checks = [check for checks in event.recorder.checks.values() for check in checks]
            found += [
                f"{event.recorder.label}: {check.failure_info.failure}\n{check.failure_info.code_sample}"
                for check in checks
                if check.failure_info is not None
            ]
    assert requests > 2 * len(list(operations(document))), "it did something"
    return found


def test_generated_requests_meet_no_surprise(guarded: tuple[Site, httpx.Client], document: dict[str, Any]) -> None:
    found = failures_of(*guarded, without_waiting(document), ("examples", "coverage", "fuzzing"))
    assert not found, "\n\n".join(found[:10])


def test_generated_requests_on_existing_topics_meet_no_surprise(
    guarded: tuple[Site, httpx.Client], document: dict[str, Any]
) -> None:
    # Other names than those are good names too.
    found = failures_of(
        *guarded, with_known_names(document), ("fuzzing", "stateful"), "negative_data_rejection", "unsupported_method"
    )
    assert not found, "\n\n".join(found[:10])


def test_the_generator_finds_what_is_wrong(guarded: tuple[Site, httpx.Client], document: dict[str, Any]) -> None:
    """A document that promises something else is not kept, and that is found."""
    false = without_waiting(document)
    false["paths"] = {"/v1/topics": {"get": false["paths"]["/v1/topics"]["get"]}}
    false["components"]["schemas"]["TopicList"]["properties"]["topics"] = {"type": "integer"}
    assert any(
        "GET /v1/topics:" in failure for failure in failures_of(*guarded, false, ("fuzzing",), "unsupported_method")
    )

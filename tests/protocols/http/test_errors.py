"""Errors as answers: every error of the core has a status, and everything is a problem, whoever found it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, get_type_hints

import httpx
import msgspec
import numpy as np
import pytest

from headrace.core.errors import HeadraceError, LimitExceeded, TopicNotFound, all_errors
from headrace.protocols.http.errors import Problem, problem_of, respond, status_of
from tests.protocols.http.site import JSON_BODY, checked, create_topic, path_of, problem

SAMPLES: dict[type, Any] = {str: "lone \ud800 surrogate", int: np.int64(7), float: float("inf")}


def sample(kind: type[HeadraceError]) -> HeadraceError:
    hints = get_type_hints(kind)
    return kind(**{field.name: SAMPLES[hints[field.name]] for field in dataclasses.fields(kind)})


@pytest.mark.parametrize("kind", list(all_errors()), ids=lambda kind: kind.__name__)
def test_every_error_is_a_problem_that_json_can_have(kind: type[HeadraceError]) -> None:
    error = sample(kind)
    found = json.loads(msgspec.json.encode(problem_of(error)))
    assert found["code"] == kind.code
    assert found["type"] == f"urn:headrace:{kind.code}"
    assert found["retry"] == kind.retry
    assert set(found.get("fields", {})) == set(error.details())
    response = respond(problem_of(error))
    assert response.status_code == status_of(error)
    if kind.retry:
        assert response.headers["Retry-After"] == ("3600" if kind is LimitExceeded else "1")


# What clients find out by themselves: no server answers with these.
OF_CLIENTS = {"unreachable", "untrusted", "answer_lost", "server_failed", "messages_lost", "undecodable", "forked"}
RAISED = [kind for kind in all_errors() if not kind.__subclasses__() and kind.code not in OF_CLIENTS]


@pytest.mark.parametrize("kind", RAISED, ids=lambda kind: kind.__name__)
def test_every_error_that_is_raised_has_a_status_of_its_own(kind: type[HeadraceError]) -> None:
    assert status_of(sample(kind)) in (401, 403, 404, 409, 413, 422, 429, 503)


def test_fields_say_what_the_message_says() -> None:
    found = problem_of(TopicNotFound("orders"))
    assert isinstance(found, Problem)
    assert (found.status, found.fields, found.detail) == (404, {"topic": "orders"}, str(TopicNotFound("orders")))


def test_what_the_framework_finds_is_a_problem_too(client: httpx.Client) -> None:
    create_topic(client, "framework")
    problem(client.get("/v1/nowhere"), 404, "route_not_found")
    problem(client.get("/v1"), 404, "route_not_found")
    refused = client.put("/v1/topics", json={})
    problem(refused, 405, "method_not_allowed")
    assert {"GET", "POST"} <= set(refused.headers["allow"].replace(" ", "").split(","))
    problem(client.post("/v1/topics", content=b"{", headers=JSON_BODY), 422, "invalid_input")
    problem(client.post("/v1/topics", content=b""), 422, "invalid_input")
    problem(client.post("/v1/topics", content=b"[1", headers=JSON_BODY), 422, "invalid_input")
    wrong = problem(client.post("/v1/topics", json={"name": "x", "partitions": "y"}), 422, "invalid_input")
    assert "$.partitions" in wrong["fields"]["rule"]
    for body in ({"name": "x", "partitions": "2"}, {"name": "x", "partitions": True}, {"name": "x", "partitions": 2.5}):
        problem(client.post("/v1/topics", json=body), 422, "invalid_input")
    path = path_of("topics", "framework", "partitions", 0, "messages")
    wrong = problem(client.get(path, params={"offset": "one"}), 422, "invalid_request")
    assert wrong["fields"]["problems"][0]["key"] == "offset"
    problem(client.get(path, params={"offset": "null"}), 422, "invalid_input")
    headers = {"content-type": "application/x-www-form-urlencoded"}
    problem(client.post("/v1/topics", content=b"name=x", headers=headers), 415, "unsupported_media_type")
    told = problem(client.get("/v1/topics", params={"page": 2}), 422, "invalid_input")
    assert "bridge" not in told["detail"] and "this operation has no parameters" in told["detail"]
    told = problem(client.get(path, params={"bridge": 2, "offset": 0}), 422, "invalid_input")
    assert "known parameters are encoding, max_bytes" in told["detail"]


def test_paths_may_have_slashes_too_many(client: httpx.Client) -> None:
    create_topic(client, "slashes")
    checked(client.get("//v1//topics//slashes/"), 404)
    checked(client.get(path_of("topics", "slashes") + "/"), 200)

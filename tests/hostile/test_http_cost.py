"""What one request of each HTTP route costs at most: containers of any length in its body, long texts, long queries.

All routes of the application are tried: a new one is covered once it is there.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from typing import Final

import pytest

from tests.hostile.cost import Attack, Trial
from tests.hostile.http_requests import ROUTES, Route, asked
from tests.hostile.json_requests import variants
from tests.hostile.target import Address

# As much as fits a head of the default size.
QUERIES: Final = {
    "a long text": "x" * 60_000,
    "many numbers": ",".join(str(number) for number in range(10_000)),
    "many pairs": ",".join(f"{number}:0" for number in range(7_000)),
}
# Answers to what is no request of this route.
MISUNDERSTOOD: Final = (401, 403, 405, 413, 415, 422)


def sent(route: Route, body: bytes | None, **query: str) -> Attack:
    """An attack by one request; its cost has the size of the answer, or 0 if the connection is cut off."""

    def attack(address: Address) -> int:
        try:
            return asked(address, route, body, **query)[1]
        except (OSError, http.client.HTTPException):
            return 0

    return attack


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    with Trial(tmp_path_factory.mktemp("cost")) as trial:
        yield trial


@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_every_route_is_served(trial: Trial, route: Route) -> None:
    """Without this, the requests below may be refused for another reason than their size."""
    status, _ = asked(trial.address, route, route.usual_body)
    assert status not in MISUNDERSTOOD


@pytest.mark.parametrize("route", [route for route in ROUTES if route.body], ids=str)
def test_bodies_cost_little(trial: Trial, route: Route) -> None:
    assert route.json is not None
    costly = {}
    for what, body in variants(route.json):
        cost = trial.cost(sent(route, body))
        print(f"{route} {what}: {cost}")
        if excess := cost.excess():
            costly[what] = excess
    assert costly == {}


@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_queries_cost_little(trial: Trial, route: Route) -> None:
    costly = {}
    for name in (*route.queries, "unknown"):
        for what, value in QUERIES.items():
            cost = trial.cost(sent(route, route.usual_body, **{name: value}))
            if excess := cost.excess():
                costly[f"{name}: {what}"] = excess
    assert costly == {}

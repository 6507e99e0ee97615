"""What a list shows, as the query of its address, and back."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest

from headrace.console.messages.address import ListAddress

MOMENT = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    "shown",
    [
        ListAddress(),
        ListAddress(start="offset", offset=5, partition=0, count=200),
        ListAddress(start="time", time=MOMENT),
        ListAddress(search='value.name == "a&b=c#d"', kind="expression", message=(2, 7)),
        ListAddress(search="ü 50%"),
    ],
)
def test_an_address_shows_what_it_was_made_of(shown: ListAddress) -> None:
    query = {name: values[0] for name, values in parse_qs(urlsplit(shown.page("orders")).query).items()}
    assert (query.pop("name"), query.pop("tab")) == ("orders", "messages")
    assert ListAddress.of(query) == shown


def test_what_is_as_usual_is_left_out() -> None:
    assert ListAddress().page("orders") == "/topic?name=orders&tab=messages"


def test_what_a_query_says_wrongly_is_left_out() -> None:
    query = {
        "start": "sideways",
        "offset": "-1",
        "time": "2026-02-03T04:05:06",
        "partition": "٣",
        "count": "1000000",
        "kind": "python",
        "message": "1",
        "search": "x" * 5_000,
    }
    assert ListAddress.of(query) == ListAddress(search="x" * 1_000)
    assert ListAddress.of({"time": "never", "offset": "9" * 40}) == ListAddress()

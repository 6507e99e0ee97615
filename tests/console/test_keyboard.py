"""The console by keyboard alone, and what its pages keep in their addresses."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, Route, expect

from headrace.console.sessions import PAGE_SECONDS
from tests.console.conftest import Site, Visit

AVRO = json.dumps({"type": "record", "name": "order", "fields": [
    {"name": "id", "type": "long"}, {"name": "customer", "type": "string"},
]})  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def data(site: Site) -> Iterator[None]:
    """Orders of which one is wanted, and a topic for corrected ones."""
    site.client.create_topic("orders", partitions=2)
    site.client.create_topic("corrected")
    with site.client.producer("orders", producer_id="till-7") as producer:
        for number in range(300):
            value = json.dumps({"order": number, "amount": number * 2})
            producer.send(value.encode(), key=b"user-%d" % (number % 7), attributes={"kind": b"sale"})
    site.client.register_group("orders", "billing")
    yield


def query(page: Page) -> dict[str, str]:
    """The query of the address that the browser shows."""
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def tab_to(page: Page, name: str) -> None:
    """Press Tab until the control with this name has the focus."""
    labelled = """() => {
        const at = document.activeElement;
        return at.matches("button, a, input, textarea") ? at.getAttribute("aria-label") || at.innerText : "";
    }"""
    for _ in range(60):
        press(page, "Tab")
        if name in str(page.evaluate(labelled)):
            return
    raise AssertionError(f"no control {name!r} is reached by Tab")


def test_a_message_is_found_opened_published_again_and_shared_by_keyboard(site: Site, visit: Visit) -> None:
    page = visit("/")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    press(page, "/")
    page.keyboard.type("orders")
    press(page, "Enter")
    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(50)

    # Find it by a field.
    press(page, "/", "Shift+Tab")
    page.keyboard.type("Expr")
    press(page, "Enter", "Tab")
    field = page.get_by_label("Search all messages")
    expect(field).to_be_focused()
    page.keyboard.type("value.amount >= 500 and value.amount <= 504")
    press(page, "Enter")
    expect(page.get_by_role("status")).to_contain_text("3 found")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.wait_for_url("**kind=expression")
    assert (query(page)["search"], query(page)["kind"]) == ("value.amount >= 500 and value.amount <= 504", "expression")

    # Into the list, down one row, open it, and on to the next message from there.
    press(page, "ArrowDown")
    expect(page.locator("tbody tr").nth(0)).to_be_focused()
    press(page, "j")
    expect(page.locator("tbody tr").nth(1)).to_be_focused()
    press(page, "k", "Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("group", name="Tree")).to_contain_text('"amount"')
    page.wait_for_url("**message=*")
    first = query(page)["message"]
    press(page, "j")
    expect(dialog.get_by_role("button", name="Previous message")).to_be_enabled()
    page.wait_for_url(lambda url: f"message={first}" not in url)
    second = query(page)["message"]

    # Share its address.
    tab_to(page, "Copy a link to this message")
    press(page, "Enter")
    expect(page.get_by_text("Copied a link to this message")).to_be_visible()
    link = str(page.evaluate("navigator.clipboard.readText()"))
    assert link == page.url
    shared = visit(link.removeprefix(site.console.url))
    partition, offset = second.split("-")
    expect(shared.get_by_role("dialog")).to_contain_text(f"Partition {partition}, offset {offset}")
    expect(shared.locator("tbody tr")).to_have_count(3)
    shared.close()

    # Publish it again, corrected, to another topic.
    tab_to(page, "Publish again")
    press(page, "Enter")
    form = page.get_by_role("dialog").last
    expect(form.get_by_label("Value", exact=True)).to_be_focused()
    press(page, "Control+a")
    page.keyboard.type('{"order": 250, "amount": 1}')
    press(page, "Shift+Tab", "Shift+Tab", "Shift+Tab")
    expect(form.get_by_label("Topic")).to_be_focused()
    press(page, "Control+a")
    page.keyboard.type("correctde")
    tab_to(page, "Publish")
    press(page, "Enter")
    expect(form.get_by_role("alert")).to_contain_text("There is no topic 'correctde'")
    form.get_by_label("Topic").focus()
    press(page, "Control+a")
    page.keyboard.type("corrected")
    tab_to(page, "Publish")
    press(page, "Enter")
    expect(form.get_by_role("status")).to_have_text("Written to partition 0, offset 0.")
    source = site.client.read("orders", int(partition), int(offset), max_messages=1).to_pylist()[0]
    written = site.client.read("corrected", 0).to_pylist()[0]
    assert written["value"] == b'{"order": 250, "amount": 1}'
    assert (written["key"], written["attributes"]) == (source["key"], source["attributes"])
    assert written["producer_id"] is None
    press(page, "Escape")
    # A dialog that is still closing takes the key once more.
    expect(page.get_by_role("dialog")).to_have_count(1)
    press(page, "Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    press(page, "g", "g")
    expect(page.get_by_role("heading", name="Groups")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(1)
    press(page, "j", "Enter")
    expect(page.get_by_role("heading", name="billing")).to_be_visible()


def test_filters_are_in_the_address(visit: Visit) -> None:
    page = visit("/topic?name=orders")
    page.get_by_label("Start").click()
    page.get_by_role("option", name="From offset").click()
    page.get_by_role("spinbutton", name="Offset").fill("5")
    expect(page.locator("tbody tr td").nth(2)).to_have_text("5")
    page.get_by_role("tab", name="Charts").click()
    expect(page.locator("canvas")).to_have_count(4)
    page.wait_for_url("**tab=charts")
    page.get_by_role("tab", name="Messages").click()
    expect(page.get_by_label("Start")).to_be_visible()
    page.wait_for_url("**offset=5")
    assert query(page) == {"name": "orders", "tab": "messages", "start": "offset", "offset": "5"}
    again = visit("/topic?name=orders&tab=messages&start=offset&offset=5&partition=1&count=25")
    expect(again.locator("tbody tr")).to_have_count(25)
    expect(again.locator("tbody tr td").nth(1)).to_have_text("1")
    moment = "2020-02-03T04:05:06Z"
    timed = visit(f"/topic?name=orders&tab=messages&start=time&time={moment}", timezone_id="Asia/Tokyo")
    expect(timed.locator("tbody tr")).to_have_count(50)
    timed.get_by_label("Partition").first.click()
    timed.get_by_role("option", name="Partition 0").click()
    timed.wait_for_url(f"**time={moment.replace(':', '%3A')}&partition=0")


def test_a_list_stops_while_the_mouse_is_over_a_row(site: Site, visit: Visit) -> None:
    site.client.create_topic("live")
    with site.client.producer("live") as producer:
        producer.send(b"first").result()
        page = visit("/topic?name=live")
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(1)
        rows.first.hover()
        expect(page.get_by_text("Paused while a row is chosen")).to_be_visible()
        producer.send(b"second").result()
        expect(page.locator(".hr-card", has_text="Messages").first).to_contain_text("2")
        expect(rows).to_have_count(1)
        page.mouse.move(0, 0)
        expect(rows).to_have_count(2)


def test_the_search_of_the_header_finds_groups_and_pages(visit: Visit) -> None:
    for wanted, heading in (("billing", "billing"), ("pipelines", "Pipelines")):
        page = visit("/server")
        expect(page.get_by_role("heading", name="Server")).to_be_visible()
        page.get_by_label("Search", exact=True).fill(wanted)
        press(page, "Enter")
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
        page.close()
    page = visit("/search?wanted=or")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("orders")
    expect(rows.last).to_contain_text("corrected")
    expect(visit("/search?wanted=absent").get_by_text("Nothing has this in its name")).to_be_visible()


def test_values_of_a_schema_are_decoded(site: Site, visit: Visit) -> None:
    site.client.create_topic("typed", value_schema=AVRO)
    with site.client.producer("typed") as producer:
        for number, customer in enumerate(("ann", "bob")):
            producer.send(bytes([2 * number, 2 * len(customer)]) + customer.encode()).result()
        producer.send(b"\x07").result()
    page = visit("/topic?name=typed")
    rows = page.locator("tbody tr")
    expect(rows.nth(1)).to_contain_text('{"id": 1, "customer": "bob"}')
    rows.nth(1).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Value, by the schema of the topic")
    expect(dialog.get_by_role("group", name="Tree")).to_contain_text('"customer": "bob"')
    dialog.get_by_role("button", name="Hex").click()
    expect(dialog.locator("pre")).to_contain_text("02 06 62 6f 62")
    press(page, "Escape")
    expect(dialog).to_have_count(0)
    rows.first.click()
    expect(dialog).to_contain_text("It does not fit the schema of the topic")
    press(page, "Escape")
    found = visit("/topic?name=typed&tab=messages&kind=expression&search=value.customer+%3D%3D+%22ann%22")
    expect(found.locator("tbody tr")).to_have_count(1)
    expect(found.locator("tbody tr")).to_contain_text('"customer": "ann"')


def test_a_browser_may_take_longer_than_a_server(visit: Visit, site: Site) -> None:
    page = visit("/server")

    def load_slowly(route: Route) -> None:
        time.sleep(PAGE_SECONDS + 1)
        route.continue_()

    page.route("**/nicegui.js", load_slowly)
    page.goto(f"{site.console.url}/topic?name=orders&tab=messages&kind=expression&search=value.amount+%3D%3D+502")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("status").filter(has_text="1 found")).to_be_visible()


def test_a_badge_says_on_every_page_that_something_needs_attention(visit: Visit) -> None:
    page = visit("/server")
    badge = page.locator(".hr-badge")
    expect(badge).to_have_text("1")
    expect(badge).to_have_attribute("aria-label", "needs attention: 1 finding")


def test_the_lag_of_partitions_is_drawn(visit: Visit) -> None:
    page = visit("/group?topic=orders&name=billing")
    expect(page.get_by_text("In the partitions that lag most")).to_be_visible()
    expect(page.locator("canvas")).to_have_count(2)


def test_a_phone_keeps_key_and_partition(visit: Visit) -> None:
    page = visit("/topic?name=orders", viewport={"width": 390, "height": 800})
    row = page.locator("tbody tr").first
    for cell in (".hr-key", ".hr-part", ".hr-cut"):
        expect(row.locator(cell)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    value, whole = row.locator(".hr-cut").bounding_box(), row.bounding_box()
    assert value is not None and whole is not None and value["width"] > 0.9 * whole["width"]


def test_a_list_that_could_not_be_read_is_read_again(site: Site, visit: Visit) -> None:
    page = visit("/topic?name=orders")
    expect(page.locator("tbody tr")).to_have_count(50)
    site.server.kill()
    try:
        page.locator(".q-select", has_text="messages").click()
        page.get_by_role("option", name="25", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    finally:
        site.server.start()
    expect(page.locator("tbody tr")).to_have_count(25)


def test_the_first_token_may_leave_time_to_callers_without_one(site: Site, visit: Visit) -> None:
    page = visit("/access")
    page.get_by_role("button", name="Create token").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("It is the first one")
    dialog.get_by_label("Name of its user").fill("ada")
    dialog.get_by_label("Refuse them only after (empty: at once)").fill("10")
    dialog.get_by_text("Full access").click()
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_text("Save this token now")).to_be_visible()
    (token,) = site.client.list_tokens()
    assert token.grace_until_us is not None and token.grace_until_us - token.created_us == 600_000_000
    page.get_by_role("button", name="I have saved it").click()
    page.get_by_role("button", name="Create token").click()
    expect(dialog.get_by_label("Name of its user")).to_be_visible()
    expect(dialog.get_by_text("It is the first one")).to_have_count(0)
    assert site.client.revoke_token(token.id)

"""Each page with real data of a real server, in a real browser."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

import headrace
from headrace.console.pages.topic import settings
from headrace.core.reports.pipelines import PipelineReport
from headrace.core.topics.settings import TopicSettings
from tests.console.conftest import Site, Visit


@pytest.fixture(scope="module", autouse=True)
def data(site: Site) -> None:
    """Orders that a group has read half of."""
    site.client.create_topic("orders", partitions=4)
    with site.client.producer("orders", producer_id="till-7") as producer:
        for number in range(200):
            value = json.dumps({"order": number, "amount": number * 1.5, "customer": {"name": "ann"}})
            producer.send(value.encode(), key=b"user-%d" % (number % 17), attributes={"kind": b"sale"})
    site.client.register_group("orders", "billing")
    site.client.commit_offsets("orders", "billing", dict.fromkeys(range(4), 10))


def test_overview_shows_rates_groups_and_topics(visit: Visit) -> None:
    page = visit("/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    groups = page.locator(".hr-panel", has_text="Groups by lag")
    expect(groups.get_by_role("link", name="billing")).to_be_visible()
    expect(groups).to_contain_text("160")
    topics = page.locator(".hr-panel", has_text="Topics by rate")
    expect(topics.get_by_role("link", name="orders")).to_be_visible()
    expect(page.locator(".hr-card", has_text="Stored")).to_contain_text("200 messages")
    attention = page.locator(".hr-panel", has_text="Needs attention")
    expect(attention).to_contain_text("Group billing of orders: 160 messages unread")
    expect(attention.get_by_role("link", name="Group billing of orders")).to_be_visible()
    expect(page.locator("canvas")).to_have_count(4)


def test_topics_are_listed_filtered_and_sorted_with_their_lag(site: Site, visit: Visit) -> None:
    for number in range(60):
        site.client.create_topic(f"many-{number:02}")
    page = visit("/topics?search=many")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(50)
    expect(page.locator(".q-table__bottom")).to_contain_text("1-50 of 60")
    page.get_by_label("Next page").click()
    expect(rows).to_have_count(10)
    page.keyboard.press("/")
    page.keyboard.type("orders")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("160")
    rows.first.get_by_role("link", name="orders").click()
    expect(page.get_by_role("heading", name="orders")).to_be_visible()


def test_a_topic_is_created_and_deleted_by_its_name(site: Site, visit: Visit) -> None:
    page = visit("/topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name", exact=True).fill("short-lived")
    page.get_by_label("Partitions").fill("3")
    kept = page.get_by_label("Keep messages for")
    expect(kept).to_have_value("7d")
    kept.fill("")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_text("Keep messages for is '': it must be a whole number")).to_be_visible()
    kept.fill("90d")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("heading", name="short-lived")).to_be_visible()
    expect(page.get_by_text("No messages yet")).to_be_visible()
    made = site.client.describe_topic("short-lived")
    assert (made.partitions, made.settings.retention_seconds) == (3, 90 * 86_400)
    expect(page.locator(".hr-card", has_text="Kept for")).to_contain_text("90 d")
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("0 messages")
    confirm = dialog.get_by_role("button", name="Delete")
    expect(confirm).to_be_disabled()
    dialog.get_by_label("Confirmation").fill("short-lived")
    confirm.click()
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    assert "short-lived" not in site.client.list_topics()


def test_a_message_is_shown_in_full_and_has_a_link_of_its_own(visit: Visit) -> None:
    page = visit("/topic?name=orders")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(50)
    rows.first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("till-7")
    expect(dialog).to_contain_text("sale")
    tree = dialog.get_by_role("group", name="Tree")
    expect(tree).to_contain_text("{…} 3 fields")
    expect(tree).to_contain_text('"name": "ann"')
    tree.locator("summary").nth(1).click()
    expect(tree.get_by_text('"ann"')).to_be_hidden()
    dialog.get_by_role("button", name="JSON").click()
    expect(dialog.locator("pre")).to_contain_text('"name": "ann"')
    expect(tree).to_be_hidden()
    dialog.get_by_role("button", name="Hex").click()
    expect(dialog.locator("pre")).to_contain_text("00000000  7b 22")
    linked = visit("/topic?name=orders&tab=messages&message=0-3")
    expect(linked.get_by_role("dialog")).to_contain_text("Partition 0, offset 3")


def test_messages_from_an_offset_of_a_partition(visit: Visit) -> None:
    page = visit("/topic?name=orders")
    page.get_by_label("Start").click()
    page.get_by_role("option", name="From offset").click()
    page.get_by_role("spinbutton", name="Offset").fill("5")
    rows = page.locator("tbody tr")
    expect(rows.first).to_contain_text("5")
    times = page.locator("time").first
    expect(times).to_have_attribute("title", re.compile(r"^\d{4}-\d\d-\d\d .* UTC$"))


def test_help_is_one_key_away(visit: Visit) -> None:
    page = visit("/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keyboard")


def test_a_page_that_does_not_exist_says_so(visit: Visit) -> None:
    page = visit("/topic?name=absent")
    expect(page.get_by_text("There is no topic 'absent'")).to_be_visible()


def test_pipelines_that_report(visit: Visit, site: Site) -> None:
    page = visit("/pipelines")
    expect(page.get_by_text("No pipeline has reported yet")).to_be_visible()
    report = PipelineReport(
        run_id="1", state="failed", started_us=1, source="topic orders", sink="table", error="<b>column</b> missing"
    )
    site.client.report_pipeline("orders", "land", report)
    expect(page.locator("tbody tr", has_text="land")).to_contain_text("failed")
    expect(page.locator("pre")).to_have_text("<b>column</b> missing")
    overview = visit("/")
    expect(overview.get_by_role("link", name="Pipeline land of orders")).to_be_visible()


def test_who_is_connected_is_shown_and_who_the_members_of_a_group_are(visit: Visit, site: Site) -> None:
    with (
        headrace.connect(site.server.url, client_id="till <b>7</b>") as client,
        client.consumer("orders", group="readers") as consumer,
    ):
        assert consumer.poll(timeout=60.0).num_rows
        clients = visit("/server").locator(".hr-panel", has_text="Of this server, in the last minute")
        row = clients.locator("tbody tr", has_text="till <b>7</b>").filter(has_text="orders as readers")
        expect(row).to_have_count(1)
        expect(clients.locator("tbody tr", has_text="headrace console").first).to_be_visible()
        members = visit("/group?topic=orders&name=readers").locator(".q-table__container").last
        expect(members.locator("tbody tr")).to_contain_text("till <b>7</b> on ")
        expect(members.locator("tbody tr time")).not_to_be_empty()


def test_the_servers_of_the_store(visit: Visit, site: Site) -> None:
    page = visit("/server")
    expect(page.locator("tbody tr").first).to_contain_text(f"http://127.0.0.1:{site.server.port}")
    expect(page.locator(".hr-card", has_text="Disk free")).to_contain_text("of ")


def test_the_store_is_checked_while_its_server_runs(visit: Visit) -> None:
    page = visit("/server")
    expect(page.get_by_text("Not checked since the server started.")).to_be_visible()
    page.get_by_role("button", name="Check now").click()
    expect(page.get_by_text("No damage. Checked")).to_be_visible()
    again = visit("/server")
    expect(again.get_by_text("No damage. Checked")).to_be_visible()


def test_the_settings_of_the_server(visit: Visit, site: Site) -> None:
    page = visit("/server")
    page.get_by_label("Filter settings").fill("flight")
    row = page.locator("tbody tr", has_text=f"127.0.0.1:{site.server.flight_port}")
    expect(row.last).to_contain_text("--flight")
    page.get_by_label("Filter settings").fill("broker.topics_max")
    expect(page.locator("tbody tr", has_text="broker.topics_max")).to_contain_text("10,000")
    page.get_by_role("switch", name="Only what is not the default").click()
    expect(page.locator("tbody tr", has_text="broker.topics_max")).to_have_count(0)


def test_pages_fit_a_phone_and_the_dark(visit: Visit, site: Site) -> None:
    page = visit("/topic?name=orders", viewport={"width": 390, "height": 800}, color_scheme="dark")
    expect(page.locator("tbody tr")).to_have_count(50)
    for path in ("", "topics", "groups", "topic?name=orders"):
        page.goto(f"{site.console.url}/{path}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 23, 26)"


def test_every_setting_of_a_topic_has_its_meaning() -> None:
    assert set(settings._TEXTS) == {"partitions", *TopicSettings.__struct_fields__}

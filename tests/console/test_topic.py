"""Working with messages and groups: publish, search, reset; hostile payloads; a server that is killed meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pyarrow as pa
import pytest
from playwright.sync_api import Page, expect

from headrace.core.reports.pipelines import PipelineReport
from tests.console.conftest import Site, Visit

MESSAGES = 1_000_000
SCRIPT = "<img src=x onerror=\"window.hacked='img'\"><script>window.hacked='script'</script>{{ window.hacked='vue' }}"


@pytest.fixture(scope="module", autouse=True)
def data(site: Site) -> Iterator[None]:
    """Many payments, and a few payloads that want to do harm."""
    site.client.create_topic("payments", partitions=4)
    numbers = pa.array(range(MESSAGES), pa.int64()).cast(pa.string())
    values = pa.compute.binary_join_element_wise('{"amount": ', numbers, ', "currency": "EUR"}', "")
    keys = pa.compute.binary_join_element_wise("user-", numbers, "")
    with site.client.producer("payments") as producer:
        for start in range(0, MESSAGES, 50_000):
            columns = {"value": values.slice(start, 50_000).cast(pa.binary()), "key": keys.slice(start, 50_000)}
            producer.send_batch(pa.RecordBatch.from_pydict(columns))
    site.client.create_topic("hostile")
    with site.client.producer("hostile", producer_id=SCRIPT) as producer:
        producer.send(SCRIPT.encode(), key=SCRIPT.encode(), attributes={SCRIPT[:200]: SCRIPT.encode()}).result()
        producer.send(json.dumps({SCRIPT: [SCRIPT]}).encode()).result()
        producer.send(b"\x1b[2J\x1b[31mred\x07 \xe2\x80\xaereversed").result()
        producer.send(bytes(range(256)) * 4).result()
        broken = {"value": [b"\x1f\x8bbroken"], "codec": ["gzip"]}
        producer.send_batch(pa.RecordBatch.from_pydict(broken))
        producer.send(b"x" * 1_000_000).result()
    site.client.register_group("hostile", SCRIPT[:100])
    site.client.create_topic(SCRIPT)
    report = PipelineReport(
        run_id="1",
        state="failed",
        started_us=1,
        host=SCRIPT,
        source=SCRIPT,
        sink=SCRIPT,
        error=SCRIPT * 3,
        dead_letters=1,
        dead_letter_topic=SCRIPT,
    )
    site.client.report_pipeline("hostile", SCRIPT, report)
    with site.client.consumer("hostile", group=SCRIPT[:100], member_id=SCRIPT) as consumer:
        consumer.poll(timeout=0.1)
        yield


def open_message(page: Page, offset: int) -> None:
    page.locator("tbody tr").nth(5 - offset).click()
    expect(page.get_by_role("dialog")).to_contain_text(f"offset {offset}")


def test_a_message_published_in_one_tab_appears_in_another(visit: Visit, site: Site) -> None:
    site.client.create_topic("chat", partitions=2)
    reader = visit("/topic?name=chat")
    expect(reader.get_by_text("No messages yet")).to_be_visible()
    writer = visit("/topic?name=chat")
    writer.get_by_role("button", name="Publish").click()
    dialog = writer.get_by_role("dialog")
    dialog.get_by_label("Value", exact=True).fill("{not json")
    dialog.get_by_role("checkbox", name="Check that it is JSON").click()
    dialog.get_by_role("button", name="Publish").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The value is not JSON")
    dialog.get_by_label("Value", exact=True).fill('{"hello": "world"}')
    dialog.get_by_label("Key (optional)").fill("ann")
    dialog.get_by_label("Attributes").fill("kind=greeting")
    dialog.get_by_label("Partition").fill("1")
    dialog.get_by_role("button", name="Publish").click()
    expect(dialog.get_by_role("status")).to_contain_text("Written to partition 1, offset 0.")
    row = reader.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text('{"hello": "world"}')
    expect(row).to_contain_text("ann")
    stored = site.client.read("chat", 1).to_pylist()[0]
    assert (stored["value"], stored["key"]) == (b'{"hello": "world"}', b"ann")
    assert dict(stored["attributes"]) == {"kind": b"greeting"}


def test_hostile_payloads_are_shown_as_text(visit: Visit) -> None:
    page = visit("/topic?name=hostile")
    expect(page.locator("tbody tr")).to_have_count(6)
    shown = {
        0: SCRIPT,
        1: SCRIPT.replace('"', '\\"'),
        2: r"\x1b[2J\x1b[31mred\x07 \u202ereversed",
        3: "00000000  00 01 02",
        4: "00000000  1f 8b 62",
        5: "cut: download the message",
    }
    for offset, text in shown.items():
        open_message(page, offset)
        dialog = page.get_by_role("dialog")
        if offset == 1:
            expect(dialog.get_by_role("group", name="Tree").get_by_text(text)).to_have_count(2)
            dialog.get_by_role("button", name="JSON").click()
        expect(dialog.locator("pre")).to_contain_text(text)
        if offset == 4:
            expect(dialog).to_contain_text("it cannot be decoded")
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
    assert page.evaluate("window.hacked") is None


def test_hostile_names_are_shown_as_text(visit: Visit) -> None:
    group, topic = urlencode({"topic": "hostile", "name": SCRIPT[:100]}), urlencode({"name": SCRIPT})
    pages = {
        "/": SCRIPT[:60],
        "/topics": SCRIPT,
        f"/topics?search={quote(SCRIPT)}": SCRIPT,
        f"/topic?{topic}": SCRIPT,
        f"/topic?{topic}&tab=settings": SCRIPT,
        f"/topic?{urlencode({'name': SCRIPT + 'absent'})}": "absent",
        "/topic?name=hostile&tab=producers": SCRIPT[:60],
        "/topic?name=hostile&tab=groups": SCRIPT[:60],
        "/groups": SCRIPT[:60],
        f"/group?{group}": SCRIPT,
        f"/group?{group}absent": "absent",
        "/pipelines": SCRIPT * 3,
    }
    for path, shown in pages.items():
        page = visit(path)
        expect(page.get_by_text(shown).first).to_be_visible()
        assert page.evaluate("window.hacked") is None, path
        page.close()


def test_questions_about_hostile_names_are_text(visit: Visit) -> None:
    page = visit(f"/topic?{urlencode({'name': SCRIPT})}")
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"Publish to {SCRIPT}")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"Delete {SCRIPT}?")
    group = visit(f"/group?{urlencode({'topic': 'hostile', 'name': SCRIPT[:100]})}")
    group.get_by_role("button", name="Remove").click()
    expect(group.get_by_role("dialog")).to_contain_text(f"Remove {SCRIPT}?")
    group.keyboard.press("Escape")
    expect(group.get_by_role("dialog")).to_have_count(0)
    group.get_by_role("button", name="Reset offsets").click()
    expect(group.get_by_role("dialog")).to_contain_text(f"Reset {SCRIPT[:100]}")
    producer = visit("/topic?name=hostile&tab=producers")
    producer.get_by_role("button", name="Reset").click()
    expect(producer.get_by_role("dialog")).to_contain_text(f"Reset {SCRIPT}?")
    assert [each.evaluate("window.hacked") for each in (page, group, producer)] == [None] * 3


def test_a_search_finds_its_messages_in_the_whole_topic(visit: Visit) -> None:
    page = visit("/topic?name=payments")
    page.keyboard.press("/")
    field = page.get_by_label("Search all messages")
    expect(field).to_be_focused()
    field.fill("user-77777")
    field.press("Enter")
    status = page.get_by_role("status")
    expect(status).to_contain_text(f"{MESSAGES:,} of {MESSAGES:,} searched")
    expect(status).to_contain_text("11 found")
    page.get_by_label("Kind of search").click()
    page.get_by_role("option", name="Expression").click()
    field.fill("value.amount >")
    field.press("Enter")
    expect(page.get_by_text("it is no expression")).to_be_visible()
    field.fill("value.amount >= 999990 and value.currency == 'EUR'")
    field.press("Enter")
    expect(status).to_contain_text("10 found")
    expect(page.locator("tbody tr")).to_have_count(10)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download").click()
        page.get_by_text("JSON Lines").click()
    lines = waiting.value.path().read_text().splitlines()
    assert {json.loads(json.loads(line)["value"])["amount"] for line in lines} == set(range(999_990, 1_000_000))
    page.get_by_role("button", name="Close search").click()
    expect(page.locator("tbody tr")).to_have_count(50)


def test_a_search_can_be_stopped(visit: Visit) -> None:
    page = visit("/topic?name=payments")
    page.get_by_label("Kind of search").click()
    page.get_by_role("option", name="Expression").click()
    field = page.get_by_label("Search all messages")
    # Compared with None each value is parsed by itself, which takes long enough to stop it.
    field.fill("value.missing != None")
    field.press("Enter")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("status")).to_contain_text("0 found, stopped")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)


def test_a_reset_shows_what_it_will_do_and_does_it(visit: Visit, site: Site) -> None:
    site.client.register_group("payments", "billing")
    site.client.commit_offsets("payments", "billing", dict.fromkeys(range(4), 1000))
    page = visit("/group?topic=payments&name=billing")
    expect(page.locator(".hr-card", has_text="Lag")).to_contain_text(f"{MESSAGES - 4_000:,}")
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("status")).to_have_text("The group reads 4,000 messages again.")
    dialog.get_by_label("Go to").click()
    page.get_by_role("option", name="Forward or back").click()
    dialog.get_by_role("spinbutton").fill("-250")
    expect(dialog.get_by_role("status")).to_have_text("The group reads 1,000 messages again.")
    dialog.get_by_label("Partitions", exact=True).click()
    page.get_by_role("option", name="Partition 2").click()
    expect(dialog.get_by_role("status")).to_have_text("The group reads 250 messages again.")
    expect(dialog.locator("tbody tr")).to_have_count(1)
    dialog.get_by_role("button", name="Reset").click()
    expect(dialog).to_have_count(0)
    assert site.client.committed("payments", "billing") == {0: 1_000, 1: 1_000, 2: 750, 3: 1_000}


def test_settings_are_changed_in_place(visit: Visit, site: Site) -> None:
    page = visit("/topic?name=payments&tab=settings")
    kept = page.get_by_label("Keep for", exact=True)
    expect(kept).to_have_value("none")
    kept.fill("a day")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Keep for is 'a day': it must be a whole number")).to_be_visible()
    kept.fill("1d")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved: retention_seconds is 1d")).to_be_visible()
    assert site.client.describe_topic("payments").settings.retention_seconds == 86_400
    page.get_by_label("Partitions", exact=True).fill("2")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("partitions").last).to_be_visible()


def test_partitions_and_producers(visit: Visit, site: Site) -> None:
    page = visit("/topic?name=payments&tab=partitions")
    expect(page.locator("tbody tr")).to_have_count(4)
    expect(page.locator(".hr-skew").first).to_be_visible()
    with site.client.producer("payments", producer_id="till-9") as producer:
        producer.send(b"{}").result()
    page.get_by_role("tab", name="Producers").click()
    row = page.locator("tbody tr", has_text="till-9")
    row.get_by_role("button", name="Reset").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Confirmation").fill("till-9")
    dialog.get_by_role("button", name="Reset").click()
    expect(page.get_by_text("The source was reset")).to_be_visible()
    assert site.client.last_seqno("payments", "till-9") is None


def test_a_page_goes_on_after_the_server_was_killed_and_restarted(visit: Visit, site: Site) -> None:
    page = visit("/topic?name=chat")
    expect(page.locator("tbody tr")).to_have_count(1)
    overview = visit("/")
    site.server.kill()
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    expect(overview.get_by_role("status")).to_contain_text("No new samples")
    site.server.start()
    with site.client.producer("chat") as producer:
        producer.send(b"after the restart").result()
    expect(page.get_by_text("after the restart")).to_be_visible()
    expect(page.get_by_text("The server does not answer")).to_be_hidden()
    expect(overview.get_by_text("No new samples")).to_be_hidden()

"""Measure the console in Chromium: `python -m bench.console [--topics N] [--messages N]`.

On a real server: time to the first paint and until the page shows its content, for each page; memory of the console
process at the start and per open page; and a search through a topic.
"""

from __future__ import annotations

import argparse
import statistics
import time
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
from playwright.sync_api import Browser, Page, expect

import headrace
from bench.memory import resident_bytes
from bench.report import Report
from headrace.client.client import Client
from tests.console.browser import HOW_TO_INSTALL, find_chromium, opened_browser
from tests.console.processes import ConsoleProcess
from tests.server_process import ServerProcess

RUNS = 5
OPEN_PAGES = 20
PARTITIONS_MANY = 10_000
BATCH = 100_000
# A page over a topic of any size opens in under a second.
PAINT_MS_MAX = 1_000
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
# Path, and what shows that the page is there.
PAGES = {
    "/": ".hr-number",
    "/topics": "tbody tr",
    "/topic?name=payments": "tbody tr",
    "/topic?name=payments&tab=partitions": "tbody tr",
    "/topic?name=wide&tab=partitions": "tbody tr",
    "/groups": "tbody tr",
    "/group?topic=payments&name=billing": "tbody tr",
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=1_000, help="topics in the store")
    parser.add_argument("--messages", type=int, default=1_000_000, help="messages in the topic that is opened")
    given = parser.parse_args()
    if find_chromium() is None:
        raise SystemExit(HOW_TO_INSTALL)
    with TemporaryDirectory() as directory, opened_browser() as browser:
        server = ServerProcess(f"file:{directory}/store")
        try:
            with headrace.connect(server.url) as client:
                fill(client, given.topics, given.messages)
            console = ConsoleProcess(server.url, "--poll-seconds", "5")
            try:
                report = Report("The console in Chromium")
                report.begin()
                report.note(f"{given.topics:,} topics, the largest has {given.messages:,} messages")
                measure(report, browser, console)
                report.end()
            finally:
                console.close()
        finally:
            server.close()


def fill(client: Client, topics: int, messages: int) -> None:
    """Make topics and messages."""
    for number in range(topics):
        client.create_topic(f"topic-{number:05}")
    client.create_topic("wide", partitions=PARTITIONS_MANY)
    client.create_topic("payments", partitions=8)
    with client.producer("payments") as producer:
        for start in range(0, messages, BATCH):
            numbers = pa.array(range(start, min(start + BATCH, messages)), pa.int64()).cast(pa.string())
            values = pc.binary_join_element_wise('{"amount": ', numbers, ', "currency": "EUR"}', "").cast(pa.binary())
            keys = pc.binary_join_element_wise("user-", numbers, "").cast(pa.binary())
            producer.send_batch(pa.RecordBatch.from_pydict({"value": values, "key": keys}))
    client.register_group("payments", "billing")


def measure(report: Report, browser: Browser, console: ConsoleProcess) -> None:
    """Print times and memory."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(console.url)
    expect(page.locator(".hr-title").first).to_be_visible()
    started = resident_bytes(console.pid)
    for path, selector in PAGES.items():
        times = [open_page(page, console.url + path, selector) for _ in range(RUNS)]
        paint, content = (statistics.median(each) for each in zip(*times, strict=True))
        report.line(f"first paint of {path}", paint, "ms", most=PAINT_MS_MAX)
        report.line(f"content of {path}", content, "ms")
    report.note(search(page, console.url))
    before = resident_bytes(console.pid)
    pages = [context.new_page() for _ in range(OPEN_PAGES)]
    for each in pages:
        each.goto(console.url + "/topic?name=payments")
        expect(each.locator("tbody tr").first).to_be_visible()
    each_bytes = (resident_bytes(console.pid) - before) / OPEN_PAGES
    report.line("memory with one page", started / 1e6, "MB")
    report.line("memory for each page more", each_bytes / 1e6, "MB")
    context.close()


def open_page(page: Page, url: str, selector: str) -> tuple[float, float]:
    """Milliseconds until the first paint, and until the content is there."""
    started = time.perf_counter()
    page.goto(url, wait_until="commit")
    page.locator(selector).first.wait_for()
    content = (time.perf_counter() - started) * 1000
    # A page that shows all at once has painted first when its content is there.
    paint: float | None = page.evaluate(_PAINT)
    return content if paint is None else paint, content


def search(page: Page, url: str) -> str:
    """What a search through the whole topic says of itself."""
    page.goto(url + "/topic?name=payments")
    page.get_by_label("Kind of search").click()
    page.get_by_role("option", name="Expression").click()
    page.get_by_label("Search all messages").fill("value.amount < 10 and value.currency == 'EUR'")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    return f"search: {page.get_by_role('status').inner_text()}"


if __name__ == "__main__":
    main()

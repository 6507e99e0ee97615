"""Measure the console in Chromium: `python -m bench.console`; `--help` lists its options.

On a real server, on a store with many topics, a topic of 10,000 partitions and one of very many messages: time to the
first paint and until the page shows its content, for each page; memory of the console process at the start and per open
page; and a search through a topic. Making ten thousand topics takes minutes: `--store` keeps them for the next run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, Page, expect

from bench.console.stores import Contents, fill
from bench.memory import resident_bytes
from bench.report import Report
from headrace.core.limits import TOPICS_IN_STORE
from tests.console.browser import HOW_TO_INSTALL, find_chromium, opened_browser
from tests.console.processes import ConsoleProcess
from tests.server_process import ServerProcess

RUNS = 5
OPEN_PAGES = 20
# How long the first sample of ten thousand topics may take on a busy machine.
SAMPLE_SECONDS = 120
# A page over a topic of any size opens in under a second.
PAINT_MS_MAX = 1_000
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
# Path, and what shows that the page is there.
PAGES = {
    "/": ".hr-number",
    "/topics": "tbody tr",
    "/topic?name=huge": "tbody tr",
    "/topic?name=huge&tab=partitions": "tbody tr",
    "/topic?name=wide": "tbody tr",
    "/topic?name=wide&tab=partitions": "tbody tr",
    "/groups": "tbody tr",
    "/group?topic=payments&name=billing": "tbody tr",
    "/group?topic=wide&name=group-01": "tbody tr",
    "/server": "tbody tr",
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10_000, help="topics in the store")
    parser.add_argument("--messages", type=int, default=1_000_000, help="messages in the topic that is searched")
    parser.add_argument("--huge", type=int, default=100_000_000, help="messages in the largest topic")
    parser.add_argument("--store", type=Path, metavar="DIRECTORY", help="use this store, and make it if it is missing")
    given = parser.parse_args()
    if find_chromium() is None:
        raise SystemExit(HOW_TO_INSTALL)
    with TemporaryDirectory() as scratch, opened_browser() as browser:
        directory = given.store or Path(scratch) / "store"
        contents = Contents(given.topics, given.messages, given.huge)
        if not directory.exists():
            fill(directory, contents)
        server = ServerProcess(f"file:{directory}", "--set", f"broker.topics_max={2 * TOPICS_IN_STORE}")
        console = ConsoleProcess(server.url, "--poll-seconds", "5")
        try:
            report = Report("The console in Chromium")
            report.begin()
            report.note(f"{contents.topics:,} topics; one of {contents.huge:,} messages, one of 10,000 partitions")
            measure(report, browser, console)
            report.end()
        finally:
            console.close()
            server.close()


def measure(report: Report, browser: Browser, console: ConsoleProcess) -> None:
    """Print times and memory."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(console.url)
    # Groups and rates come with the first sample.
    expect(page.get_by_text("Nothing. No topic fails")).to_be_visible(timeout=SAMPLE_SECONDS * 1000)
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

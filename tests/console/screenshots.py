"""The pictures in docs/console, of a real server under a little load: `make screenshots`.

With `--every DIRECTORY` it makes pictures of every page to look at instead: light, dark, and as wide as a phone.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, Page, expect

import headrace
from headrace.client.client import Client
from headrace.core.reports.pipelines import PipelineReport
from tests.console.browser import opened_browser
from tests.console.processes import ConsoleProcess
from tests.server_process import ServerProcess

PICTURES = Path(__file__).parents[2] / "docs" / "console"
# So long the server is watched before the pictures are taken, so that charts show something.
LOAD_SECONDS = 60.0


# Every page, by the name of its picture.
PAGES = {
    "overview": "/",
    "topics": "/topics",
    "messages": "/topic?name=orders",
    "message": "/topic?name=orders&tab=messages&message=0-3",
    "partitions": "/topic?name=orders&tab=partitions",
    "topic-groups": "/topic?name=orders&tab=groups",
    "producers": "/topic?name=orders&tab=producers",
    "topic-settings": "/topic?name=orders&tab=settings",
    "empty-topic": "/topic?name=shipments",
    "no-topic": "/topic?name=absent",
    "groups": "/groups",
    "group": "/group?topic=orders&name=billing",
    "pipelines": "/pipelines",
    "access": "/access",
    "audit": "/audit",
    "server": "/server",
    "sign-in": "/sign-in",
}
KINDS: dict[str, dict[str, object]] = {
    "light": {"viewport": {"width": 1280, "height": 800}},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}},
}


def main() -> None:
    """Make all pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=Path, metavar="DIRECTORY", help="every page, light, dark and on a phone")
    given = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    with TemporaryDirectory() as directory, opened_browser() as browser:
        server = ServerProcess(f"file:{directory}/store")
        console = ConsoleProcess(server.url, "--poll-seconds", "2")
        try:
            with headrace.connect(server.url) as client, _load(client):
                time.sleep(LOAD_SECONDS)
                _report(client)
                if given.every is not None:
                    _take_every(browser, console.url, given.every)
                else:
                    _take_all(browser, console.url)
        finally:
            console.close()
            server.close()


def _take_all(browser: Browser, url: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, locale="en-GB", timezone_id="Europe/Berlin")
    page = context.new_page()

    def take(name: str, path: str, wanted: str) -> Page:
        page.goto(url + path)
        expect(page.get_by_text(wanted).first).to_be_visible()
        # Charts and tables come with the next sample.
        page.wait_for_timeout(2_000)
        page.screenshot(path=PICTURES / f"{name}.png")
        return page

    take("overview", "/", "Groups by lag")
    take("topics", "/topics", "orders")
    take("messages", "/topic?name=orders", "user-")
    page.get_by_label("Kind of search").click()
    page.get_by_role("option", name="Expression").click()
    page.get_by_label("Search all messages").fill("value.amount > 290 and value.customer.country == 'DE'")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("found")
    page.wait_for_timeout(2_000)
    page.screenshot(path=PICTURES / "search.png")
    page.locator("tbody tr").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("offset")
    page.wait_for_timeout(500)
    page.screenshot(path=PICTURES / "message.png")
    take("group", "/group?topic=orders&name=billing", "Reset offsets")
    page.get_by_role("button", name="Reset offsets").click()
    expect(page.get_by_role("dialog").get_by_role("status")).to_contain_text("The group")
    page.wait_for_timeout(500)
    page.screenshot(path=PICTURES / "reset.png")
    take("pipelines", "/pipelines", "land-orders")
    context.close()


def _take_every(browser: Browser, url: str, directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    for kind, options in KINDS.items():
        context = browser.new_context(locale="en-GB", timezone_id="Europe/Berlin", **options)  # type: ignore[arg-type]
        page = context.new_page()
        for name, path in PAGES.items():
            page.goto(url + path)
            page.wait_for_timeout(2_500)
            page.screenshot(path=directory / f"{name}-{kind}.png", full_page=True)
        page.goto(url + "/access")
        page.get_by_role("button", name="Create token").click()
        page.wait_for_timeout(1_000)
        page.screenshot(path=directory / f"create-token-{kind}.png")
        context.close()


def _report(client: Client) -> None:
    """A pipeline that runs and one that failed."""
    running = PipelineReport(
        run_id="1",
        state="running",
        started_us=time.time_ns() // 1000,
        host="etl-3",
        source="topic orders",
        sink="delta table /lake/orders",
        batch=412,
        messages=1_284_000,
        messages_per_second=3_100.0,
        lag_messages=1_150,
        dead_letters=2,
        dead_letter_topic="orders.dead",
    )
    failed = PipelineReport(
        run_id="2",
        state="failed",
        started_us=time.time_ns() // 1000,
        host="etl-3",
        source="topic clicks",
        sink="topic sessions",
        batch=7,
        messages=21_000,
        error="AnalysisException: column `visiter` cannot be resolved. Did you mean `visitor`?",
    )
    client.report_pipeline("orders", "land-orders", running)
    client.report_pipeline("clicks", "sessions", failed)


@contextmanager
def _load(client: Client) -> Iterator[None]:
    """Publish and read in the background."""
    for name, partitions in (("orders", 8), ("payments", 4), ("clicks", 16), ("shipments", 4), ("orders.dead", 1)):
        client.create_topic(name, partitions=partitions)
    client.alter_topic("clicks", retention_seconds=7 * 86_400)
    client.alter_topic("payments", retention_seconds=90 * 86_400)
    over = threading.Event()
    workers = [
        threading.Thread(target=_publish, args=(client, name, over)) for name in ("orders", "clicks", "payments")
    ]
    workers += [
        threading.Thread(target=_read, args=(client, topic, group, share, over))
        for topic, group, share in (
            ("orders", "billing", 0.5),
            ("orders", "fraud-check", 1.0),
            ("clicks", "reports", 1.0),
        )
    ]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        over.set()
        for worker in workers:
            worker.join()


def _publish(client: Client, topic: str, over: threading.Event) -> None:
    chance, number = random.Random(topic), 0
    with client.producer(topic, producer_id=f"{topic}-web-1") as producer:
        while not over.wait(0.1):
            for _ in range(int(20 + 15 * math.sin(time.time() / 9 + len(topic)))):
                number += 1
                value = {
                    "order": 100_000 + number,
                    "amount": round(chance.random() * 300, 2),
                    "currency": "EUR",
                    "customer": {
                        "name": chance.choice(["ann", "bob", "cem", "dora"]),
                        "country": chance.choice(["DE", "FR"]),
                    },
                }
                key = f"user-{chance.randrange(500)}".encode()
                producer.send(json.dumps(value).encode(), key=key, attributes={"kind": b"sale"})


def _read(client: Client, topic: str, group: str, share: float, over: threading.Event) -> None:
    with client.consumer(topic, group=group, member_id=f"{group}-1") as consumer:
        while not over.is_set():
            if consumer.poll(max_messages=200, timeout=0.2).num_rows:
                consumer.commit()
            over.wait(2.0 * (1.0 - share))


if __name__ == "__main__":
    main()

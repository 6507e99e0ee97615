"""Pages that start Spark run as a reader would run them, and so does the Spark block of the released README.

Those of pipelines and tables are in tests/pipeline/test_pages.py, so that two processes share them out.

Each block starts a Spark of its own in a real process, so this takes minutes on a small machine.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headrace import Client, connect
from tests.cli.processes import Server
from tests.docs.counts import Record
from tests.docs.pages import BLOCK_SECONDS, PIPELINE_PAGES, SPARK_PAGES, Block, Scratch, blocks, run_page

RELEASED = "tests/docs/released_readme.md"
pytestmark = pytest.mark.timeout(1_800.0)


@pytest.mark.parametrize("page", sorted(SPARK_PAGES - PIPELINE_PAGES))
def test_blocks_of_a_page_run_in_order(page: str, tmp_path: Path, record_property: Record) -> None:
    run_page(page, tmp_path, record_property)


def test_the_spark_block_of_the_released_readme_passes_orders_on(tmp_path: Path) -> None:
    (block,) = (block for block in blocks(RELEASED) if block.language == "python" and "spark" in block.text)
    with Server(tmp_path / "store") as server:
        scratch = Scratch(tmp_path, server)
        # The default address may belong to somebody else on this machine.
        text = block.text.replace('.format("headrace")', f'.format("headrace").option("url", "{scratch.flight_url}")')
        started = Block(RELEASED, block.line, "python", text)
        with connect(scratch.flight_url) as client, scratch.start(started) as process:
            overdue = threading.Timer(BLOCK_SECONDS, process.kill)
            overdue.start()
            try:
                client.create_topic("orders", partitions=2)
                # The stream begins at the end of the topic, whenever that is.
                with client.producer("orders") as producer:
                    while not _has_messages(client, "large-orders"):
                        assert process.poll() is None, process.communicate()
                        producer.send(b"42.00", key=b"user-1").result()
                        producer.send(b"7.50", key=b"user-2").result()
                        threading.Event().wait(0.2)
                with client.consumer("large-orders", group="check") as consumer:
                    batch = consumer.poll(timeout=60.0)
                assert set(batch["value"].to_pylist()) == {b"42.00"}
            finally:
                overdue.cancel()
                process.kill()


def _has_messages(client: Client, topic: str) -> bool:
    return topic in client.list_topics() and any(end for _, end in client.offsets(topic).values())

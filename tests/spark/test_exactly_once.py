"""Exactly once, with real executors: every scenario copies a topic while something dies, and counts what arrived.

What a killed driver leaves is in tests/campaign/test_spark_kills.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client import Client, connect
from tests.server_process import ServerProcess
from tests.spark.driver_process import Driver
from tests.spark.topics import contents_of, numbers, publish, values_of, wait_until

MESSAGES = 200
# A cluster is started, and patience is had with it several times in a test.
pytestmark = pytest.mark.timeout(1_800.0)


class Site:
    """A broker that can be killed, and two topics in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.sink = f"sink-{directory.name}"
        self.server = ServerProcess(f"file:{directory / 'store'}")
        self.client: Client = connect(self.server.url, timeout_seconds=60.0)
        for topic in ("source", self.sink):
            self.client.create_topic(topic, partitions=2)
        publish(self.client, "source", numbers(0, MESSAGES), [b"key-%d" % (n % 7) for n in range(MESSAGES)])

    def query(self, fault: str) -> dict[str, str]:
        return {
            "url": self.server.url,
            "source": "source",
            "sink": self.sink,
            "fault": fault,
            "directory": str(self.directory),
            "checkpoint": str(self.directory / "checkpoint"),
        }

    def wait_for(self, moment: str) -> None:
        wait_until((self.directory / f"reached-{moment}").exists, f"reached {moment}")

    def open(self, moment: str) -> None:
        (self.directory / f"gate-{moment}").touch()

    def check(self) -> None:
        """Everything arrived once, and each key in the partition that it chooses."""
        assert sorted(values_of(self.client, self.sink), key=int) == numbers(0, MESSAGES)
        sets = {
            topic: {partition: set(rows) for partition, rows in contents_of(self.client, topic).items()}
            for topic in ("source", self.sink)
        }
        assert sets[self.sink] == sets["source"]

    def close(self) -> None:
        self.client.close()
        self.server.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    """One for all scenarios."""
    made = Driver()
    yield made
    made.kill()


def test_a_task_fails_after_staging(driver: Driver, site: Site) -> None:
    driver.begin(**site.query("task-fails-after-staging"))
    driver.finish(site.sink)
    assert (site.directory / "first-failed").exists()
    site.check()


def test_a_speculative_twin_stages_the_same_rows(driver: Driver, site: Site) -> None:
    """Spark starts no real twin on one machine, so each task stages twice."""
    driver.begin(**site.query("stage-twice"))
    driver.finish(site.sink)
    site.check()


def test_an_executor_is_killed_after_staging(driver: Driver, site: Site) -> None:
    driver.begin(**site.query("executor-killed"))
    driver.finish(site.sink)
    assert (site.directory / "first-killed").exists()
    site.check()


@pytest.mark.parametrize(("fault", "moment"), [("pause-before-stage", "stage"), ("pause-before-commit", "commit")])
def test_the_broker_is_killed_and_started_again(driver: Driver, site: Site, fault: str, moment: str) -> None:
    driver.begin(**site.query(fault))
    site.wait_for(moment)
    site.server.kill()
    site.open(moment)
    site.server.start()
    driver.finish(site.sink)
    site.check()

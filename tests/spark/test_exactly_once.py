"""Exactly once, with real executors: every scenario copies a topic while something dies, and counts what arrived."""

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


class Cluster:
    """The driver that all scenarios use, or a new one after it was killed."""

    def __init__(self) -> None:
        self._driver: Driver | None = None

    @property
    def driver(self) -> Driver:
        if self._driver is None:
            self._driver = Driver()
        return self._driver

    def kill(self) -> None:
        if self._driver is not None:
            self._driver.kill()
            self._driver = None


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.kill()


def test_a_task_fails_after_staging(cluster: Cluster, site: Site) -> None:
    cluster.driver.begin(**site.query("task-fails-after-staging"))
    cluster.driver.finish(site.sink)
    assert (site.directory / "first-failed").exists()
    site.check()


def test_a_speculative_twin_stages_the_same_rows(cluster: Cluster, site: Site) -> None:
    """Spark starts no real twin on one machine, so each task stages twice."""
    cluster.driver.begin(**site.query("stage-twice"))
    cluster.driver.finish(site.sink)
    site.check()


def test_an_executor_is_killed_after_staging(cluster: Cluster, site: Site) -> None:
    cluster.driver.begin(**site.query("executor-killed"))
    cluster.driver.finish(site.sink)
    assert (site.directory / "first-killed").exists()
    site.check()


@pytest.mark.parametrize(("fault", "moment"), [("pause-before-stage", "stage"), ("pause-before-commit", "commit")])
def test_the_broker_is_killed_and_started_again(cluster: Cluster, site: Site, fault: str, moment: str) -> None:
    cluster.driver.begin(**site.query(fault))
    site.wait_for(moment)
    site.server.kill()
    site.open(moment)
    site.server.start()
    cluster.driver.finish(site.sink)
    site.check()


@pytest.fixture(scope="module")
def outlived(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Site]]:
    """Two copies by one driver, each at its moment when the driver is killed; another driver goes on with both.

    It is started anew for both at once, and without executors, since that takes long.
    """
    moments = {"pause-before-commit": ("commit", 0), "pause-after-commit": ("committed", 100)}
    sites = {fault: Site(tmp_path_factory.mktemp(fault)) for fault in moments}
    for fault, site in sites.items():
        cluster.driver.begin(**site.query(fault))
    for fault, (moment, published) in moments.items():
        sites[fault].wait_for(moment)
        assert len(values_of(sites[fault].client, sites[fault].sink)) == published
    cluster.kill()
    second = Driver("local[2]")
    for fault, (moment, published) in moments.items():
        assert len(values_of(sites[fault].client, sites[fault].sink)) == published
        sites[fault].open(moment)
        second.begin(**sites[fault].query(fault))
    for site in sites.values():
        second.finish(site.sink)
    second.kill()
    yield sites
    for site in sites.values():
        site.close()


def test_the_driver_is_killed_between_stage_and_commit(outlived: dict[str, Site]) -> None:
    outlived["pause-before-commit"].check()


def test_the_driver_is_killed_between_commit_and_checkpoint(outlived: dict[str, Site]) -> None:
    """The rows come in another order the second time, and none of them is published."""
    outlived["pause-after-commit"].check()

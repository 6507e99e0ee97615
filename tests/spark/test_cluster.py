"""A standalone cluster whose machines have Spark and nothing of Headrace: what docs/spark-cluster.md says of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.client import Client, connect
from tests.server_process import ServerProcess
from tests.spark.cluster import Job, StandaloneCluster
from tests.spark.packed_environment import PACKAGES, SOURCES, pack
from tests.spark.topics import numbers, publish, values_of, wait_until

MESSAGES = 1_000
JOB = Path(__file__).with_name("cluster_job.py")
WRITTEN = ("batch", "stream", "read_stream")
# Seven processes of Java, and executors that are started again.
pytestmark = pytest.mark.timeout(1_800.0)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(tmp_path_factory.mktemp("packed") / "environment.tar.gz")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with closing(StandaloneCluster(tmp_path_factory.mktemp("cluster"))) as made:
        yield made


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with closing(ServerProcess(f"file:{tmp_path / 'store'}")) as made:
        yield made


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with connect(server.url, timeout_seconds=60.0) as made:
        for topic in ("source", *WRITTEN):
            made.create_topic(topic, partitions=2)
        publish(made, "source", numbers(0, MESSAGES))
        yield made


def unpack(archive: Path, directory: Path) -> Path:
    directory.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", archive, "-C", directory], check=True)
    return directory


def seen_by(job: Job) -> dict[str, Any]:
    """What a job saw. Spark may log what became of an executor after that."""
    (line,) = (line for line in job.finish().splitlines() if line.startswith("{"))
    seen: dict[str, Any] = json.loads(line)
    return seen


def check_once(client: Client, *topics: str) -> None:
    for topic in topics:
        assert sorted(values_of(client, topic), key=int) == numbers(0, MESSAGES), topic


def test_a_packed_environment_is_all_that_a_job_needs(
    cluster: StandaloneCluster, archive: Path, server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """The driver has it unpacked under the name that executors know; an executor is killed while each stream runs."""
    here = tmp_path / "driver"
    unpack(archive, here / "environment")
    python = "./environment/bin/python"
    options = {"archives": f"{archive}#environment"}
    arguments = [server.url, str(tmp_path / "checkpoints")]
    with closing(cluster.submit(JOB, *arguments, here=here, python=python, options=options)) as job:
        pythons: set[str] = set()
        for topic, messages in (("stream", 400), ("read_stream", 400)):
            pythons |= kill_executor(cluster, client, job, topic, messages)
        seen = seen_by(job)
    assert pythons == {python}
    assert seen["driver"].startswith(str(here)) and len(seen["tasks"]) == 2
    assert all("/work/app-" in place for place in seen["tasks"])
    assert seen["data source"] == seen["read"] == MESSAGES
    check_once(client, *WRITTEN)


def kill_executor(cluster: StandaloneCluster, client: Client, job: Job, topic: str, messages: int) -> set[str]:
    """Kill one of the executors when a topic has as many messages; which Pythons tasks ran in until then."""

    def is_there() -> bool:
        assert job.is_running(), job.output()[-6000:]
        return sum(end for _, end in client.offsets(topic).values()) >= messages and bool(cluster.executors())

    wait_until(is_there, f"{messages} messages in {topic}")
    found = cluster.task_pythons()
    os.kill(cluster.executors()[0], signal.SIGKILL)
    return found


def test_machines_that_have_the_packages_get_headrace_with_py_files(
    cluster: StandaloneCluster, archive: Path, server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """Spark looks for data sources on PYTHONPATH, and gives a stream's process nothing else of --py-files."""
    python = unpack(archive, tmp_path / "machine")
    for package in PACKAGES:
        (found,) = python.glob(f"lib/*/site-packages/{package}")
        shutil.rmtree(found)
    zipped = tmp_path / "headrace.zip"
    with zipfile.ZipFile(zipped, "w") as written:
        for package in PACKAGES:
            for path in (SOURCES / package).rglob("*.*"):
                written.write(path, path.relative_to(SOURCES))
    job = cluster.submit(
        JOB,
        server.url,
        str(tmp_path / "checkpoints"),
        here=tmp_path,
        python=str(python / "bin" / "python"),
        options={"py-files": str(zipped), "conf": "spark.executorEnv.PYTHONPATH=headrace.zip"},
        variables={"PYTHONPATH": str(zipped)},
    )
    with closing(job):
        seen = seen_by(job)
    assert str(zipped) in seen["driver"] and all("headrace.zip" in place for place in seen["tasks"])
    assert seen["data source"] == seen["read"] == MESSAGES
    check_once(client, *WRITTEN)

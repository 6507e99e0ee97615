"""A standalone cluster of Spark: a master and two workers in processes of their own, and jobs that are submitted to it.

Nothing on the workers knows where the tests have their packages: what tasks need comes with the job. Processes are
found by the directory that they run in, so that a test can kill an executor and see which Python its tasks have.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyspark

from headrace.spark.start.java import java_home
from tests.java import QUICK_JAVA

SPARK_HOME = Path(pyspark.__file__).parent
WORKERS = 2
PATIENCE_SECONDS = 900.0
# What a job is given.
SETTINGS = {
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    # An executor that is killed on purpose is no reason to give up.
    "spark.deploy.maxExecutorRetries": "-1",
}
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"(Successfully registered with master)")
_EXECUTOR = b"CoarseGrainedExecutorBackend"


class StandaloneCluster:
    """Runs until it is closed; one core and 512 MB on each worker."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        arguments = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        master = self._start("master", "org.apache.spark.deploy.master.Master", *arguments)
        self.master = self._logged(master, _MASTER)
        arguments += ["--cores", "1", "--memory", "512m", "--work-dir"]
        for log in [
            self._start(
                name, "org.apache.spark.deploy.worker.Worker", *arguments, f"{directory}/{name}/work", self.master
            )
            for name in (f"worker-{number}" for number in range(WORKERS))
        ]:
            self._logged(log, _REGISTERED)

    def submit(
        self,
        job: Path,
        *arguments: str,
        here: Path,
        python: str,
        options: Mapping[str, str],
        variables: Mapping[str, str] | None = None,
    ) -> Job:
        """Start a job with spark-submit: its driver runs in a directory, with this Python, as its tasks do."""
        given = [part for name, value in options.items() for part in (f"--{name}", value)]
        settings = [part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}")]
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", self.master, *given, *settings]
        return Job(
            [*command, str(job), *arguments], here, {**environment(), "PYSPARK_PYTHON": python, **(variables or {})}
        )

    def executors(self) -> list[int]:
        """The processes of executors, those of the workers' jobs that run now."""
        return [pid for pid, command, _ in self._within_workers() if _EXECUTOR in command]

    def task_pythons(self) -> set[str]:
        """The interpreters that tasks run in, as their commands name them."""
        found = [command.split(b"\0")[0] for _, command, _ in self._within_workers() if b"pyspark.daemon" in command]
        return {each.decode() for each in found}

    def close(self) -> None:
        """End all of it."""
        for process in reversed(self._processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)
        # Each executor has unpacked what came with its job.
        shutil.rmtree(self._directory, ignore_errors=True)

    def _within_workers(self) -> Iterator[tuple[int, bytes, str]]:
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                place, command = os.readlink(entry / "cwd"), (entry / "cmdline").read_bytes()
            except OSError:
                # It has ended.
                continue
            if place.startswith(f"{self._directory}/worker-"):
                yield int(entry.name), command, place

    def _start(self, name: str, *command: str) -> Path:
        place = self._directory / name
        place.mkdir()
        log = place / "log"
        with open(log, "wb") as opened:
            process = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), *command],
                cwd=place,
                env={**environment(), "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA, "SPARK_DAEMON_MEMORY": "256m"},
                stdout=opened,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return log

    def _logged(self, log: Path, wanted: re.Pattern[str]) -> str:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := wanted.search(log.read_text(errors="replace"))) is None:
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-4000:]
            time.sleep(0.05)
        return found[1]


class Job:
    """A job that was submitted."""

    def __init__(self, command: Sequence[str], here: Path, variables: Mapping[str, str]) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command, cwd=here, env=variables, stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True
        )

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def finish(self) -> str:
        """What it printed, with its log, when it has ended well."""
        code = self._process.wait(PATIENCE_SECONDS)
        assert code == 0, self.output()[-6000:]
        return self.output()

    def output(self) -> str:
        """What it printed, with its log."""
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def close(self) -> None:
        """End it."""
        if self.is_running():
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(60)
        self._output.close()


def environment() -> dict[str, str]:
    """That of a machine which has Spark and a Java, and nothing of Headrace."""
    ours = ("HEADRACE_", "SPARK_", "PYSPARK_", "PYTHON", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {
        **kept,
        "PATH": os.defpath,
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
    }

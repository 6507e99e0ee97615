"""Runs Apache Kafka's programs, from the jars of `make kafka-jars`, each in a Java of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers.kafka_broker import JARS

PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Tools:
    """The programs, on the server at `bootstrap`; `directory` is theirs."""

    bootstrap: str
    directory: Path

    def run(self, program: str, *options: str, given: str = "", connects_by: str = "--bootstrap-server") -> str:
        """Run a program to its end, which must be good; what it printed."""
        named = [connects_by, self.bootstrap] if connects_by else []
        ended = subprocess.run(
            [*command(program), *named, *options],
            cwd=self.directory,
            input=given,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert not ended.returncode, f"{program} ended with {ended.returncode}:\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    @contextmanager
    def running(self, program: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """A program that runs until the block ends; it prints to the file `output`."""
        with self.output.open("wb") as output:
            process = subprocess.Popen(
                [*command(program), *options], cwd=self.directory, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)

    @property
    def output(self) -> Path:
        """What a running program has printed."""
        return self.directory / "output"


def command(program: str) -> list[str]:
    """How a program is started, by the name of its class."""
    return ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{JARS}/*", program]

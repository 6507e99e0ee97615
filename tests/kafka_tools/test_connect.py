"""Kafka Connect, standalone, with its file connectors: lines of one file through a topic into another file."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.kafka_tools.tools import PATIENCE_SECONDS, Tools

pytestmark = pytest.mark.kafka_tools

LINES = [f"line {number}" for number in range(500)]


def properties(path: Path, **settings: object) -> str:
    """A file of properties, whose names have dots for double underscores."""
    path.write_text("".join(f"{name.replace('__', '.')}={value}\n" for name, value in settings.items()))
    return str(path)


def test_file_connectors(tools: Tools) -> None:
    source, sink = tools.directory / "source.txt", tools.directory / "sink.txt"
    source.write_text("".join(f"{line}\n" for line in LINES))
    converter = "org.apache.kafka.connect.storage.StringConverter"
    worker = properties(
        tools.directory / "worker.properties",
        bootstrap__servers=tools.bootstrap,
        key__converter=converter,
        value__converter=converter,
        offset__storage__file__filename=tools.directory / "offsets",
        offset__flush__interval__ms=200,
        plugin__discovery="service_load",
        listeners="http://127.0.0.1:0",
    )
    reading = properties(
        tools.directory / "source.properties",
        name="file-source",
        connector__class="org.apache.kafka.connect.file.FileStreamSourceConnector",
        tasks__max=1,
        file=source,
        topic="connect-lines",
    )
    writing = properties(
        tools.directory / "sink.properties",
        name="file-sink",
        connector__class="org.apache.kafka.connect.file.FileStreamSinkConnector",
        tasks__max=1,
        file=sink,
        topics="connect-lines",
    )
    with tools.running("org.apache.kafka.connect.cli.ConnectStandalone", worker, reading, writing) as connect:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not sink.exists() or len(sink.read_text().splitlines()) < len(LINES):
            assert connect.poll() is None, f"Connect ended: {tools.output.read_text()}"
            assert time.monotonic() < deadline, f"the lines did not arrive: {tools.output.read_text()}"
            time.sleep(0.2)
    assert sink.read_text().splitlines() == LINES

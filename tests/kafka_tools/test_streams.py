"""Kafka Streams: it creates a repartition topic with configs of its own, and deletes what it has read of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka_tools.test_tools import created
from tests.kafka_tools.tools import Tools

pytestmark = pytest.mark.kafka_tools

PROGRAM = Path(__file__).parent / "streams" / "WordCount.java"


def test_words_are_counted(tools: Tools) -> None:
    topics = [created(tools, name, 2) for name in ("words-in", "words-out")]
    printed = tools.run(str(PROGRAM), tools.bootstrap, *topics, str(tools.directory), connects_by="")
    counts = {"alpha": 1000, "beta": 1000} | {f"word-{number}": 100 for number in range(10)}
    expected = ", ".join(f"{word}={counts[word]}" for word in sorted(counts))
    assert printed.splitlines()[-1] == f"{{{expected}}}"

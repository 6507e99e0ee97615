"""A process that is stopped for longer than its session, as by a pause of its machine, loses its partitions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client import connect
from tests.broker.background import PATIENCE_SECONDS, eventually
from tests.server_process import ROOT, ServerProcess

COUNT = 100


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(f"file:{tmp_path / 'store'}")
    yield process
    process.close()


def test_what_a_paused_member_dropped_is_delivered_again(server: ServerProcess) -> None:
    with connect(server.url) as client:
        client.create_topic("orders")
        with client.producer("orders") as producer:
            for number in range(COUNT):
                producer.send(b"%d" % number)
        command = [sys.executable, "-m", "tests.client.buffering_member", server.url, "orders", "billing", str(COUNT)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as member:
            try:
                assert member.stdout is not None
                assert member.stdout.readline() == "ready\n"
                os.kill(member.pid, signal.SIGSTOP)
                eventually(lambda: client.describe_group("orders", "billing").members == {})
                os.kill(member.pid, signal.SIGCONT)
                given, _ = member.communicate(timeout=PATIENCE_SECONDS)
            finally:
                member.kill()
        assert given.split() == [str(number) for number in range(COUNT)]
        assert client.committed("orders", "billing") == {0: COUNT}

"""Consumers of a load that leave one after the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.client import Client
from headrace.load.consumer import Consuming
from headrace.load.load import Job, Load
from headrace.load.producer import Producing

LOAD = Load(messages=1_000, value_bytes=30, keys=0, batch=100, partitions=2)


def test_a_member_that_stays_does_not_count_what_another_counted(headrace_client: Client, tmp_path: Path) -> None:
    headrace_client.create_topic("loaded", partitions=2)
    job = Job(load=LOAD, url="", topic="loaded", group="readers", counts_path=str(tmp_path / "counts.npy"))

    def counted(is_over: Callable[[Consuming], bool]) -> int:
        consuming = Consuming(headrace_client, job)
        for _ in consuming.run(lambda: is_over(consuming)):
            pass
        return int(consuming.summary()["arrived"])

    Producing(headrace_client, Job(load=LOAD, url="", topic="loaded", producer=0)).run(lambda sent: None)
    assert counted(lambda consuming: consuming.summary()["arrived"] >= LOAD.messages) == LOAD.messages
    polls = iter(range(3))
    assert counted(lambda consuming: next(polls, None) is None) == 0

"""What Headrace pays for many partitions and for members that wait: `python -m bench.kafka.cost`.

Costs are processor time of the server's process: what a busy machine changes least.
"""

from __future__ import annotations

import time

import confluent_kafka

from bench.kafka.clients import Contender, Work, consume, produce
from bench.report import Report

FEW, MANY = 8, 1000
MEMBERS = 100
IDLE_SECONDS = 30.0


def partitions(report: Report, contender: Contender, messages: int) -> None:
    """The same messages, with keys, through 8 partitions and through 1,000."""
    works: dict[str, list[Work]] = {"produce": [], "consume": []}
    for count in (FEW, MANY):
        topic = f"partitions-{count}"
        contender.create(topic, count)
        produce(contender, topic, messages // 10, is_keyed=True)
        works["produce"].append(produce(contender, topic, messages, is_keyed=True))
        works["consume"].append(consume(contender, topic, count, messages + messages // 10))
    for what, (few, many) in works.items():
        report.line(f"{what}: {MANY} partitions, cost of {FEW}", many.server_us / few.server_us, "times", most=1.5)
        report.note(f"server: {few.server_us:.2f} and {many.server_us:.2f} µs of a core for each message")


def idle_group(report: Report, contender: Contender) -> None:
    """A consumer group whose members wait for messages that do not come."""
    contender.create("idle", MEMBERS)
    settings = {"bootstrap.servers": contender.bootstrap, "group.id": "idle", "log_level": 0}
    members = [confluent_kafka.Consumer(settings) for _ in range(MEMBERS)]
    try:
        for member in members:
            member.subscribe(["idle"])
        # All of them are polled each time: a round ends when every member has joined again.
        while sum(_is_assigned(member) for member in members) < MEMBERS:
            pass
        # The round in which the last ones joined is over for all.
        deadline = time.monotonic() + 10.0
        while time.monotonic() < deadline:
            for member in members:
                member.poll(0.01)
        used, began = contender.processor_seconds(), time.perf_counter()
        while time.perf_counter() - began < IDLE_SECONDS:
            for member in members:
                member.poll(0.01)
        share = (contender.processor_seconds() - used) / (time.perf_counter() - began)
    finally:
        for member in members:
            member.close()
    report.line(f"an idle group of {MEMBERS} members", share * 100, "% of a core", most=2.0)


def _is_assigned(member: confluent_kafka.Consumer) -> bool:
    member.poll(0.01)
    return bool(member.assignment())

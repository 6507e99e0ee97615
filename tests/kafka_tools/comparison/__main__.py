"""`python -m tests.kafka_tools.comparison`: a table of what Headrace and Apache Kafka answer to the same requests.

Apache Kafka runs from the jars of `make kafka-jars`. Printed are the answers of both, whether they are equal, and for a
known difference the words of docs/kafka.md that name it. The exit code is 1 if there is a difference that the page does
not name, or a named one that is none any more.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from bench.peers import kafka_broker, processes
from tests.kafka_tools.comparison import administration, fetch, groups, offsets, produce
from tests.kafka_tools.comparison.side import PROBES, Probe, Side
from tests.ports import ReservedPort
from tests.server_process import ServerProcess

# Topics are made by probes only, and groups begin at once.
KAFKA = {"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0"}
HEADRACE = ("--set", "kafka.auto_create_topics=false", "--set", "kafka.rebalance_delay_seconds=0")
PAGE = Path(__file__).parents[3] / "docs" / "kafka.md"
AREAS = (produce, fetch, offsets, groups, administration)


def verdict(each: Probe, is_equal: bool, page: str) -> tuple[str, bool]:
    """What is printed of a probe, and whether that is as it should be."""
    if not each.differs:
        return ("equal", True) if is_equal else ("DIFFERENT, and not named", False)
    if is_equal:
        return "EQUAL, though named as different", False
    if each.differs not in page:
        return f"DIFFERENT, and docs/kafka.md does not say: {each.differs}", False
    return f"different: {each.differs}", True


def compare(kafka: Side, headrace: Side, only: str) -> int:
    """Print the table; how many probes are not as they should be."""
    page, found, wrong = " ".join(PAGE.read_text().split()), Counter[str](), 0
    for each in sorted(PROBES, key=lambda each: AREAS.index(sys.modules[each.run.__module__])):
        if only not in each.name:
            continue
        theirs, ours = each.answer(kafka), each.answer(headrace)
        told, is_right = verdict(each, theirs == ours, page)
        print(f"{each.name:<64} {told}", flush=True)
        print(f"    {theirs}" if theirs == ours else f"    Kafka     {theirs}\n    Headrace  {ours}", flush=True)
        found["equal" if theirs == ours else "different"] += 1
        wrong += not is_right
    print(f"\n{found['equal']} equal, {found['different']} different, {wrong} of them not as docs/kafka.md says")
    return wrong


def main() -> int:
    """Start both, ask both, stop both."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka_tools.comparison", description=__doc__)
    parser.add_argument("--only", default="", help="probes with this in their name")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-comparison-") as name, ReservedPort() as port:
        server = ServerProcess(f"file:{name}/store", "--kafka", f"127.0.0.1:{port.number}", *HEADRACE)
        try:
            broker = kafka_broker.started(Path(name), synced=False, more=KAFKA)
            return int(bool(compare(Side(broker.port), Side(port.number), given.only)))
        finally:
            server.close()
            processes.stop_all()


if __name__ == "__main__":
    sys.exit(main())

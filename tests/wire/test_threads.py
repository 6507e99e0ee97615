"""Many threads that are the first to decode a type: msgspec must have built it before, or the process crashes."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, threading
sys.setswitchinterval(1e-6)
import msgspec
from headrace.core.reports.descriptions import TopicDescription
from headrace.core.topics.settings import TopicSettings
from headrace.wire import operations as wire, tickets

answer = msgspec.json.encode(TopicDescription("a", 1, 1, TopicSettings(), 0, {0: (0, 0)}, 0, []))
ticket = tickets.encode(tickets.Read("a", 0, 0))
barrier = threading.Barrier(8)

def decode():
    barrier.wait()
    for _ in range(20):
        wire.decode_answer(wire.DescribeTopic("a"), answer)
        wire.decode_operation("create_topic", b'{"operation":"create_topic","topic":"a"}')
        tickets.decode_read(ticket)

threads = [threading.Thread(target=decode) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
"""


def test_threads_may_be_the_first_to_decode() -> None:
    for _ in range(3):
        assert subprocess.run([sys.executable, "-c", PROGRAM], check=False).returncode == 0

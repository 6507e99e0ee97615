"""A broker in the test's own process, behind the same client API: no server, no socket, no disk, no waiting.

def test_totals(headrace_client):           # the fixture comes with the package
    headrace_client.create_topic("orders")
    with headrace_client.producer("orders") as producer:
        producer.send(b"one loaf").result()
"""

from headrace.testing.embedded import embedded
from headrace.testing.transport import EmbeddedTransport

__all__ = ["EmbeddedTransport", "embedded"]

"""Test code that uses Headrace: the fixture `headrace_client` comes with the package and needs no server.

pytest examples/test_my_code.py
"""

from headrace import Client


def count_sales(client: Client) -> dict[bytes, int]:
    """The code under test."""
    totals: dict[bytes, int] = {}
    with client.consumer("sales", group="totals") as consumer:
        for message in consumer.messages(idle_seconds=1.0):
            totals[message.key or b"?"] = totals.get(message.key or b"?", 0) + int(message.value)
        consumer.commit()
    return totals


def test_sales_are_counted_once(headrace_client: Client) -> None:
    headrace_client.create_topic("sales", partitions=4)
    with headrace_client.producer("sales") as producer:
        for key, amount in [(b"loaf", 2), (b"roll", 5), (b"loaf", 1)]:
            producer.send(b"%d" % amount, key=key)
    assert count_sales(headrace_client) == {b"loaf": 3, b"roll": 5}
    assert count_sales(headrace_client) == {}

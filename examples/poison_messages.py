"""A message that cannot be read must not stop the others: it goes to a topic of its own, with the reason.

python examples/poison_messages.py headrace://127.0.0.1:7071
"""

import sys

import headrace
from headrace.errors import Undecodable


def main(url: str) -> None:
    with headrace.connect(url) as client:
        client.create_topic("payments")
        client.create_topic("payments-dead")
        with client.producer("payments") as producer:
            for value in (b'{"cents": 100}', b"cents: 200", b'{"cents": 300}'):
                producer.send(value)

        total, is_done = 0, False
        with (
            client.consumer("payments", group="ledger", serializer="json") as consumer,
            client.producer("payments-dead") as dead,
        ):
            while not is_done:
                try:
                    for message in consumer.messages(idle_seconds=5.0):
                        total += message.value["cents"]
                    is_done = True
                except Undecodable as error:
                    bad = client.read("payments", error.partition, error.offset, 1).to_pylist()[0]
                    dead.send(bad["value"], key=bad["key"], attributes={"reason": str(error).encode()}).result()
                    consumer.seek({error.partition: error.offset + 1})
                consumer.commit()
        print("total:", total)
        for message in client.table("payments-dead").to_pylist():
            print("dead:", message["value"].decode(), "because", dict(message["attributes"])["reason"].decode())


if __name__ == "__main__":
    main(sys.argv[1])

"""Do it again from a time on: after a bug was fixed, a group reads the messages since then once more.

python examples/reprocess.py headrace://127.0.0.1:7071
"""

import sys
from datetime import UTC, datetime

import headrace


def read_all(client: headrace.Client) -> list[str]:
    with client.consumer("events", group="report") as consumer:
        values = [message.value.decode() for message in consumer.messages(idle_seconds=5.0)]
        consumer.commit()
    return values


def main(url: str) -> None:
    with headrace.connect(url) as client:
        client.create_topic("events")
        with client.producer("events") as producer:
            producer.send(b"before").result()
            since = datetime.now(UTC)  # the deploy with the bug; a time needs a zone
            producer.send(b"after").result()
        print("first:", read_all(client))
        client.seek("events", "report", since)  # also: headrace group seek events report 2026-07-01T12:00Z
        print("again:", read_all(client))
        print("without a group:", client.to_arrow("events", start=since)["value"].to_pylist())


if __name__ == "__main__":
    main(sys.argv[1])

"""Follow a topic without a group: first what it holds, then each message as it arrives.

python examples/follow.py headrace://127.0.0.1:7071 5
"""

import sys

import headrace


def main(url: str, count: int) -> None:
    with headrace.connect(url) as client, client.consumer("orders", start="earliest") as consumer:
        for number, message in enumerate(consumer, 1):
            print(message.partition, message.offset, message.timestamp.isoformat(), message.value)
            if number == count:
                break


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

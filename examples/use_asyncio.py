"""The same from asyncio: sends that are awaited together share their batches.

python examples/use_asyncio.py headrace://127.0.0.1:7071
"""

import asyncio
import sys

import headrace.aio


async def main(url: str) -> None:
    async with headrace.aio.connect(url) as client:
        await client.create_topic("visits")
        async with client.producer("visits") as producer:
            receipts = await asyncio.gather(*(producer.send(b"page %d" % number) for number in range(100)))
        print("the last is at", receipts[-1])
        async with client.consumer("visits", group="counters") as consumer:
            seen = 0
            async for message in consumer:
                seen += 1
                if seen == len(receipts):
                    print("the last read is", message.value)
                    break
            await consumer.commit()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

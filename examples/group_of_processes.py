"""Three processes share a group, and one is killed: the others take over its partitions, and no message is lost.

python examples/group_of_processes.py headrace://127.0.0.1:7071
"""

import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import headrace

ORDERS = 3_000


def work(url: str, done: Path) -> None:
    """A worker: write down what was processed, then commit. What it did not commit, another one gets."""
    with (
        headrace.connect(url) as client,
        client.consumer("jobs", group="workers", session_timeout_seconds=2.0) as consumer,
        done.open("a") as output,
    ):
        while True:
            for row in consumer.poll(max_messages=100, timeout=0.5).to_pylist():
                print(row["value"].decode(), file=output, flush=True)
            consumer.commit()


def main(url: str) -> None:
    with headrace.connect(url) as client, TemporaryDirectory() as directory:
        client.create_topic("jobs", partitions=6)
        files = [Path(directory) / f"worker-{number}" for number in range(3)]
        workers = [subprocess.Popen([sys.executable, __file__, url, str(file)]) for file in files]
        with client.producer("jobs") as producer:
            for number in range(ORDERS):
                producer.send(b"%d" % number, key=b"user-%d" % number)
                if number == ORDERS // 2:
                    producer.flush()
                    workers[0].kill()  # as a crash would
        while len(set(done := [line for file in files if file.exists() for line in file.read_text().split()])) < ORDERS:
            time.sleep(0.1)
        for worker in workers:
            worker.kill()
            worker.wait()
        print(len(set(done)), "jobs done,", len(done) - len(set(done)), "of them twice")


if __name__ == "__main__":
    main(sys.argv[1]) if len(sys.argv) == 2 else work(sys.argv[1], Path(sys.argv[2]))

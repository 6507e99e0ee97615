"""The first message of a process pays for nothing that it does not need: neither side imports pandas for it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.server_process import ServerProcess

PROGRAM = """
import sys
from headrace import connect
with connect(sys.argv[1]) as client:
    client.create_topic("orders", partitions=2)
    with client.producer("orders", producer_id="till-7") as producer:
        assert producer.send(b"value", key=b"key", attributes={"kind": b"sale"}).result().status == "written"
        assert producer.send(None, partition=1).result().status == "written"
    with client.consumer("orders", group="billing") as consumer:
        for _, message in zip(range(2), consumer):
            print(message.value, message.attributes)
        consumer.commit()
    assert sum(client.committed("orders", "billing").values()) == 2
sys.exit("pandas" in sys.modules)
"""


def test_neither_client_nor_server_imports_pandas(tmp_path: Path) -> None:
    assert find_spec("pandas") is not None, "pandas is installed here, or this shows nothing"
    # With a variable of its own it is a program of its own, in which nothing is imported before.
    server = ServerProcess(f"file:{tmp_path}/store", variables={"PYTHONDONTWRITEBYTECODE": "1"})
    try:
        program = [sys.executable, "-c", PROGRAM, server.url]
        done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        assert "pandas" not in Path(f"/proc/{server.pid}/maps").read_text()
    finally:
        server.close()

"""`python -m tests.protocols.cursus.own_tests PYTHON CHECKOUT`: the own tests of cursus' Python client, unmodified.

CHECKOUT is one of the client's repository, PYTHON an interpreter that has it installed, with pytest and pytest-asyncio.
They run against a real `headrace serve --cursus` on disk, and so do those of its examples that come to an end. The exit
code is not 0 if one fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.ports import ReservedPort
from tests.server_process import ServerProcess

# Where the examples look for a server.
_EXAMPLES_ADDRESS: Final = "localhost:9000"
_EXAMPLES: Final = ("simple_producer.py", "batch_producer.py", "keyed_producer.py", "event_sourcing.py")
_SECONDS_MAX: Final = 300.0


def main(python: str, checkout: Path) -> int:
    """Run all; how many runs failed."""
    with tempfile.TemporaryDirectory(prefix="headrace-cursus-") as directory, ReservedPort() as port:
        address = f"127.0.0.1:{port.number}"
        server = ServerProcess(f"file:{directory}/store", "--cursus", address)
        try:
            suite = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
            runs = [suite, *([python, "-c", example(checkout, name, address)] for name in _EXAMPLES)]
            variables = os.environ | {"CURSUS_TEST_BROKER_ADDR": address}
            return sum(
                subprocess.run(run, cwd=checkout, env=variables, timeout=_SECONDS_MAX, check=False).returncode != 0
                for run in runs
            )
        finally:
            server.close()


def example(checkout: Path, name: str, address: str) -> str:
    """The program of an example, with only the address changed."""
    text = (checkout / "examples" / "standalone" / name).read_text()
    assert _EXAMPLES_ADDRESS in text, f"{name} names no server"
    return text.replace(_EXAMPLES_ADDRESS, address)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))

"""How long commands take to start: user CPU time, the least of several runs, and the modules that cost most.

    python -m bench.startup            prints the table; --runs N, --modules shows what is imported

Wall time on a busy machine says little, so CPU time is compared with the targets. A server is started for `topic list`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# What is run, and the target in milliseconds on a quiet machine.
_CASES = {
    "python -c pass": (["-c", "pass"], None),
    "import headrace": (["-c", "import headrace"], 250),
    "import headrace.client": (["-c", "import headrace.client"], None),
    "headrace --help": (["-m", "headrace", "--help"], 150),
    "headrace topic create --help": (["-m", "headrace", "topic", "create", "--help"], None),
    "headrace topic list --json": (["-m", "headrace", "topic", "list", "--json"], 300),
}
_PORTS = ("--http", "127.0.0.1:0", "--flight", "127.0.0.1:0")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--modules", action="store_true", help="print the most expensive imports of topic list")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        server = subprocess.Popen(
            [sys.executable, "-m", "headrace", "serve", f"--store=file:{directory}/store", *_PORTS],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert server.stdout is not None
            found = re.search(r"headrace://\S+", server.stdout.readline())
            assert found is not None, "the server did not start"
            environment = {**os.environ, "HEADRACE_URL": found[0], "XDG_CONFIG_HOME": directory}
            # As installed: modules are compiled once, which the first of the runs does here.
            environment |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{directory}/compiled"}
            print(f"{'':<32} {'CPU ms':>8} {'target':>8}   least of {arguments.runs} runs")
            for name, (command, target) in _CASES.items():
                cpu = min(_cpu_seconds(command, environment) for _ in range(arguments.runs))
                print(f"{name:<32} {cpu * 1e3:>8.0f} {target or '':>8}")
            if arguments.modules:
                _print_modules(environment, Path(directory))
        finally:
            server.terminate()
            server.wait()


def _cpu_seconds(command: list[str], environment: dict[str, str]) -> float:
    process = subprocess.Popen([sys.executable, *command], env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return used.ru_utime + used.ru_stime


def _print_modules(environment: dict[str, str], directory: Path) -> None:
    command = [sys.executable, "-X", "importtime", *_CASES["headrace topic list --json"][0]]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=directory)
    rows = [line.removeprefix("import time:").split("|") for line in ended.stderr.splitlines() if "|" in line][1:]
    for own, total, name in sorted(rows, key=lambda row: -int(row[0]))[:20]:
        print(f"{int(own) / 1e3:>8.1f} ms  {int(total) / 1e3:>8.1f} ms with its imports  {name.strip()}")


if __name__ == "__main__":
    main()

"""What Ctrl-C does while a pipeline starts, and what of Spark's output is left out. tests/pipeline runs whole ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from headrace.cli.spark_interrupts import NoiseFilter
from tests.cli.processes import PATIENCE_SECONDS

HARMLESS = b"""Traceback (most recent call last):
  File "/x/pyspark/daemon.py", line 190, in manager
    code = worker(sock)
BrokenPipeError: [Errno 32] Broken pipe
"""
SERIOUS = HARMLESS.replace(b"BrokenPipeError: [Errno 32] Broken pipe", b"ValueError: no")
OF_OTHERS = HARMLESS.replace(b"pyspark", b"mine")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"one\n" + HARMLESS + b"two\n", b"one\ntwo\n"),
        (HARMLESS + HARMLESS, b""),
        (b"one\n" + SERIOUS + b"two\n", b"one\n" + SERIOUS + b"two\n"),
        (OF_OTHERS, OF_OTHERS),
        # Cut off before its end.
        (HARMLESS[:60], HARMLESS[:60]),
        (HARMLESS[:36] + SERIOUS, HARMLESS[:36] + SERIOUS),
    ],
)
def test_only_harmless_tracebacks_of_spark_are_left_out(text: bytes, expected: bytes) -> None:
    filter = NoiseFilter()
    printed = b"".join(filter.passed(line) for line in text.splitlines(keepends=True)) + filter.rest()
    assert printed == expected


PROGRAM = """
import sys, time
from headrace.cli.spark_interrupts import Interrupts, filtered_stderr

def stop():
    print("stopping", flush=True)

interrupts = Interrupts(stop if sys.argv[1] == "stream" else None)
interrupts.arm(is_running=sys.argv[2] == "running")
with filtered_stderr():
    import subprocess
    subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write('from a child\\\\n')"])
try:
    print("ready", flush=True)
    while not interrupts.was_asked:
        time.sleep(0.01)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(130)
if sys.argv[3] == "hangs":
    time.sleep(3600)
"""


def ended(kind: str, phase: str, end: str, *numbers: signal.Signals) -> tuple[int, str, str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, kind, phase, end], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    # Passed on by a thread, which drops what it has not passed on when the signal comes.
    assert process.stderr is not None
    passed_on = process.stderr.readline()
    os.kill(process.pid, numbers[0])
    said = ""
    for number in numbers[1:]:
        said += process.stdout.readline()
        os.kill(process.pid, number)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, said + out, passed_on + err


def test_a_stream_is_asked_to_stop_and_a_batch_is_interrupted() -> None:
    assert ended("stream", "running", "", signal.SIGINT) == (0, "stopping\n", "from a child\n")
    assert ended("batch", "running", "", signal.SIGTERM) == (130, "interrupted\n", "from a child\n")


def test_what_is_starting_or_hangs_ends_at_once() -> None:
    assert ended("stream", "starting", "", signal.SIGINT) == (130, "", "from a child\n")
    assert ended("batch", "starting", "", signal.SIGTERM) == (143, "", "from a child\n")
    assert ended("stream", "running", "hangs", signal.SIGINT, signal.SIGINT)[:2] == (130, "stopping\n")

"""A backup taken under load, restored and compared with the history so far."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from headrace.client import connect
from headrace.core.errors import OffsetOutOfRange
from headrace.verify.history.events import PublishEnded
from headrace.verify.history.file import read_history
from headrace.verify.history.index import HistoryIndex
from headrace.verify.publishers import message_id
from headrace.verify.run import VerifyRun
from tests.campaign.servers import CampaignFailed, CampaignServer


def check_backup(run: VerifyRun, store: Path, target: Path, directory: Path) -> int:
    """Back a store up beside its server, start a server on the copy, and look for what was acknowledged before.

    How many such messages are in it; the others were dropped by retention. Raises `CampaignFailed` if one is missing.
    """
    began_ns = time.monotonic_ns()
    command = [sys.executable, "-m", "headrace", "backup", str(target), "--store", f"file:{store}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        if ended.returncode:
            raise CampaignFailed(f"the backup ended with {ended.returncode}: {ended.stdout}{ended.stderr}")
        server = CampaignServer("restored", f"file:{target}", directory)
        try:
            server.start()
            found = _compare(run, server.url, _acknowledged(run.history, began_ns))
            server.end(signal.SIGTERM)
        finally:
            server.close()
        return found
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _acknowledged(history: Path, before_ns: int) -> dict[tuple[int, int], str]:
    """Places and ids of the messages that were acknowledged before a time."""
    index = HistoryIndex()
    for event in read_history(history):
        if not isinstance(event, PublishEnded) or event.at_ns < before_ns:
            index.add(event)
    acknowledged: dict[tuple[int, int], str] = {}
    for call in index.publishes.values():
        result = index.results.get(call.number)
        if result is not None and result.outcome == "ok" and result.places:
            acknowledged |= {
                place: message for place, message in zip(result.places, call.messages, strict=True) if place is not None
            }
    return acknowledged


def _compare(run: VerifyRun, url: str, acknowledged: dict[tuple[int, int], str]) -> int:
    copied: dict[tuple[int, int], str] = {}
    with connect(url, timeout_seconds=30) as client:
        offsets = client.offsets(run.topic)
        for partition, (start, end) in offsets.items():
            position = start
            while position < end:
                try:
                    batch = client.read(run.topic, partition, position, 5_000)
                except OffsetOutOfRange as error:
                    # Retention runs on the copy, too.
                    position = max(error.start, position + 1)
                    offsets[partition] = (position, end)
                    continue
                if not batch.num_rows:
                    raise CampaignFailed(f"backup: partition {partition} cannot be read at {position}, end is {end}")
                for offset, value in zip(
                    batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True
                ):
                    copied[partition, offset] = message_id(value)
                    position = offset + 1
        for group in client.list_groups(run.topic):
            for partition, offset in client.committed(run.topic, group).items():
                if offset > offsets[partition][1]:
                    raise CampaignFailed(f"backup: {group} is at {offset} of {offsets[partition]} of {partition}")
    missing = {
        place: message
        for place, message in acknowledged.items()
        if place[1] >= offsets[place[0]][0] and copied.get(place) != message
    }
    if missing:
        raise CampaignFailed(
            f"backup: {len(missing)} acknowledged messages are missing, such as {min(missing.items())}"
        )
    return len(acknowledged.keys() & copied.keys())

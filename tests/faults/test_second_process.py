"""A second process comes to a directory that is in use, and takes it over once the first is killed."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from headrace.broker import Broker
from headrace.core.errors import StoreUnavailable
from headrace.storage.disk.engine import DiskStore
from tests.faults.invariants import TINY, Ledger, Message, batch_of, opened, verify

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([DiskStore.__module__])


def hold(directory: Path, parent: Connection) -> None:
    """Open a store, publish, and wait to be killed."""
    broker = Broker(DiskStore(directory, TINY))
    broker.create_topic("t", 1)
    broker.publish("t", batch_of([Message(b"held")]))
    parent.send(os.getpid())
    parent.recv()


def test_a_second_process_learns_who_holds_the_store_and_opens_it_after_its_death(tmp_path: Path) -> None:
    ours, theirs = CONTEXT.Pipe()
    holder = CONTEXT.Process(target=hold, args=(tmp_path / "store", theirs))
    holder.start()
    assert ours.recv() == holder.pid
    before = {path: path.read_bytes() for path in (tmp_path / "store" / "topics").glob("*/*")}
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match=f"process {holder.pid} has it open") as caught:
            DiskStore(tmp_path / "store", TINY)
        assert caught.value.retry
    assert {path: path.read_bytes() for path in (tmp_path / "store" / "topics").glob("*/*")} == before
    holder.kill()
    holder.join()
    ledger = Ledger(topics={"t": 1})
    with opened(tmp_path / "store") as broker:
        assert broker.fetch("t", 0, 0).column("value").to_pylist() == [b"held"]
        ledger.publish(broker, "t", [Message(b"ours")])
        broker.delete_topic("t")
        ledger.forget("t")
    verify(tmp_path / "store", ledger)


def test_one_process_does_not_open_a_store_twice(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as broker:
        broker.create_topic("t", 1)
        with pytest.raises(StoreUnavailable, match=f"process {os.getpid()} has it open"):
            DiskStore(tmp_path / "store", TINY)
        # The one that was refused has not let go of the lock.
        with pytest.raises(StoreUnavailable):
            DiskStore(tmp_path / "store", TINY)
        broker.publish("t", batch_of([Message(b"still ours")]))
    with opened(tmp_path / "store") as broker:
        assert broker.offsets("t") == {0: (0, 1)}

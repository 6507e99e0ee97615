"""The contract, on every engine there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer
from tests.storage.builders import DiskPlace, MemoryPlace, Place, PostgresPlace
from tests.storage.contract import EngineContract, LogContract, RetentionContract
from tests.storage.store_commit_contract import StoreCommitContract


class TestMemory(EngineContract, StoreCommitContract):
    @pytest.fixture
    def place(self) -> Iterator[Place]:
        place = MemoryPlace()
        yield place
        place.close()


class TestDisk(EngineContract, StoreCommitContract):
    """Reopened after it was closed."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Iterator[Place]:
        place = DiskPlace(tmp_path / "store")
        yield place
        place.close()


class TestDiskKilled(EngineContract, StoreCommitContract):
    """Reopened as if the process had been killed: nothing was sealed and no snapshot written at the end."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Iterator[Place]:
        place = DiskPlace(tmp_path / "store", killed=True)
        yield place
        place.close()


class TestDiskInOneSegment(LogContract, StoreCommitContract):
    """Without rolling, and without a sync before each answer."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Iterator[Place]:
        place = DiskPlace(tmp_path / "store", options="durability=os")
        yield place
        place.close()


class TestPostgres(EngineContract, StoreCommitContract):
    """Closed and opened again, in segments of three commits."""

    @pytest.fixture
    def place(self, postgres: PostgresServer) -> Iterator[Place]:
        place = PostgresPlace(postgres.fresh_url("segment_commits=3"))
        yield place
        place.close()


class TestPostgresShared(LogContract, RetentionContract):
    """Taken over by another server while the one before it is still there."""

    @pytest.fixture
    def place(self, postgres: PostgresServer) -> Iterator[Place]:
        place = PostgresPlace(postgres.fresh_url("segment_commits=3"), shared=True)
        yield place
        place.close()

"""The archive on an object store: what fails leaves nothing behind that counts, and nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.storage.archive.files import open_files
from headrace.storage.archive.parquet import ParquetFile
from tests.storage.archive.builders import ArchivedTopic, doctor
from tests.storage.archive.object_store import ObjectStore, Request
from tests.storage.builders import NOW_US, Place, batch_of


@pytest.fixture(scope="module")
def objects() -> Iterator[ObjectStore]:
    with ObjectStore() as store:
        yield store


def fill(topic: ArchivedTopic, first: int, count: int = 6) -> None:
    rows = [{"value": b"v%d" % number, "partition": number % 2} for number in range(first, first + count)]
    topic.publish(batch_of(rows), now_us=NOW_US + first)


def names(topic: ArchivedTopic) -> list[str]:
    archiver = topic.archiver()
    return topic.files.list(f"{archiver.store_id}/topic-{topic.record.id}")


def test_a_topic_lives_on_an_object_store(memory: Place, tmp_path: Path, objects: ObjectStore) -> None:
    files = open_files(objects.url)
    topic = ArchivedTopic(memory, tmp_path, files=files)
    assert names(topic) == []
    for step in range(4):
        fill(topic, 6 * step)
        topic.archive()
    before = topic.rows()
    assert topic.archiver().merge(topic.record, topic.tiered(), 0, lambda: NOW_US) is not None
    assert len(names(topic)) == 5
    topic.archiver().sweep(topic.record, NOW_US + 1)
    assert len(names(topic)) == 1
    topic.drop_local()
    assert topic.rows() == before == topic.table() and len(before) == 24
    assert doctor(topic) == []
    files.remove("nothing/there.parquet")
    with pytest.raises(FileNotFoundError):
        files.size("nothing/there.parquet")
    with pytest.raises(FileNotFoundError):
        ParquetFile(files, "nothing/there.parquet")


@pytest.mark.parametrize(
    ("fault", "which"),
    [
        ("lost", "completes_upload"),
        ("slow", "sends_data"),
        # The library waits longer and longer before it gives up.
        pytest.param("500", "completes_upload", marks=pytest.mark.campaign),
        pytest.param("500", "sends_data", marks=pytest.mark.campaign),
        pytest.param("lost", "sends_data", marks=pytest.mark.campaign),
    ],
)
def test_failing_uploads_lose_and_double_nothing(
    fault: str, which: str, memory: Place, tmp_path: Path, objects: ObjectStore
) -> None:
    topic = ArchivedTopic(memory, tmp_path, files=open_files(objects.url))
    fill(topic, 0)
    topic.archive()

    def fail(request: Request) -> str | None:
        # Often enough that the library gives up.
        return fault if getattr(request, which) and len(objects.hits) < 20 else None

    fill(topic, 6)
    with objects.faulty(fail):
        try:
            topic.archive()
        except OSError:
            assert fault != "slow"
        assert objects.hits
    fill(topic, 12)
    topic.archive()
    topic.archiver().sweep(topic.record, NOW_US + 1)
    topic.drop_local()
    assert topic.table() == topic.rows()
    assert [row["offset"] for row in topic.rows()] == [*range(9), *range(9)]
    assert doctor(topic) == []


def test_an_upload_that_is_shorter_than_what_was_written_does_not_count(
    memory: Place, tmp_path: Path, objects: ObjectStore
) -> None:
    files = open_files(objects.url)
    files.size = lambda path: 1  # type: ignore[method-assign]
    topic = ArchivedTopic(memory, tmp_path, files=files)
    fill(topic, 0)
    with pytest.raises(OSError, match="has 1 bytes after writing"):
        topic.archive()
    assert names(topic) == [] and topic.table() == []


@pytest.mark.campaign
def test_a_store_that_does_not_answer_fails_reads_and_hides_no_message(
    memory: Place, tmp_path: Path, objects: ObjectStore
) -> None:
    topic = ArchivedTopic(memory, tmp_path, files=open_files(objects.url))
    fill(topic, 0)
    topic.archive()
    topic.drop_local()
    with objects.faulty(lambda request: "500"), pytest.raises(OSError, match="500"):
        topic.tiered().read(0, 0, 1, 1)
    assert len(topic.rows()) == 6

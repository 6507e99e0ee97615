"""Where an archive may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.core.errors import InvalidInput
from headrace.core.topics.settings import DEFAULT_SETTINGS
from headrace.storage.archive.archives import Archives
from headrace.storage.archive.files import DirectoryFiles, ObjectFiles, open_files
from tests.storage.builders import Place


def test_a_directory_may_be_given_as_path_or_url(tmp_path: Path) -> None:
    for url in (str(tmp_path), tmp_path.as_uri(), f"file:{tmp_path}"):
        files = open_files(url)
        assert isinstance(files, DirectoryFiles) and files.url == tmp_path.as_uri()
    assert open_files("here").url == (Path.cwd() / "here").as_uri()


def test_what_was_written_is_there_only_when_it_is_complete(tmp_path: Path) -> None:
    files = open_files(str(tmp_path))
    with files.writing("a/b") as sink:
        sink.write(b"hello ")
        sink.flush()
        sink.write(memoryview(b"world"))
        sink.close()
        assert files.list("a") == ["b.tmp"]
    assert (sink.bytes, sink.checksum) == (11, "crc32c:c9945516".replace("c9945516", sink.checksum[7:]))
    assert files.open("a/b").read() == b"hello world" and files.size("a/b") == 11
    with pytest.raises(ZeroDivisionError), files.writing("a/c") as sink:
        raise ZeroDivisionError
    assert files.list("a") == ["b"] and files.list("nothing") == []
    files.remove("a/b")
    files.remove("a/b")


@pytest.mark.parametrize(
    "url", ["", "s3://key:secret@bucket/x", "s3://key@bucket", "file://host/x", "file:", "gopher://x/y", "a\0b"]
)
def test_bad_urls_are_refused_without_their_secrets(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        open_files(url)
    assert refused.value.field == "archive.url" and "secret" not in str(refused.value)


def test_an_object_store_is_not_asked_before_it_is_used() -> None:
    url = "s3://bucket/prefix?region=us-east-1&endpoint_override=127.0.0.1%3A1&scheme=http"
    files = open_files(url)
    assert isinstance(files, ObjectFiles) and files.url == url


def test_topics_are_not_archived_without_an_archive(memory: Place, tmp_path: Path) -> None:
    archived = DEFAULT_SETTINGS.change(archive="on")
    nowhere = Archives(memory.store.catalog, False, None, 0)
    assert nowhere.url is None
    nowhere.check(DEFAULT_SETTINGS)
    nowhere.check(archived, archived)
    with pytest.raises(InvalidInput, match=r"set archive\.url"):
        nowhere.check(archived)
    somewhere = Archives(memory.store.catalog, False, open_files(str(tmp_path)), 0)
    somewhere.check(archived)
    assert somewhere.url == tmp_path.as_uri()

"""The files of a checkpoint: of a local directory, or of an object store through Spark's own file system.

`HadoopFiles` calls Hadoop's FileSystem in the Java of the driver, so addresses, credentials and packages are those of
Spark's settings. Spark Connect has no such Java, and is refused. An object is written whole or not at all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from headrace.core.errors import InvalidInput, StoreUnavailable
from headrace.spark.file_systems import missing_file_system
from headrace.spark.pipeline.run.lock import unusable

_FIELD: Final = "run.checkpoint"
_NOT_FOUND: Final = "java.io.FileNotFoundException"
# Hadoop 3.4.2 and later: a PUT with If-None-Match, decided by the store when the object is complete.
_IF_ABSENT: Final = "fs.option.create.conditional.overwrite"
# Exceptions of S3A and Java that a retry does not help against.
_PERMANENT: Final = re.compile("AccessDenied|UnknownStore|BadRequest|Redirect|Auth|Credential|IllegalArg|Unsupported")


class CheckpointFiles(Protocol):
    """Files by their path below the checkpoint."""

    place: str

    def read(self, name: str) -> bytes | None:
        """The content; None if the file does not exist."""

    def exists(self, name: str) -> bool:
        """Whether a file or a directory exists."""

    def create(self, name: str, content: bytes) -> bool:
        """Write a file as a whole unless another run has created it; whether it is ours."""

    def replace(self, name: str, content: bytes) -> None:
        """Write a file as a whole."""


class LocalFiles:
    """On this machine or a mounted file system."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory).absolute()
        self.place = str(self._directory)

    def read(self, name: str) -> bytes | None:
        """The content; None if the file does not exist."""
        try:
            return (self._directory / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidInput(_FIELD, self.place, unusable(error)) from None

    def exists(self, name: str) -> bool:
        """Whether a file or a directory exists."""
        return (self._directory / name).exists()

    def create(self, name: str, content: bytes) -> bool:
        """Write a file as a whole; the lock excludes other runs."""
        self.replace(name, content)
        return True

    def replace(self, name: str, content: bytes) -> None:
        """Write a file as a whole."""
        self._directory.mkdir(parents=True, exist_ok=True)
        beside = self._directory / f"{name}.new"
        beside.write_bytes(content)
        os.replace(beside, self._directory / name)


class HadoopFiles:
    """On an object store."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self.place = url.rstrip("/")
        java = getattr(spark, "_jvm", None)
        if java is None:
            rule = "Spark Connect cannot be asked for its files: use a directory, or a master other than Spark Connect"
            raise InvalidInput(_FIELD, url[:200], rule)
        self._java: Any = java
        with self._errors():
            self._configuration = spark._jsparkSession.sessionState().newHadoopConf()
            self._system = self._path("").getFileSystem(self._configuration)

    def read(self, name: str) -> bytes | None:
        """The content; None if the object does not exist."""
        with self._errors():
            try:
                stream = self._system.open(self._path(name))
            except Py4JJavaError as error:
                if _class_of(error) == _NOT_FOUND:
                    return None
                raise
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def exists(self, name: str) -> bool:
        """Whether an object or a directory of objects exists."""
        with self._errors():
            return bool(self._system.exists(self._path(name)))

    def replace(self, name: str, content: bytes) -> None:
        """Write an object."""
        with self._errors():
            self._write(self._system.create(self._path(name), True), content)

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless it exists; whether it is ours now, also if the store's answer was lost."""
        with self._errors():
            builder = self._system.createFile(self._path(name)).must(_IF_ABSENT, True)
            try:
                self._write(builder.build(), content)
            except Py4JJavaError:
                found = self.read(name)
                if found is None:
                    raise
                return found == content
        return True

    def list(self, name: str) -> list[str]:
        """The names in a directory; none if it does not exist."""
        with self._errors():
            try:
                return [status.getPath().getName() for status in self._system.listStatus(self._path(name))]
            except Py4JJavaError as error:
                if _class_of(error) == _NOT_FOUND:
                    return []
                raise

    def copy(self, name: str, other: str) -> None:
        """Copy a file, or a directory with all that is in it."""
        source, target = self._path(name), self._path(other)
        with self._errors():
            utility = self._java.org.apache.hadoop.fs.FileUtil
            utility.copy(self._system, source, self._system, target, False, True, self._configuration)

    def delete(self, name: str) -> None:
        """Delete a file, or a directory with all that is in it."""
        with self._errors():
            self._system.delete(self._path(name), True)

    def _path(self, name: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(f"{self.place}/{name}" if name else self.place)

    def _write(self, stream: Any, content: bytes) -> None:
        stream.write(content)
        # The object appears now. After a failed write it must not.
        stream.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What Java says, as an error about the checkpoint."""
        try:
            yield
        except Py4JJavaError as error:
            missing = missing_file_system(_FIELD, self.place, error)
            if missing is not None:
                raise missing from None
            told = str(error.java_exception.toString()).splitlines()[0][:300]
            if _PERMANENT.search(_class_of(error)):
                raise InvalidInput(_FIELD, self.place, f"Spark's file system cannot use it: {told}") from None
            raise StoreUnavailable(self.place, told) from None
        except (Py4JError, OSError) as error:
            raise StoreUnavailable(self.place, f"Spark's Java does not answer: {error}"[:300]) from None


def _class_of(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getName())

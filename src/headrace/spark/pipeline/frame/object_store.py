"""How a table on S3 is reached: by the settings of Spark's own file system for S3, so that they are given once.

A table's log is read and written by `deltalake`, its files are written by Arrow in the tasks. Neither uses Java, so
Spark needs no package to write there. What Spark's settings leave open comes from the environment, of the driver and of
each executor: `AWS_ACCESS_KEY_ID`, `AWS_REGION` and the like.

Buckets are part of the path of requests, which every store understands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pyarrow import fs

from headrace.core.errors import InvalidInput, StoreUnavailable
from headrace.spark.pipeline.definition.paths import is_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AMAZON: Final = "s3.amazonaws.com"
_REGION_DEFAULT: Final = "us-east-1"
# A store that answers with errors for some seconds must not end a stream.
_ATTEMPTS_MAX: Final = 10
_PATIENT: Final = {"timeout": "120s"}
_QUICK: Final = {"max_retries": "3", "retry_timeout": "20s", "connect_timeout": "5s", "timeout": "30s"}
# Colours and marks of the lines in which `deltalake` tells an error, outermost first.
_DECORATION: Final = re.compile("\x1b\\[[0-9;]*m|↳")
# What a store says about a request that will not become right.
_PERMANENT: Final = re.compile(
    r"\b(400|401|403|404) |AccessDenied|NoSuchBucket|InvalidAccessKeyId|SignatureDoesNotMatch"
)


@dataclass(frozen=True)
class ObjectStore:
    """Address and credentials of a bucket; None is what the environment says."""

    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    def delta_options(self, is_quick: bool = False) -> dict[str, str]:
        """The options of `deltalake`; is_quick: give up after a few seconds, to check settings."""
        options = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": self.region,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_SESSION_TOKEN": self.session_token,
            "AWS_ALLOW_HTTP": "true",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
        }
        given = {name: value for name, value in options.items() if value is not None}
        return given | (_QUICK if is_quick else _PATIENT)

    def files(self) -> fs.FileSystem:
        """The file system of Arrow; paths begin with the bucket."""
        parts = urlsplit(self.endpoint or "")
        return fs.S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            session_token=self.session_token,
            region=self.region,
            scheme=parts.scheme or None,
            endpoint_override=parts.netloc or None,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS_MAX),
        )


def object_store(spark: SparkSession, url: str) -> ObjectStore | None:
    """The store of a table by the settings of a session; None for a directory of this machine."""
    if not is_url(url):
        return None
    bucket, setting = urlsplit(url).netloc, _settings(spark)

    def of_bucket(name: str) -> str | None:
        return setting(f"fs.s3a.bucket.{bucket}.{name}") or setting(f"fs.s3a.{name}") or None

    endpoint = of_bucket("endpoint")
    if endpoint == _AMAZON:
        endpoint = None
    if endpoint is not None and "://" not in endpoint:
        is_plain = (of_bucket("connection.ssl.enabled") or "true").lower() == "false"
        endpoint = f"{'http' if is_plain else 'https'}://{endpoint}"
    # A store that is not Amazon's ignores the region, but requests are signed with one.
    from_environment = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    region = of_bucket("endpoint.region") or from_environment or (_REGION_DEFAULT if endpoint else None)
    return ObjectStore(endpoint, region, of_bucket("access.key"), of_bucket("secret.key"), of_bucket("session.token"))


def _settings(spark: SparkSession) -> Callable[[str], str | None]:
    """Where a setting of Hadoop is found: in those of the session, then in those of its Java, if it can be asked."""
    java: Any = getattr(spark, "_jsparkSession", None)
    hadoop = None if java is None else java.sessionState().newHadoopConf()

    def setting(name: str) -> str | None:
        for key in (f"spark.hadoop.{name}", name):
            value = spark.conf.get(key, None)
            if value is not None:
                return value
        return None if hadoop is None else hadoop.get(name)

    return setting


@contextmanager
def store_errors(place: str, url: str) -> Iterator[None]:
    """Errors of a table on an object store, with the key of the file and the settings that may be wrong."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (OSError, DeltaError) as error:
        reason = plain_text(error)
        remedy = "see spark.hadoop.fs.s3a.endpoint and the credentials"
        if _PERMANENT.search(reason):
            raise InvalidInput(f"{place}.path", url[:200], f"the object store refuses it, {remedy}: {reason}") from None
        raise StoreUnavailable(url[:200], f"{place}.path does not answer, {remedy}: {reason}") from None


def plain_text(error: Exception) -> str:
    """What `deltalake` or Arrow says in many lines, as one: the first, and the last that say why."""
    cleaned = [_DECORATION.sub("", line).strip() for line in str(error).splitlines()]
    lines = [line for line in cleaned if line]
    shown = lines if len(lines) <= 4 else [lines[0], *lines[-3:]]
    return "; ".join(shown)[-400:]

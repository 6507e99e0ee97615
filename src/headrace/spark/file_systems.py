"""Object stores in Spark: the options of its S3 file system, and what to say where Spark has none for a URL."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs, urlsplit

from headrace.core.errors import InvalidInput

# How Hadoop says that it has no class for a scheme.
_TOLD: Final = ("No FileSystem for scheme", "FileSystem not found")


def missing_file_system(field: str, url: str, error: Exception) -> InvalidInput | None:
    """The error that names the package, if Spark failed for the lack of a file system."""
    if not any(told in str(error) for told in _TOLD):
        return None
    scheme = url.partition(":")[0]
    remedy = 'its package and set it as "spark.jars.packages" in the settings of Spark'
    if scheme.startswith("s3"):
        remedy = (
            'org.apache.hadoop:hadoop-aws in the version of Spark\'s Hadoop, as "spark.jars.packages" or its jar as '
            '"spark.jars" in the settings of Spark, and write the URL as s3a:'
        )
    return InvalidInput(field, url[:200], f"this Spark has no file system for {scheme}: add {remedy}")


def s3a_options(url: str) -> dict[str, str]:
    """The options that lead Spark's S3 file system to the bucket of an archive's URL, as its own do with Arrow.

    They are those of the bucket only, and override the settings of Spark. Credentials are not among them.
    """
    parts = urlsplit(url)
    if parts.scheme != "s3":
        return {}
    given = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    options: dict[str, str] = {}
    if "region" in given:
        options["endpoint.region"] = given["region"]
    if "endpoint_override" in given:
        scheme = given.get("scheme", "https")
        options["endpoint"] = f"{scheme}://{given['endpoint_override']}"
        options["connection.ssl.enabled"] = str(scheme == "https").lower()
        # As Arrow does with an endpoint that is not that of Amazon.
        options["path.style.access"] = "true"
    return {f"fs.s3a.bucket.{parts.netloc}.{name}": value for name, value in options.items()}

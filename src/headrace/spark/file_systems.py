"""What to say where Spark has no file system for a URL: object stores need packages that Spark does not bring."""

from __future__ import annotations

from typing import Final

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

"""Where Spark looks for data sources by itself: `spark.read.format("headrace")` works after install.

On a Spark that is too old the source cannot even be imported, and Spark ignores modules that it cannot import: it would
say that there is no such source. So there it finds one that says which version it takes.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

import pyspark
from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]

_NEEDED: Final = (4, 2)


class TooOldSource(DataSource):
    """Refuses every use."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        needed = ".".join(map(str, _NEEDED))
        found = pyspark.__version__
        raise ImportError(f"Headrace needs Spark {needed} or newer, and this is Spark {found}: upgrade Spark")

    @classmethod
    def name(cls) -> str:
        """What `.format()` is given."""
        return "headrace"


def default_source(version: str) -> type[DataSource]:
    """The data source for a version of Spark."""
    if tuple(int(part) for part in version.split(".")[:2]) < _NEEDED:
        return TooOldSource
    from headrace.spark.source import HeadraceSource

    return HeadraceSource


DefaultSource = default_source(pyspark.__version__)

"""The Spark session that all tests of a process share: two threads, small shuffles, started at first use."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import warnings
from typing import TYPE_CHECKING

from headrace.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@functools.cache
def shared_session() -> SparkSession:
    """The session of this process; it ends with the process."""
    directory = tempfile.mkdtemp(prefix="headrace-spark-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    configuration = {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
        "spark.local.dir": directory,
        "spark.driver.memory": "1g",
    }
    with warnings.catch_warnings():
        # Pyspark leaves the pipe to the Java it starts open, since the Java must live as long as the process.
        warnings.simplefilter("ignore", ResourceWarning)
        started = session("local[2]", "headrace tests", configuration)
    atexit.register(started.stop)
    return started

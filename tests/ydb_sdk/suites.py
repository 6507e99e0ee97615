"""The topic tests of YDB's own SDKs: where they are, and what is changed around them so that they find our server.

Nothing of theirs is part of this repository. `make test-ydb` is told where checkouts of them are; the tests run as they
are. Python's start a YDB in Docker: that part of their conftest.py is left out, and an address put in its place.
"""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

PATIENCE_SECONDS = 540.0
ROOT = Path(__file__).parents[2]
# Made by `make test-ydb`.
PYTHON = ROOT / ".venv-ydb-sdk" / "bin" / "python"
# The directory of the topic tests in Python's SDK.
TOPIC_TESTS = "/".join(("tests", "topics"))

_OWN_CONFTEST = """
import os


@pytest.fixture(scope="module")
def endpoint():
    return os.environ["HEADRACE_TEST_ENDPOINT"]


def pytest_collection_modifyitems(items):
    if "HEADRACE_TEST_SKIPPED" in os.environ:
        for node in {parent for item in items for parent in item.listchain()}:
            node.own_markers[:] = [mark for mark in node.own_markers if mark.name != "skip"]


"""


def checkout(variable: str) -> Path:
    """The checkout that an option of `make test-ydb` names; a directory of git alone will do."""
    path = Path(os.environ.get(variable) or "missing")
    if not path.is_dir():
        pytest.fail(f"{variable}={path} is no directory: make test-ydb {variable}=DIRECTORY")
    return path


def unpack(source: Path, target: Path, *parts: str) -> None:
    """Copy what is committed in a checkout, or these parts of it."""
    target.mkdir(exist_ok=True)
    archive = target / "archive.tar"
    subprocess.run(["git", "-C", source, "archive", f"--output={archive}", "HEAD", *parts], check=True)
    with tarfile.open(archive) as files:
        files.extractall(target, filter="data")
    archive.unlink()


def python_tests(source: Path, target: Path) -> None:
    """The topic tests of Python's SDK, and their conftest without Docker."""
    unpack(source, target, "tests/__init__.py", "tests/conftest.py", TOPIC_TESTS)
    conftest = target / "tests" / "conftest.py"
    text = conftest.read_text()
    kept = re.sub(r"^(import docker|from pytest_docker.*|import subprocess)\n", "", text, flags=re.MULTILINE)
    kept = re.sub(
        r'\ndef _docker_client\(\):.*?(?=\n@pytest\.fixture\(scope="module"\)\ndef database)',
        lambda _: _OWN_CONFTEST,
        kept,
        flags=re.DOTALL,
    )
    assert "docker" not in kept and kept != text, "the SDK's conftest.py has another form than it had"
    conftest.write_text(kept)


def run(command: Sequence[str | Path], directory: Path, **variables: str) -> str:
    """Run to the end; what was printed, whatever the outcome."""
    ended = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=PATIENCE_SECONDS,
    )
    return ended.stdout

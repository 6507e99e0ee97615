"""`headrace config`: the settings that a server would have, and what is wrong with them."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from headrace.cli.exits import Failure
from headrace.cli.server.store_check import check_writable
from tests.cli.processes import headrace


def test_where_settings_come_from(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text('store = "postgresql://me:secret@db/x"\nlog_level = "debug"\n')
    arguments = ("config", "show", "--config", str(file), "--set", "broker.queue_bytes=1000000", "--json")
    shown = headrace(*arguments, "--changed", HEADRACE_LOG_LEVEL="info").json()
    assert shown == {
        "store": {"value": "postgresql://me:***@db/x", "from": str(file)},
        "log_level": {"value": "info", "from": "HEADRACE_LOG_LEVEL"},
        "broker.queue_bytes": {"value": 1_000_000, "from": "--set"},
    }
    assert headrace("config", "show", "--json").json()["http"] == {"value": "127.0.0.1:7070", "from": "default"}


def test_what_would_keep_a_server_from_starting(tmp_path: Path) -> None:
    good = headrace("config", "check", "--set", f"store=file:{tmp_path}/store")
    assert "the settings are good" in good.out and not (tmp_path / "store").exists()
    bad = headrace("config", "check", "--set", "store=nonsense:", "--set", "http=nowhere", "--set", "tls_key=a")
    assert bad.code == 2 and "3 of the settings" in bad.err
    assert "must begin with file:" in bad.err and "http is 'nowhere'" in bad.err and "TLS needs both" in bad.err
    assert "unknown setting" in headrace("config", "check", "--set", "stroe=x").refused(2)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_store_of_another_user_is_refused_with_the_cure(request: pytest.FixtureRequest) -> None:
    # Not in the directory for tests, into which nobody else may look.
    tmp_path = Path(tempfile.mkdtemp(prefix="headrace-test-"))
    request.addfinalizer(lambda: shutil.rmtree(tmp_path))
    store = tmp_path / "store"
    (store / "topics").mkdir(parents=True)
    (store / "catalog.sqlite").write_bytes(b"")
    for folder in (tmp_path, store, store / "topics"):
        folder.chmod(0o777)
    (store / "catalog.sqlite").chmod(0o600)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setuid(65534)
            check_writable(store)
        except Failure as failure:
            told = str(failure)
            code = 0 if "chown -R" in told and "catalog.sqlite, which belongs to root" in told else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    check_writable(store)

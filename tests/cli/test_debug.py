"""`headrace debug bundle`: what a bug report needs, and nothing secret."""

from __future__ import annotations

import stat
import tarfile
from pathlib import Path

import msgspec

from headrace.core.health.findings import Health
from tests.cli.processes import Server, headrace


def contents(file: Path) -> dict[str, str]:
    with tarfile.open(file) as archive:
        found = {}
        for entry in archive:
            opened = archive.extractfile(entry)
            assert opened is not None and entry.name.startswith("headrace-debug/")
            found[entry.name.partition("/")[2].split("-")[0]] = opened.read().decode()
    return found


def test_a_bundle_has_all_parts_and_no_secret(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.tar.gz"
    with Server(tmp_path / "store", "--log-level", "info") as server:
        admin = headrace("token", "create", "admin", "--store", f"file:{tmp_path}/store", "--json").json()["token"]
        done = server.run("debug", "bundle", "--output", str(bundle), HEADRACE_TOKEN=admin)
        assert done.code == 0 and done.err == "" and str(bundle) in done.out
        again = server.run("debug", "bundle", "--output", str(bundle), HEADRACE_TOKEN=admin).refused(2)
        assert "cannot write --output" in again and "exists" in again
        limited = server.run("token", "create", "rita", "--read", "x", "--url", server.flight_url, HEADRACE_TOKEN=admin)
        few = tmp_path / "few.tar.gz"
        part = server.run("debug", "bundle", "--output", str(few), HEADRACE_TOKEN=limited.out.strip())
        assert part.code == 0 and "settings.json is missing" in part.err
        assert server.stop() == 0
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600
    found = contents(bundle)
    expected = {"health.json", "settings.json", "servers.json", "store", "pipelines.json", "process.json"}
    assert found.keys() == expected | {"logs.txt", "stacks.txt", "metrics"}
    assert msgspec.json.decode(found["health.json"], type=Health).state == "fine"
    assert "headrace_build_info" in found["metrics"] and '"never"' in found["store"]
    assert "headrace-maintenance" in found["stacks.txt"] and "maintenance.py" in found["stacks.txt"]
    assert not any(admin in text or admin.rpartition("_")[2] in text for text in found.values())
    told = contents(few)
    assert "health.json" in told and "settings.json" not in told
    assert "process.json is missing" in told["errors.txt"] and "metrics" in told["errors.txt"]

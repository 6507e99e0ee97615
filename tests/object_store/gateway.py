"""An S3 server as a program, which a test can kill and start again: objects are files below a directory."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.ports import ReservedPort
from tests.server_process import ROOT
from tests.storage.archive.object_store import BUCKET, CREDENTIALS

PROGRAM = ROOT / "build" / "s3-server" / "versitygw"


class Gateway:
    """The program on a directory."""

    def __init__(self, directory: Path) -> None:
        assert PROGRAM.exists(), "the S3 server is missing: make s3-server"
        (directory / BUCKET).mkdir(parents=True)
        self._directory = directory
        self._reserved = ReservedPort()
        self.port = self._reserved.number
        self.start()

    def start(self) -> None:
        """Start; requests are answered soon after that, and clients retry."""
        names = {"ROOT_ACCESS_KEY": "AWS_ACCESS_KEY_ID", "ROOT_SECRET_KEY": "AWS_SECRET_ACCESS_KEY"}
        environment = os.environ | {name: CREDENTIALS[value] for name, value in names.items()}
        command = [str(PROGRAM), "--port", f"127.0.0.1:{self.port}", "--quiet", "posix", str(self._directory)]
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End it."""
        self.kill()
        self._reserved.close()

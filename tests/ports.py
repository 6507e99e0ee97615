"""A port that a server of a test can come back to.

A port that the kernel gave to a server is free again once that server is killed, and the next connection or server of
any other test may get it. Here it stays bound by a socket that never listens: the kernel gives it to nobody else,
connections to it are refused as long as no server listens, and a server that asks for it by number gets it.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self


class ReservedPort:
    """A port of 127.0.0.1 that is kept until it is closed."""

    def __init__(self) -> None:
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holder.bind(("127.0.0.1", 0))
        self.number: int = self._holder.getsockname()[1]

    def close(self) -> None:
        """Give it back."""
        self._holder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

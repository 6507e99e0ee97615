"""The time of day, as something that can be handed in. Waiting uses the system's monotonic clock directly."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time."""

    def now_us(self) -> int: ...


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        return time.time_ns() // 1000

"""The settings of the native wire."""

from __future__ import annotations

from typing import Annotated, Self

from msgspec import structs

from headrace.core.limits import BATCH_BYTES_MAX
from headrace.core.reports.server_settings import FIXED
from headrace.edge.settings import LimitSettings, OptionalPortSettings


class NativeSettings(OptionalPortSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the native wire: clients learn its port over Flight, and go on over Flight without it.

    request_bytes_max: a larger frame ends its connection. Any batch has room, as over Flight.
    fetch_bytes_max: what one answer takes at most: the receipts of a batch.
    idle_seconds_max: a connection without a frame for this time is closed; clients open another when they need one.
    """

    request_bytes_max: Annotated[int, FIXED] = BATCH_BYTES_MAX
    fetch_bytes_max: Annotated[int, FIXED] = 1 << 20
    idle_seconds_max: Annotated[float, FIXED] = 3600.0

    def within(self, limits: LimitSettings) -> Self:
        """The same with what an operator has set for all ports, but for the size of a batch."""
        return structs.replace(super().within(limits), request_bytes_max=self.request_bytes_max)

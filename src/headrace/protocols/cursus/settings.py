"""The settings of the cursus protocol."""

from __future__ import annotations

from typing import Annotated, Final, Self

from msgspec import structs

from headrace.core.reports.server_settings import FIXED
from headrace.edge.settings import OFF, AdvertisedPortSettings, LimitSettings

DEFAULT_PORT: Final = 9000
# A command of words takes four times its bytes while it is read.
FRAME_BYTES_MAX: Final = 16 << 20


class CursusSettings(AdvertisedPortSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the cursus protocol.

    listen: listen address; without a port it is 9000. `off` disables it.
    request_bytes_max: a larger frame ends its connection.
    keepalive_seconds: a stream that has nothing to push sends an empty frame this often; clients wait 5 s for one.
    session_seconds: a member that sends no heartbeat for this time leaves its group; clients send one every 3 s.
    """

    request_bytes_max: Annotated[int, FIXED] = FRAME_BYTES_MAX
    keepalive_seconds: Annotated[float, FIXED] = 2.0
    session_seconds: Annotated[float, FIXED] = 30.0

    def within(self, limits: LimitSettings) -> Self:
        """The same with what an operator has set for all ports, but a smaller frame."""
        size = min(limits.request_bytes_max, self.request_bytes_max)
        return structs.replace(super().within(limits), request_bytes_max=size)

    @property
    def address(self) -> str:
        """The listen address with its port."""
        bare = self.listen.rpartition("]")[2]
        return self.listen if self.listen in (OFF, "") or ":" in bare else f"{self.listen}:{DEFAULT_PORT}"

"""The settings of the cursus protocol."""

from __future__ import annotations

from typing import Annotated, Final

from headrace.core.reports.server_settings import FIXED
from headrace.edge.settings import OFF, AdvertisedPortSettings

DEFAULT_PORT: Final = 9000


class CursusSettings(AdvertisedPortSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the cursus protocol.

    listen: listen address; without a port it is 9000. `off` disables it.
    keepalive_seconds: a stream that has nothing to push sends an empty frame this often; clients wait 5 s for one.
    session_seconds: a member that sends no heartbeat for this time leaves its group; clients send one every 3 s.
    """

    keepalive_seconds: Annotated[float, FIXED] = 2.0
    session_seconds: Annotated[float, FIXED] = 30.0

    @property
    def address(self) -> str:
        """The listen address with its port."""
        bare = self.listen.rpartition("]")[2]
        return self.listen if self.listen in (OFF, "") or ":" in bare else f"{self.listen}:{DEFAULT_PORT}"

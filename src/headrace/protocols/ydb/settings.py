"""The settings of the YDB protocol."""

from __future__ import annotations

from headrace.edge.settings import AdvertisedPortSettings


class YdbSettings(AdvertisedPortSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the YDB protocol.

    advertised: HOST:PORT that clients are told to connect to. Empty: the address that this server advertises.
    requests_bytes_max: messages count in it once they have arrived whole; before, they are gRPC's.
    connections_max: calls at once, sessions among them, and connections.
    """

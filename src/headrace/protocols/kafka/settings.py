"""The settings of the Kafka protocol."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.core.reports.server_settings import FIXED
from headrace.edge.settings import AdvertisedPortSettings


class KafkaSettings(AdvertisedPortSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the Kafka protocol.

    auto_create_topics: whether a topic that a client asks for is created, if the client may.
    rebalance_delay_seconds: how long a new consumer group waits for more members before its first rebalance.
    heartbeat_seconds: how often members of groups in which the server assigns (KIP-848) report: partitions change
        hands within two heartbeats.
    """

    fetch_bytes_max: Annotated[int, FIXED] = 16 << 20
    auto_create_topics: bool = True
    rebalance_delay_seconds: Annotated[float, msgspec.Meta(ge=0, le=60)] = 0.5
    heartbeat_seconds: Annotated[float, FIXED] = 5.0

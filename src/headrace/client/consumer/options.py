"""The keyword arguments of `Client.consumer`, as type checkers see them. `Client.consumer` says what they mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from headrace.client.consumer.assignment import PartitionsChanged
from headrace.client.read.decode import OnUndecodable
from headrace.client.read.start import Start
from headrace.client.serializers import Deserializer


class ConsumerOptions(TypedDict, total=False):
    """The keyword arguments of `Client.consumer`, for type checkers."""

    pattern: str | None
    partitions: Iterable[int] | None
    start: Start
    member_id: str | None
    session_timeout_seconds: float
    max_poll_seconds: float
    max_prefetch_bytes: int
    auto_commit: bool
    decode: bool
    on_undecodable: OnUndecodable
    on_assigned: PartitionsChanged | None
    on_revoked: PartitionsChanged | None
    on_lost: PartitionsChanged | None
    consumer_index: int | None
    serializer: Deserializer | None
    key_serializer: Deserializer | None
    value_type: object
    key_type: object

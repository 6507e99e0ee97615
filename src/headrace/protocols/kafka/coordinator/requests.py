"""What requests of members to a classic group say, what waiting ones are answered, and their bounds. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.core.rights import ANYONE, Caller
from headrace.protocols.kafka.coordinator.roster import Seat

SESSION_SECONDS_MIN: Final = 0.1
# As Kafka's brokers have it unless they are set otherwise.
SESSION_SECONDS_MAX: Final = 1_800.0
# A round waits no longer for members that do not come, whatever they ask for.
REBALANCE_SECONDS_MAX: Final = 1_800.0
# How many assignors a member may support.
PROTOCOLS_MAX: Final = 64
# The assignment of one member.
ASSIGNMENT_BYTES_MAX: Final = 1 << 20


class GroupError(Exception):
    """A request that is refused, with the name of Kafka's error; `member_id` is the one to come back with."""

    def __init__(self, error: str, member_id: str = "") -> None:
        super().__init__(error)
        self.error = error
        self.member_id = member_id


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request; protocols are what the member supports, by preference, each with its metadata.

    `topics` are the keys of those that it reads.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_seconds: float
    rebalance_seconds: float
    protocol_type: str
    protocols: Mapping[str, bytes]
    caller: Caller = ANYONE
    topics: frozenset[str] = frozenset()

    @property
    def seat(self) -> Seat:
        """The seat of a member that says this."""
        sent = sum(len(name) + len(metadata) for name, metadata in self.protocols.items())
        names = len(self.client_id) + len(self.instance_id or "") + len(self.protocol_type)
        return Seat(self.caller, self.instance_id, self.topics, sent + names)


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """What a waiting JoinGroup is answered; only the leader gets the members, with their metadata."""

    member_id: str
    error: str = "none"
    generation: int = -1
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: Sequence[tuple[str, str | None, bytes]] = ()


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """What a waiting SyncGroup is answered."""

    member_id: str
    error: str = "none"
    protocol_type: str = ""
    protocol: str = ""
    assignment: bytes = b""


Effect = JoinAnswer | SyncAnswer

"""What a verification does: how many clients, for how long, and what the operator may do meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.core.errors import InvalidInput

IMPORTANT_GROUP = "important"
CONSUMERS_MAX = 100
PRODUCERS_MAX = 100


@dataclass(frozen=True, slots=True)
class Workload:
    """One verification.

    seconds: how long clients publish; reading the rest and the log follows.
    producers: clients that publish; every third has no producer id, every fourth publishes by stages.
    consumers: members in each group; from time to time one of them leaves and another joins.
    groups: groups that each read everything; the first one is important.
    rate: messages a second of each producer at most.
    partitions, partitions_added: of the topic at first, and added one by one while it runs.
    seeks: whether an operator moves groups while their members read.
    retention_bytes: what the topic keeps beyond what the important group has not read; None keeps everything.
    patience_seconds: how long a client tries to reach a server.
    stall_seconds: a group that has to catch up and makes no progress for this long has stalled.
    seed: from what all random choices are made.
    """

    seconds: float = 60.0
    producers: int = 4
    consumers: int = 3
    groups: int = 2
    rate: float = 500.0
    partitions: int = 4
    partitions_added: int = 2
    seeks: bool = True
    retention_bytes: int | None = None
    patience_seconds: float = 30.0
    stall_seconds: float = 60.0
    seed: int = 0

    def check(self) -> None:
        """Refuse what cannot be done."""
        _check("seconds", self.seconds, 0.1, 7 * 86_400)
        _check("producers", self.producers, 1, PRODUCERS_MAX)
        _check("consumers", self.consumers, 1, CONSUMERS_MAX)
        _check("groups", self.groups, 1, 10)
        _check("rate", self.rate, 1, 100_000)
        _check("partitions", self.partitions, 1, 1_000)
        _check("patience_seconds", self.patience_seconds, 0, 86_400)

    def group_names(self) -> list[str]:
        """The groups; the first is important."""
        return [IMPORTANT_GROUP, *(f"group-{number}" for number in range(1, self.groups))]


def _check(field: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InvalidInput(field, f"{value:g}", f"it must be {least:g} to {most:g}")

"""The verdict on a server: its findings, and the state that follows from them.

A finding has the names filled in, says what to do, and has a command that can be pasted into a shell. Commands only
look, or renew what expires: none deletes messages. Values; the same in process, over every protocol and in JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal

import msgspec

from headrace.core.limits import FINDINGS_MAX

# Attention: at least one finding is critical or a warning. Unknown: none is, and something could not be judged.
State = Literal["fine", "attention", "unknown"]
Severity = Literal["critical", "warning", "unknown"]
PlaceKind = Literal["topic", "group", "pipeline", "token", "certificate", "store", "server"]

SEVERITIES: Final[tuple[Severity, ...]] = ("critical", "warning", "unknown")


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where something is wrong. `name` is that of a pipeline or token, the file of a certificate, a server's URL."""

    kind: PlaceKind
    topic: str = ""
    group: str = ""
    name: str = ""

    def __str__(self) -> str:
        """How people are told."""
        names = " of ".join(each for each in (self.group or self.name, self.topic) if each)
        return f"{self.kind} {names}" if names else f"the {self.kind}"


class HealthFinding(msgspec.Struct, frozen=True):
    """What is wrong where, a sentence on what to do, and a command to begin with; empty if there is none."""

    rule: str
    severity: Severity
    place: Place
    problem: str
    advice: str
    command: str = ""


class Health(msgspec.Struct, frozen=True):
    """The verdict of a server at one moment, in microseconds since 1970.

    findings: the most severe first. omitted: how many findings more there are. covers_store: whether it is about the
    whole store, and not only about the topics that the caller may read.
    """

    server: str
    judged_us: int
    state: State
    findings: list[HealthFinding]
    omitted: int = 0
    covers_store: bool = True

    @classmethod
    def of(cls, server: str, judged_us: int, findings: Iterable[HealthFinding], covers_store: bool = True) -> Health:
        """The verdict that follows from all findings."""
        found = sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
        return cls(server, judged_us, _state(found), found, 0, covers_store)

    def with_more(self, findings: Iterable[HealthFinding]) -> Health:
        """The same with more findings."""
        health = Health.of(self.server, self.judged_us, [*self.findings, *findings], self.covers_store)
        return msgspec.structs.replace(health, omitted=self.omitted)

    def limited(self) -> Health:
        """As much of it as one answer has; the state is that of all findings."""
        omitted = max(0, len(self.findings) - FINDINGS_MAX)
        return msgspec.structs.replace(self, findings=self.findings[:FINDINGS_MAX], omitted=self.omitted + omitted)


def visible(
    findings: Iterable[HealthFinding], may_read: Callable[[str], bool], covers_store: bool, token: str
) -> list[HealthFinding]:
    """What a caller may see: findings on topics they may read, on their token, and with `covers_store` on the store."""

    def is_shown(place: Place) -> bool:
        if place.topic:
            return may_read(place.topic)
        return covers_store or (place.kind == "token" and place.name == token)

    return [finding for finding in findings if is_shown(finding.place)]


def merged(own: Health, others: Iterable[Health]) -> Health:
    """The verdict of several servers of a store: what they all found counts once."""
    places = {(finding.rule, finding.place) for finding in own.findings}
    more: list[HealthFinding] = []
    omitted = own.omitted
    for health in others:
        new = [finding for finding in health.findings if (finding.rule, finding.place) not in places]
        places |= {(finding.rule, finding.place) for finding in new}
        more += new
        omitted = max(omitted, health.omitted)
    return msgspec.structs.replace(own, omitted=omitted).with_more(more)


def _state(findings: Iterable[HealthFinding]) -> State:
    severities = {finding.severity for finding in findings}
    if severities & {"critical", "warning"}:
        return "attention"
    return "unknown" if severities else "fine"

"""Messages pushed to a member: `GET …/groups/{group}/members/{member}/events`, live, as server-sent events.

    assignment   the partitions to read, and those to let go; at the start, and whenever that changes
    messages     of one partition, with the generation to commit with
    gap, end     as for any subscription

The open stream renews the session as long as its client's machine takes what it is sent. It lets no partition go: the
client does, with a heartbeat, once it has committed. The positions that survive a change of the group are those that
the member could still commit (`TopicReader.member_place`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from litestar import Request, get
from litestar.di import NamedDependency
from litestar.params import FromPath, HeaderParameter

from headrace.broker.read.topic_reader import MemberPlace, TopicReader
from headrace.core.errors import InvalidInput, TopicDeleted
from headrace.core.limits import SUBSCRIPTION_PARTITIONS_MAX
from headrace.core.reports.descriptions import Membership
from headrace.edge.access import Leases, Principal
from headrace.edge.bridge import Bridge
from headrace.edge.event_loop.long_poll import LoopWakeups
from headrace.protocols.http.event_stream import EventStream, Subscriber, event
from headrace.protocols.http.middleware.access import lease_of, principal_of
from headrace.protocols.http.openapi.document import MESSAGE, Docs
from headrace.protocols.http.requests.negotiation import EVENTS, answer_type
from headrace.protocols.http.requests.parameters import EncodingParameter
from headrace.protocols.http.requests.positions import format_event_id, parse_event_id
from headrace.protocols.http.requests.raw_paths import unquoted
from headrace.protocols.http.routes.members import MemberOut
from headrace.protocols.http.settings import HttpSettings
from headrace.wire.json import MessageOut, Messages


class PushedMessages(msgspec.Struct):
    """Messages of one partition, the offset to commit or continue at, and the generation to commit with."""

    messages: list[MessageOut]
    next_offset: int
    generation: int


@dataclass
class MemberSubscriber(Subscriber):
    """The stream of one member. It follows the partitions that the group gives it."""

    topic: str
    group: str
    member: str
    principal: Principal
    generation: int
    # What its client was told, for how many partitions, and when the session must be renewed.
    _told: Membership | None = field(default=None, init=False)
    _partitions: int = field(default=0, init=False)
    _renew_at: float = field(default=0.0, init=False)

    @property
    def event_id(self) -> str:
        """Its positions and their generation, as an event id."""
        return format_event_id(self.reader.topic_id, self.positions, self.generation)

    @property
    def wait_seconds(self) -> float:
        """How long to wait without a sign of life: a comment comes before each renewal, too."""
        return max(0.0, min(self.idle_seconds, self._renew_at - time.monotonic()))

    def has_news(self) -> bool:
        """Whether the session is to be renewed, the group may have changed, or there is anything to read."""
        self.principal.joined(self.topic, self.group, self.member, 0.0)
        return self._is_due() or super().has_news()

    def _is_due(self) -> bool:
        is_late = time.monotonic() >= self._renew_at
        has_moved = self.reader.has_moved(self.group, self.generation)
        return is_late or has_moved or self.reader.partitions != self._partitions

    def next_events(self) -> list[bytes]:
        """What changed in the group, and the next messages; runs in a thread."""
        changed = self._follow() if self._is_due() else []
        return [*changed, *super().next_events()] if self.reader.is_behind(self.positions) else changed

    def _follow(self) -> list[bytes]:
        self._partitions = self.reader.partitions
        place = _place(self.reader, self.group, self.member, self.generation, self.positions)
        self._renew_at = time.monotonic() + place.renew_seconds
        self.positions, self.generation = place.positions, place.membership.generation
        if place.membership == self._told:
            return []
        self._told = place.membership
        return [event("assignment", MemberOut.of(place.membership), self.event_id)]

    def shown(self, answer: Messages) -> msgspec.Struct:
        """What an event says of messages."""
        return PushedMessages(answer.messages, answer.next_offset, self.generation)


_EXAMPLE = (
    event("assignment", MemberOut("billing", "worker-1", 3, [0, 2]), "12.3;0:41").decode()
    + event("messages", PushedMessages([MESSAGE], 42, 3), "12.3;0:42").decode()
)


@get(
    "/topics/{topic:str}/groups/{group:str}/members/{member:str}/events",
    opt={
        "operation": "follow_as_member",
        "docs": Docs(answers_events=True, example=_EXAMPLE, errors=(404, 406)),
    },
    tags=["members"],
    summary="Subscribe as a member",
)
async def subscribe_as_member(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    group: FromPath[str],
    member: FromPath[str],
    bridge: NamedDependency[Bridge],
    wakes: NamedDependency[LoopWakeups],
    leases: NamedDependency[Leases],
    http_settings: NamedDependency[HttpSettings],
    encoding: EncodingParameter = "text",
    last_event_id: Annotated[
        str | None,
        HeaderParameter(
            name="Last-Event-ID", description="id of the last event received: continue after it where it still counts"
        ),
    ] = None,
) -> EventStream:
    """Stream the messages of the member's partitions live. A consumer of a fixed group uses its index as its name.

    The member has joined before; the open stream renews its session. Events are `assignment` (the partitions to read,
    and those to let go: commit, then acknowledge with a heartbeat), `messages`, `gap` and `end` (a problem that says
    why the stream ended, such as `member_not_found`). Commit `next_offset` with the `generation` of the messages.
    """
    answer_type(request, EVENTS)
    names = unquoted(topic), unquoted(group), unquoted(member)
    reader = await bridge.reader(names[0])
    place = await bridge.call(_first_place, reader, *names[1:], last_event_id)
    lease, idle_seconds = lease_of(request, *names[:2]), http_settings.heartbeat_seconds
    principal, generation = principal_of(request), place.membership.generation
    subscriber = MemberSubscriber(
        reader, place.positions, False, encoding, idle_seconds, lease, *names, principal, generation
    )
    # The open stream renews the session: not for a machine that is gone.
    return EventStream(subscriber, principal, bridge, wakes, leases, http_settings.send_seconds_max)


def _first_place(reader: TopicReader, group: str, member: str, last_event_id: str | None) -> MemberPlace:
    if not last_event_id:
        return _place(reader, group, member, None, {})
    topic_id, generation, seen = parse_event_id(last_event_id)
    if topic_id != reader.topic_id:
        raise TopicDeleted(reader.name)
    place = _place(reader, group, member, generation, seen)
    reader.check_reached(place.positions)
    return place


def _place(
    reader: TopicReader, group: str, member: str, generation: int | None, positions: dict[int, int]
) -> MemberPlace:
    place = reader.member_place(group, member, generation, positions)
    if len(place.positions) > SUBSCRIPTION_PARTITIONS_MAX:
        rule = f"a subscription follows at most {SUBSCRIPTION_PARTITIONS_MAX}: read with more consumers"
        raise InvalidInput("partitions", f"{len(place.positions)} partitions", rule)
    return place


HANDLERS = [subscribe_as_member]

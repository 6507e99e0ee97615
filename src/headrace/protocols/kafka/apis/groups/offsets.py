"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete.

Committed offsets are those of the broker's groups: a Kafka group over several topics is a group of that name in each of
them. Kafka lets a commit move back, which is a seek here: it is recorded, and a token may be without that right. Kafka
also lets a commit name any offset, with an epoch and a text: these are kept as notes, while the group stays within the
partition (`core/groups/notes.py`). What is named twice is looked at once, and much of it in threads, in pieces.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from kio.schema.errors import ErrorCode

from headrace.broker import Broker
from headrace.core.errors import (
    Forbidden,
    GroupNotFound,
    GroupSizeConflict,
    HeadraceError,
    InvalidInput,
    TopicNotFound,
)
from headrace.core.groups.notes import NO_EPOCH, CommitNote
from headrace.core.limits import COMMIT_METADATA_BYTES_MAX
from headrace.core.names import check_group_name, composed, topic_key
from headrace.core.rights import Right
from headrace.edge.envelope.repeated_warnings import RepeatedWarnings
from headrace.edge.groups import ALL_TOPICS
from headrace.protocols.kafka.apis.call import LOOP_ELEMENTS_MAX, Call, in_turns
from headrace.protocols.kafka.apis.groups.members import code_named
from headrace.protocols.kafka.apis.topic_ids import TopicLookup, TopicRef, ref_of, seen_name, topic_uuid
from headrace.protocols.kafka.coordinator.requests import GroupError
from headrace.protocols.kafka.errors import code_of

# Since this version OffsetFetch names topics by id.
_BY_ID: Final = 10
# Topics of a group that a thread looks at, before others get their turn.
PIECE_TOPICS: Final = 100
# What is told of a partition without a commit.
_NOTHING: Final = CommitNote(-1)
# What was said with commits, until there is room for more.
_PIECE_BYTES: Final = 1 << 20
# Partitions of a commit that moved back which the audit log shows.
_SHOWN_MAX: Final = 20

# A client is told a code only.
_refused: Final = RepeatedWarnings(logging.getLogger(__name__), "commits of Kafka clients were refused")

Codes = dict[int, ErrorCode]
Notes = dict[int, CommitNote]


async def offset_commit(call: Call, request: Any) -> dict[str, Any]:
    """Store the next offsets to read, if the member may."""
    group, error = request.group_id, ErrorCode.none
    count = len(request.topics) + sum(len(topic.partitions) for topic in request.topics)
    wanted = await call.work(count, _wanted, request.topics)
    await call.hold(count)
    names, keys = await _names(call, wanted)
    try:
        call.parts.coordinator.check_commit(
            call.principal,
            group,
            request.member_id,
            getattr(request, "group_instance_id", None),
            request.generation_id_or_member_epoch,
            keys,
        )
    except GroupError as refused:
        error = code_named(refused.error)
    except Forbidden as forbidden:
        error = code_of(forbidden)
    if not call.parts.nodes.is_coordinator(group):
        error = ErrorCode.not_coordinator
    codes: dict[TopicRef, Codes] = {}
    if error == ErrorCode.none:
        for piece in pieces(wanted):
            codes |= await call.parts.bridge.call(_commit_all, call, group, {ref: wanted[ref] for ref in piece}, names)
    else:
        codes = {ref: dict.fromkeys(offsets, error) for ref, offsets in wanted.items()}
    return {"topics": await call.work(count, _answers, codes)}


def _wanted(topics: Iterable[Any]) -> dict[TopicRef, Notes]:
    """What to commit; of a partition that is named twice the last."""
    wanted: dict[TopicRef, Notes] = {}
    for topic in topics:
        notes = {each.partition_index: _note(each) for each in topic.partitions}
        wanted.setdefault(ref_of(topic), {}).update(notes)
    return wanted


def _note(asked: Any) -> CommitNote:
    epoch = getattr(asked, "committed_leader_epoch", NO_EPOCH)
    return CommitNote(asked.committed_offset, epoch, (asked.committed_metadata or "").encode())


def _answers(codes: Mapping[TopicRef, Codes]) -> list[dict[str, Any]]:
    return [
        {
            "name": ref,
            "topic_id": ref,
            "partitions": [{"partition_index": partition, "error_code": code} for partition, code in each.items()],
        }
        for ref, each in codes.items()
    ]


def pieces(names: Iterable[Any]) -> Iterator[list[Any]]:
    """Names in pieces that a thread takes at once."""
    every = list(names)
    for first in range(0, len(every), PIECE_TOPICS):
        yield every[first : first + PIECE_TOPICS]


Names = Mapping[TopicRef, str | ErrorCode]


async def _names(call: Call, refs: Collection[TopicRef]) -> tuple[Names, set[str]]:
    """The names of topics, however a request names them, and their keys."""
    lookup = TopicLookup(call.parts.bridge.broker, call.principal.caller)
    if len(refs) <= LOOP_ELEMENTS_MAX and all(isinstance(ref, str) for ref in refs):
        return _look_up(lookup, refs)
    return await call.parts.bridge.call(_look_up, lookup, refs)


def _look_up(lookup: TopicLookup, refs: Iterable[TopicRef]) -> tuple[Names, set[str]]:
    names: dict[TopicRef, str | ErrorCode] = {}
    for ref in refs:
        try:
            names[ref] = lookup.name(ref)
        except HeadraceError as error:
            names[ref] = code_of(error)
    return names, {topic_key(name) for name in names.values() if isinstance(name, str)}


def _commit_all(call: Call, group: str, wanted: Mapping[TopicRef, Notes], names: Names) -> dict[TopicRef, Codes]:
    codes: dict[TopicRef, Codes] = {}
    for ref, notes in wanted.items():
        name = names[ref]
        codes[ref] = _commit(call, name, group, notes) if isinstance(name, str) else dict.fromkeys(notes, name)
    return codes


def _commit(call: Call, topic: str, group: str, notes: Notes) -> Codes:
    """Commit the offsets of a topic, those that are wrong without those that are right."""
    broker = call.parts.bridge.broker
    codes = dict.fromkeys(notes, ErrorCode.none)
    try:
        call.principal.require("commit", topic, group)
        known = broker.offsets(topic)
        reader = broker.reader(topic)
    except HeadraceError as error:
        return dict.fromkeys(notes, code_of(error))
    for partition, note in notes.items():
        if partition not in known:
            codes[partition] = ErrorCode.unknown_topic_or_partition
        elif len(note.metadata) > COMMIT_METADATA_BYTES_MAX:
            codes[partition] = ErrorCode.offset_metadata_too_large
    said = {
        partition: note for partition, note in notes.items() if note.metadata and codes[partition] == ErrorCode.none
    }
    try:
        reader.take_notes(group, said, call.principal.name)
    except InvalidInput as error:
        _refused.warn(f"a commit of {call.principal.name!r} to topic {topic!r} was refused: {error}")
        codes |= dict.fromkeys(said, ErrorCode.offset_metadata_too_large)
    except HeadraceError as error:
        return dict.fromkeys(notes, code_of(error))
    good = {
        partition: note.position(known[partition][1])
        for partition, note in notes.items()
        if codes[partition] == ErrorCode.none
    }
    try:
        committed = _committed_before(broker, topic, group) if good else {}
        back = {partition: offset for partition, offset in good.items() if offset < committed.get(partition, 0)}
        forth = {partition: offset for partition, offset in good.items() if partition not in back}
        if forth:
            reader.commit_notes(group, forth, notes, is_back=False)
        good = back
        if back:
            _move_back(call, topic, group, committed, back, notes)
    except HeadraceError as error:
        # Native members own the group: a commit from outside would move it under their feet.
        code = ErrorCode.unknown_member_id if isinstance(error, GroupSizeConflict) else code_of(error)
        codes |= dict.fromkeys(good, code)
    return codes


def _committed_before(broker: Broker, topic: str, group: str) -> dict[int, int]:
    try:
        return broker.committed(topic, group)
    except GroupNotFound:
        broker.register_group(topic, group)
        return {}


def _move_back(
    call: Call, topic: str, group: str, before: Mapping[int, int], back: Mapping[int, int], notes: Notes
) -> None:
    with call.principal.recording():
        call.principal.require("commit_back", topic, group)
        call.parts.bridge.broker.reader(topic).commit_notes(group, back, notes, is_back=True)
        shown = {partition: [before[partition], back[partition]] for partition in sorted(back)[:_SHOWN_MAX]}
        call.principal.name_change(partitions=len(back), offsets=shown)


async def offset_fetch(call: Call, request: Any) -> dict[str, Any]:
    """The committed offsets of a group, of some topics or of all."""
    is_old = not hasattr(request, "groups")
    groups = {group.group_id: group.topics for group in ([request] if is_old else request.groups)}
    await call.hold(len(groups), groups)
    everywhere = [name for name, topics in groups.items() if topics is None]
    stored = await call.parts.bridge.call(stored_topics, call, everywhere) if everywhere else {}
    if is_old:
        ((name, topics),) = groups.items()
        return {"topics": await _fetched(call, name, topics, stored), "error_code": ErrorCode.none}
    answers = [
        {"group_id": name, "topics": await _fetched(call, name, topics, stored), "error_code": ErrorCode.none}
        async for name, topics in in_turns(groups.items())
    ]
    return {"groups": answers}


async def _fetched(call: Call, group: str, topics: Any, stored: Mapping[str, list[str]]) -> list[dict[str, Any]]:
    """The offsets of a group in some topics, or in all in which it is stored."""
    if topics is None:
        wanted: Mapping[TopicRef, Collection[int] | None] = dict.fromkeys(stored.get(composed(group), ()))
        await call.hold(len(wanted))
    else:
        count = len(topics) + sum(len(topic.partition_indexes) for topic in topics)
        await call.hold(count)
        wanted = await call.work(count, _asked, topics)
    answers: list[dict[str, Any]] = []
    refs, done = list(wanted), 0
    while done < len(refs):
        piece = {ref: wanted[ref] for ref in refs[done : done + PIECE_TOPICS]}
        looked, found = await call.parts.bridge.call(_committed, call, group, piece)
        done += looked
        partitions = [each for answer in found for each in answer["partitions"]]
        await call.hold(len(partitions) if topics is None else 0, (each["metadata"] for each in partitions))
        answers += found
    return answers


def _asked(topics: Iterable[Any]) -> dict[TopicRef, dict[int, None]]:
    asked: dict[TopicRef, dict[int, None]] = {}
    for topic in topics:
        asked.setdefault(ref_of(topic), {}).update(dict.fromkeys(topic.partition_indexes))
    return asked


def stored_topics(call: Call, names: Collection[str] | None) -> dict[str, list[str]]:
    """By group the topics in which it is stored, of those that the caller may read: groups of these names, or all."""
    if names is not None:
        names = {name for name in map(composed, names) if _is_name(name)}
    caller, may = call.principal.caller, dict[str, bool]()
    stored: dict[str, list[str]] = {}
    for group, topics in call.parts.bridge.broker.topics_of_groups(names).items():
        for topic in topics:
            if topic not in may:
                may[topic] = caller.may(Right.READ, topic)
        if any(may[topic] for topic in topics):
            stored[group] = [topic for topic in topics if may[topic]]
    return stored


def _is_name(group: str) -> bool:
    with suppress(InvalidInput):
        return bool(check_group_name(group))
    return False


def _committed(
    call: Call, group: str, wanted: Mapping[TopicRef, Collection[int] | None]
) -> tuple[int, list[dict[str, Any]]]:
    """The commits in some topics, until they take much memory; and of how many of the topics."""
    broker = call.parts.bridge.broker
    answers: list[dict[str, Any]] = []
    size = 0
    for ref, partitions in wanted.items():
        if size > _PIECE_BYTES:
            break
        answers.append(_of_topic(call, broker, group, ref, partitions))
        size += sum(len(each["metadata"]) for each in answers[-1]["partitions"])
    looked = len(answers)
    # Of topics that were not named those with offsets, which may have to be named by id.
    told = [answer for answer in answers if answer["partitions"] or wanted[answer["name"]] is not None]
    for answer in told:
        if wanted[answer["name"]] is None and call.version >= _BY_ID:
            answer["topic_id"] = topic_uuid(broker.reader(answer["name"]).topic_id)
    return looked, told


def _of_topic(
    call: Call, broker: Broker, group: str, ref: TopicRef, partitions: Collection[int] | None
) -> dict[str, Any]:
    code, noted = ErrorCode.none, Notes()
    try:
        topic = seen_name(broker, call.principal.caller, ref)
        call.principal.require("committed", topic, group)
        noted = broker.reader(topic).noted(group)
    except (GroupNotFound, TopicNotFound):
        pass
    except HeadraceError as error:
        code = code_of(error)
    answers = [
        {
            "partition_index": partition,
            "committed_offset": note.offset,
            "committed_leader_epoch": note.leader_epoch,
            "metadata": note.metadata.decode(),
            "error_code": code,
        }
        for partition in (noted if partitions is None else partitions)
        for note in (noted.get(partition, _NOTHING),)
    ]
    return {"name": ref, "topic_id": ref, "partitions": answers}


async def offset_delete(call: Call, request: Any) -> dict[str, Any]:
    """Forget the committed offsets of a group in some partitions that none of its members reads."""
    group = request.group_id
    if not call.parts.nodes.is_coordinator(group):
        return {"error_code": ErrorCode.not_coordinator}
    count = len(request.topics) + sum(len(topic.partitions) for topic in request.topics)
    await call.hold(count)
    wanted = await call.work(count, _doomed, request.topics)
    present = call.parts.coordinator.named(group)
    if not present and not await call.parts.bridge.call(stored_topics, call, [group]):
        return {"error_code": ErrorCode.group_id_not_found}
    read = {topic for each in present for topic in each.roster.topics}
    if ALL_TOPICS in read:
        # What members of another kind of group read is not known.
        return {"error_code": ErrorCode.non_empty_group}
    answers = []
    for piece in pieces(wanted):
        some = {name: list(wanted[name]) for name in piece}
        answers += await call.parts.bridge.call(_forget_all, call, group, some, read)
    return {"error_code": ErrorCode.none, "topics": answers}


def _doomed(topics: Iterable[Any]) -> dict[str, dict[int, None]]:
    doomed: dict[str, dict[int, None]] = {}
    for topic in topics:
        doomed.setdefault(topic.name, {}).update(dict.fromkeys(each.partition_index for each in topic.partitions))
    return doomed


def _forget_all(call: Call, group: str, wanted: Mapping[str, list[int]], read: Collection[str]) -> list[dict[str, Any]]:
    answers = []
    for topic, partitions in wanted.items():
        codes = _forget(call, topic, group, partitions, topic_key(topic) in read)
        named = [{"partition_index": partition, "error_code": codes[partition]} for partition in partitions]
        answers.append({"name": topic, "partitions": named})
    return answers


def _forget(call: Call, topic: str, group: str, partitions: list[int], is_read: bool) -> Codes:
    broker = call.parts.bridge.broker
    try:
        good: list[int] = []
        with suppress(GroupNotFound), call.principal.recording():
            call.principal.require("delete_group", topic, group)
            if is_read:
                raise GroupSizeConflict(group, "its members read the topic")
            count = broker.reader(topic).partitions
            good += [partition for partition in partitions if 0 <= partition < count]
            if not good:
                call.principal.forget_changes()
            broker.forget_offsets(topic, group, good)
    except HeadraceError as error:
        code = ErrorCode.group_subscribed_to_topic if isinstance(error, GroupSizeConflict) else code_of(error)
        return dict.fromkeys(partitions, code)
    wrong = ErrorCode.unknown_topic_or_partition
    return {partition: ErrorCode.none if partition in good else wrong for partition in partitions}

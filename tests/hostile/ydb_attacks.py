"""Attacks over YDB's streams by the holder of an ordinary token, or by a stranger.

    ATTACKS["YDB half-open streams"](address, seconds)      attack for so long; returns what it did, in words

Streams are raw: what is sent is bytes, and what is not read stays with the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import grpc

from headrace.protocols.ydb.statuses import Status
from headrace.protocols.ydb.stubs import topic
from tests.hostile.target import Address
from tests.hostile.ydb_requests import CONSUMER, PATH, TOPIC

MIB: Final = 1 << 20
_Read: Final = topic.StreamReadMessage
_Write: Final = topic.StreamWriteMessage
_STREAMS: Final = 2_000
# More than one token may have.
_SESSIONS: Final = 1_200
_PATIENCE_SECONDS: Final = 20.0
# Streams of one connection.
_PER_CHANNEL: Final = 500
_OPTIONS: Final = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]


async def _sent(messages: Sequence[bytes], is_over: asyncio.Event) -> AsyncIterator[bytes]:
    """Messages, and then nothing until the attack is over."""
    for message in messages:
        yield message
    await is_over.wait()


async def _streams(
    address: Address, method: str, messages: Sequence[bytes], count: int, seconds: float, has_token: bool, read: int
) -> int:
    """Open streams, send messages on each and read so many answers; how many were refused."""
    is_over = asyncio.Event()
    header = (("x-ydb-auth-ticket", address.tokens["attacker"]),) if has_token else ()
    channels = [
        grpc.aio.insecure_channel(f"127.0.0.1:{address.ydb}", options=[*_OPTIONS, ("headrace.number", number)])
        for number in range(-(-count // _PER_CHANNEL))
    ]
    calls: list[Any] = []
    for number in range(count):
        stream = channels[number // _PER_CHANNEL].stream_stream(TOPIC + method)
        calls.append(stream(_sent(messages, is_over), metadata=header, timeout=seconds + 60))
    looks = [asyncio.create_task(_answered(call, read)) for call in calls]
    done, late = await asyncio.wait(looks, timeout=_PATIENCE_SECONDS)
    await asyncio.sleep(seconds)
    refused = sum(not look.result() for look in done)
    is_over.set()
    for each in (*late, *calls):
        each.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    await asyncio.gather(*(channel.close() for channel in channels))
    return refused


async def _answered(call: Any, count: int) -> bool:
    """Whether a call gives so many answers, none of which is its end, or a status that is no success."""
    with suppress(grpc.RpcError, asyncio.CancelledError):
        for _ in range(count):
            answer = await call.read()
            if answer is grpc.aio.EOF or _Read.FromServer.FromString(answer).status != Status.SUCCESS:
                return False
        return True
    return False


def _run(work: Awaitable[int]) -> int:
    async def run() -> int:
        return await work

    return asyncio.run(run())


def half_open(address: Address, seconds: float) -> str:
    """Open streams, and send nothing."""
    refused = _run(_streams(address, "StreamRead", [], _STREAMS, seconds, True, 0))
    return f"{_STREAMS} streams without a message, {refused} refused"


def half_open_by_strangers(address: Address, seconds: float) -> str:
    """The same without a token."""
    refused = _run(_streams(address, "StreamWrite", [], _STREAMS, seconds, False, 0))
    return f"{_STREAMS} streams of strangers, {refused} refused"


def many_sessions(address: Address, seconds: float) -> str:
    """More read sessions of one token than it may have."""
    refused = _run(_streams(address, "StreamRead", _reading(1 << 20), _SESSIONS, seconds, True, 1))
    return f"{_SESSIONS} read sessions, {refused} refused"


def unread_messages(address: Address, seconds: float) -> str:
    """Fill a topic, give endless credit on many sessions, and receive nothing."""
    data = [_Write.WriteRequest.MessageData(seq_no=number, data=bytes(700_000)) for number in range(1, 9)]
    writing = [
        _Write.FromClient(init_request=_Write.InitRequest(path=PATH, partition_id=0)),
        *(_Write.FromClient(write_request=_Write.WriteRequest(messages=data, codec=1)) for _ in range(8)),
    ]
    _run(_streams(address, "StreamWrite", [each.SerializeToString() for each in writing], 1, 1.0, True, 9))
    _run(_streams(address, "StreamRead", _reading(1 << 50, (0,)), 100, seconds, True, 0))
    return "100 sessions with endless credit that receive nothing"


def giant_init(address: Address, seconds: float) -> str:
    """First messages of 60 MB: topics and partitions, again and again."""
    settings = _Read.InitRequest.TopicReadSettings(path=PATH, partition_ids=range(1_000_000))
    large = _Read.FromClient(init_request=_Read.InitRequest(topics_read_settings=[settings] * 12, consumer=CONSUMER))
    message = large.SerializeToString()
    refused = _run(_streams(address, "StreamRead", [message], 8, seconds, True, 1))
    return f"8 first messages of {len(message) / MIB:.0f} MiB, {refused} refused"


def many_elements(address: Address, seconds: float) -> str:
    """First messages, and commits, just as large as they may be, of the smallest elements."""
    names = [_Read.InitRequest.TopicReadSettings() for _ in range(100_000)]
    init = _Read.FromClient(init_request=_Read.InitRequest(topics_read_settings=names, consumer=CONSUMER))
    parts = [_Read.CommitOffsetRequest.PartitionCommitOffset() for _ in range(100_000)]
    commit = _Read.FromClient(commit_offset_request=_Read.CommitOffsetRequest(commit_offsets=parts))
    _run(_streams(address, "StreamRead", [init.SerializeToString()], 20, seconds / 2, True, 1))
    commits = [*_reading(0), *[commit.SerializeToString()] * 20]
    _run(_streams(address, "StreamRead", commits, 10, seconds / 2, True, 1))
    return "30 sessions with messages of 100,000 empty elements"


def _reading(credit: int, partitions: tuple[int, ...] = ()) -> list[bytes]:
    """The messages of a session that starts the partitions that it is given first."""
    settings = _Read.InitRequest.TopicReadSettings(path=PATH, partition_ids=partitions)
    sent = [_Read.FromClient(init_request=_Read.InitRequest(topics_read_settings=[settings], consumer=CONSUMER))]
    if credit:
        sent.append(_Read.FromClient(read_request=_Read.ReadRequest(bytes_size=credit)))
    return [
        each.SerializeToString()
        for each in (
            *sent,
            _Read.FromClient(
                start_partition_session_response=_Read.StartPartitionSessionResponse(partition_session_id=1)
            ),
        )
    ]


ATTACKS: Final[dict[str, Callable[[Address, float], str]]] = {
    "YDB half-open streams": half_open,
    "YDB half-open streams, without a token": half_open_by_strangers,
    "YDB sessions of one token": many_sessions,
    "YDB unread messages": unread_messages,
    "YDB giant first messages": giant_init,
    "YDB many elements": many_elements,
}

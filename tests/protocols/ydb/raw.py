"""YDB's streams message by message, for what its SDKs never send, and the stubs to call anything."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import grpc
from ydb._grpc.common import ydb_auth_v1_pb2_grpc as auth_grpc
from ydb._grpc.common import ydb_topic_v1_pb2_grpc as topic_grpc
from ydb._grpc.common.protos import ydb_auth_pb2 as auth
from ydb._grpc.common.protos import ydb_status_codes_pb2 as status_codes
from ydb._grpc.common.protos import ydb_topic_pb2 as topic

Status = status_codes.StatusIds
Read = topic.StreamReadMessage
Write = topic.StreamWriteMessage
MessageData = Write.WriteRequest.MessageData
PATIENCE_SECONDS = 30.0
__all__ = ["MessageData", "RawStream", "RawYdb", "Read", "Status", "Write", "auth", "auth_grpc", "topic", "topic_grpc"]


class RawStream:
    """One stream: what is sent, and what comes back, in order."""

    def __init__(self, call: Any, kind: Any, metadata: list[tuple[str, str]]) -> None:
        self._kind = kind
        self._out: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.call = call(self._sent(), metadata=metadata)

    def _sent(self) -> Iterator[Any]:
        while (message := self._out.get()) is not None:
            yield message

    def send(self, **content: Any) -> None:
        """Send a message of the stream's kind."""
        self._out.put(self._kind.FromClient(**content))

    def receive(self) -> Any:
        """The next message; StopIteration at the end."""
        return next(self.call)

    def expect(self, kind: str) -> Any:
        """The next message, which must be of this kind."""
        message = self.receive()
        assert message.WhichOneof("server_message") == kind, message
        return getattr(message, kind)

    def ended(self) -> tuple[int, str]:
        """The status that the stream ended with, and its reason; what comes before that is skipped."""
        status, reason = Status.SUCCESS, ""
        for message in self.call:
            if message.status != Status.SUCCESS:
                status, reason = message.status, message.issues[0].message
        return status, reason

    def close_out(self) -> None:
        """End this side only."""
        self._out.put(None)

    def close(self) -> None:
        """Leave."""
        self.call.cancel()
        self._out.put(None)


class RawYdb:
    """A connection of its own to a server."""

    def __init__(self, endpoint: str, token: str | None = None, database: str = "/local") -> None:
        self.channel = grpc.insecure_channel(endpoint, options=[("grpc.use_local_subchannel_pool", 1)])
        self.metadata = [("x-ydb-database", database)] + ([("x-ydb-auth-ticket", token)] if token else [])
        self.stub = topic_grpc.TopicServiceStub(self.channel)
        self._streams: list[RawStream] = []

    def __enter__(self) -> RawYdb:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self._streams:
            stream.close()
        self.channel.close()

    def call(self, name: str, request: Any) -> Any:
        """The operation of a unary call."""
        return getattr(self.stub, name)(request, metadata=self.metadata, timeout=PATIENCE_SECONDS).operation

    def stream(self, name: str, kind: Any) -> RawStream:
        """A stream that has sent nothing."""
        stream = RawStream(getattr(self.stub, name), kind, self.metadata)
        self._streams.append(stream)
        return stream

    def writer(self, path: str, **options: Any) -> tuple[RawStream, Any]:
        """A write session, and the answer to its first message."""
        stream = self.stream("StreamWrite", Write)
        stream.send(init_request=Write.InitRequest(path=path, **options))
        return stream, stream.expect("init_response")

    def reader(self, path: str, consumer: str, credit: int = 1 << 20, **options: Any) -> RawStream:
        """A read session of one topic, with credit."""
        stream = self.stream("StreamRead", Read)
        settings = Read.InitRequest.TopicReadSettings(path=path, **options)
        stream.send(init_request=Read.InitRequest(topics_read_settings=[settings], consumer=consumer))
        stream.expect("init_response")
        if credit:
            stream.send(read_request=Read.ReadRequest(bytes_size=credit))
        return stream


def start(stream: RawStream, **options: Any) -> Any:
    """Let the session of the next partition begin; what was asked."""
    asked = stream.expect("start_partition_session_request")
    number = asked.partition_session.partition_session_id
    answer = Read.StartPartitionSessionResponse(partition_session_id=number, **options)
    stream.send(start_partition_session_response=answer)
    return asked


def messages(stream: RawStream, count: int) -> list[Any]:
    """So many messages, and the credit that each response took is given back."""
    found: list[Any] = []
    while len(found) < count:
        response = stream.expect("read_response")
        for part in response.partition_data:
            for batch in part.batches:
                found += batch.message_data
        stream.send(read_request=Read.ReadRequest(bytes_size=response.bytes_size))
    return found


def put(stream: RawStream, seqnos: list[int], data: bytes = b"v", codec: int = 1) -> Any:
    """Write messages with these numbers; the response."""
    written = [MessageData(seq_no=seqno, data=data) for seqno in seqnos]
    stream.send(write_request=Write.WriteRequest(messages=written, codec=codec))
    return stream.expect("write_response")


def commit_ranges(stream: RawStream, number: int, *ranges: tuple[int, int]) -> None:
    """Commit ranges of a partition session."""
    offsets = [topic.OffsetsRange(start=start, end=end) for start, end in ranges]
    part = Read.CommitOffsetRequest.PartitionCommitOffset(partition_session_id=number, offsets=offsets)
    stream.send(commit_offset_request=Read.CommitOffsetRequest(commit_offsets=[part]))

"""Every method that is served, by its full name: its messages, and what answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from headrace.protocols.ydb.call import YdbCall
from headrace.protocols.ydb.services import consumers, directories, discovery, topics
from headrace.protocols.ydb.sessions.read_session import stream_read
from headrace.protocols.ydb.sessions.write_session import stream_write
from headrace.protocols.ydb.statuses import Status, YdbRefusal, issues_of, status_of
from headrace.protocols.ydb.stubs import auth, operation, scheme, topic
from headrace.protocols.ydb.stubs import discovery as discovery_messages


class Method(NamedTuple):
    """A method: how it is run, and what it answers to an error.

    request: the type of its messages. is_public: whether it is served to strangers, who sign in by it.
    """

    name: str
    request: type[Message]
    run: Callable[[YdbCall], Awaitable[None]]
    failed: Callable[[Exception], Message]
    is_stream: bool = False
    is_public: bool = False


def _unary(
    name: str,
    request: type[Message],
    response: Any,
    answer: Callable[[YdbCall, Any], Awaitable[Message]],
    is_public: bool = False,
) -> Method:
    async def run(call: YdbCall) -> None:
        result = AnyMessage()
        result.Pack(await answer(call, await call.first(request)))
        done = operation.Operation(ready=True, status=Status.SUCCESS, result=result)
        await call.write(response(operation=done))

    def failed(error: Exception) -> Message:
        ended = operation.Operation(ready=True, status=status_of(error), issues=issues_of(error))
        refusal: Message = response(operation=ended)
        return refusal

    return Method(name, request, run, failed, is_public=is_public)


def _stream(name: str, request: type[Message], response: Any, run: Callable[[YdbCall], Awaitable[None]]) -> Method:
    def failed(error: Exception) -> Message:
        refusal: Message = response(status=status_of(error), issues=issues_of(error))
        return refusal

    return Method(name, request, run, failed, is_stream=True)


async def _without_transactions(call: YdbCall, request: topic.UpdateOffsetsInTransactionRequest) -> Message:
    raise YdbRefusal(Status.UNSUPPORTED, "there are no transactions here: commit offsets without one")


_TOPIC, _SCHEME = "/Ydb.Topic.V1.TopicService/", "/Ydb.Scheme.V1.SchemeService/"
_DISCOVERY, _AUTH = "/Ydb.Discovery.V1.DiscoveryService/", "/Ydb.Auth.V1.AuthService/"

METHODS: Final[dict[str, Method]] = {
    service + method.name: method
    for service, methods in {
        _TOPIC: (
            _unary("CreateTopic", topic.CreateTopicRequest, topic.CreateTopicResponse, topics.create_topic),
            _unary("AlterTopic", topic.AlterTopicRequest, topic.AlterTopicResponse, topics.alter_topic),
            _unary("DropTopic", topic.DropTopicRequest, topic.DropTopicResponse, topics.drop_topic),
            _unary("DescribeTopic", topic.DescribeTopicRequest, topic.DescribeTopicResponse, topics.describe_topic),
            _unary(
                "DescribeConsumer",
                topic.DescribeConsumerRequest,
                topic.DescribeConsumerResponse,
                consumers.describe_consumer,
            ),
            _unary("CommitOffset", topic.CommitOffsetRequest, topic.CommitOffsetResponse, consumers.commit_offset),
            _unary(
                "UpdateOffsetsInTransaction",
                topic.UpdateOffsetsInTransactionRequest,
                topic.UpdateOffsetsInTransactionResponse,
                _without_transactions,
            ),
            _stream(
                "StreamWrite",
                topic.StreamWriteMessage.FromClient,
                topic.StreamWriteMessage.FromServer,
                stream_write,
            ),
            _stream("StreamRead", topic.StreamReadMessage.FromClient, topic.StreamReadMessage.FromServer, stream_read),
        ),
        _DISCOVERY: (
            _unary(
                "ListEndpoints",
                discovery_messages.ListEndpointsRequest,
                discovery_messages.ListEndpointsResponse,
                discovery.list_endpoints,
            ),
            _unary("WhoAmI", discovery_messages.WhoAmIRequest, discovery_messages.WhoAmIResponse, discovery.who_am_i),
        ),
        _AUTH: (_unary("Login", auth.LoginRequest, auth.LoginResponse, discovery.log_in, is_public=True),),
        _SCHEME: (
            _unary("DescribePath", scheme.DescribePathRequest, scheme.DescribePathResponse, directories.describe_path),
            _unary(
                "ListDirectory", scheme.ListDirectoryRequest, scheme.ListDirectoryResponse, directories.list_directory
            ),
            _unary(
                "MakeDirectory", scheme.MakeDirectoryRequest, scheme.MakeDirectoryResponse, directories.make_directory
            ),
            _unary(
                "RemoveDirectory",
                scheme.RemoveDirectoryRequest,
                scheme.RemoveDirectoryResponse,
                directories.remove_directory,
            ),
        ),
    }.items()
    for method in methods
}

"""A server that only acknowledges: the fastest that YDB's SDK can have. `python -m bench.ydb.acknowledging`.

It tells clients of itself, opens every write session, and acknowledges what arrives; nothing is checked or kept.
Prints its port once it listens, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import uvloop
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from headrace.protocols.ydb.statuses import Status
from headrace.protocols.ydb.stubs import discovery, operation, topic

_Write = topic.StreamWriteMessage


async def write(requests: AsyncIterator[Any], _: Any) -> AsyncIterator[Message]:
    """StreamWrite."""
    offset = 0
    async for request in requests:
        if request.HasField("init_request"):
            codecs = topic.SupportedCodecs(codecs=[1])
            opened = _Write.InitResponse(session_id="s", partition_id=0, supported_codecs=codecs)
            yield _Write.FromServer(status=Status.SUCCESS, init_response=opened)
            continue
        acks = []
        for message in request.write_request.messages:
            written = _Write.WriteResponse.WriteAck.Written(offset=offset)
            acks.append(_Write.WriteResponse.WriteAck(seq_no=message.seq_no, written=written))
            offset += 1
        statistics = _Write.WriteResponse.WriteStatistics()
        response = _Write.WriteResponse(acks=acks, partition_id=0, write_statistics=statistics)
        yield _Write.FromServer(status=Status.SUCCESS, write_response=response)


def endpoints(port: Callable[[], int]) -> Callable[[Any, Any], Any]:
    """ListEndpoints of a server at a port."""

    async def list_endpoints(_: Any, __: Any) -> Message:
        here = discovery.EndpointInfo(address="127.0.0.1", port=port(), node_id=1, service=["topic"])
        result = AnyMessage()
        result.Pack(discovery.ListEndpointsResult(endpoints=[here]))
        done = operation.Operation(ready=True, status=Status.SUCCESS, result=result)
        return discovery.ListEndpointsResponse(operation=done)

    return list_endpoints


async def serve() -> None:
    """Serve until the standard input ends."""
    server, ports = grpc.aio.server(), list[int]()
    stream = grpc.stream_stream_rpc_method_handler(
        write, _Write.FromClient.FromString, lambda message: message.SerializeToString()
    )
    unary = grpc.unary_unary_rpc_method_handler(
        endpoints(lambda: ports[0]),
        discovery.ListEndpointsRequest.FromString,
        lambda message: message.SerializeToString(),
    )
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler("Ydb.Topic.V1.TopicService", {"StreamWrite": stream}),
            grpc.method_handlers_generic_handler("Ydb.Discovery.V1.DiscoveryService", {"ListEndpoints": unary}),
        )
    )
    ports.append(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    print(ports[0], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0.0)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())

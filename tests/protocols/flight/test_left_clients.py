"""Clients that leave while the server works for them: that is no error of the server, and nothing in its log."""

from __future__ import annotations

import logging
import threading
from typing import Any

import grpc
import pyarrow as pa
import pytest

from headrace.broker import Broker
from headrace.broker.publish.intake import TopicIntake
from headrace.protocols.flight.server import FlightServer
from headrace.wire.tickets import Publish, encode
from tests.edge.raw_flight import flight_data
from tests.edge.streams import stream_of, values

# Until the server knows; if it is slower, there is nothing to be seen.
LEFT_SECONDS = 0.5


def test_a_client_that_leaves_before_its_answer_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    has_begun, has_left = threading.Event(), threading.Event()
    with Broker.open("memory:") as broker:
        broker.create_topic("orders")
        result = TopicIntake.result

        def slow(*args: Any) -> Any:
            has_begun.set()
            has_left.wait(60.0)
            threading.Event().wait(LEFT_SECONDS)
            return result(*args)

        monkeypatch.setattr(TopicIntake, "result", slow)
        server = FlightServer(broker, broker.access, "grpc+tcp://127.0.0.1:0")
        channel = grpc.insecure_channel(f"127.0.0.1:{server.port}")
        put = channel.stream_stream("/arrow.flight.protocol.FlightService/DoPut")
        stream = stream_of(pa.record_batch({"value": values(2)}))
        with caplog.at_level(logging.INFO):
            call = put(flight_data(encode(Publish("orders")), stream))
            assert has_begun.wait(60.0)
            call.cancel()
            channel.close()
            has_left.set()
            assert server.stop(60.0)
        assert broker.offsets("orders")[0][1] == 2
    assert "failed" not in caplog.text

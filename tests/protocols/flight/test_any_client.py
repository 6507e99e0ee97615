"""Flight as any client of it sees it: topics as flights, an endpoint per partition, actions, and clear refusals."""

from __future__ import annotations

import json
import threading

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import flight

from headrace.broker import Broker
from headrace.core.errors import Closed, HeadraceError, InvalidInput, TopicNotFound
from headrace.protocols.flight.server import FlightServer
from headrace.wire.answers import decode_answer
from headrace.wire.errors import decode_error, encode_error
from headrace.wire.operations import OPERATIONS
from headrace.wire.tickets import Publish, Read, encode
from tests.broker.background import eventually

VALUES = pa.record_batch({"value": pa.array([b"a", b"b", b"c"])})


def carried(error: flight.FlightError) -> HeadraceError:
    found = decode_error(error.extra_info)
    assert found is not None, error
    return found


def put(plain: flight.FlightClient, command: bytes, batch: pa.RecordBatch = VALUES) -> list[pa.Buffer]:
    """Upload one batch; its answers."""
    writer, reader = plain.do_put(flight.FlightDescriptor.for_command(command), batch.schema)
    writer.write_batch(batch)
    writer.done_writing()
    answers = []
    while (answer := reader.read()) is not None:
        answers.append(answer)
    writer.close()
    return answers


def test_topic_is_read_in_parallel_by_its_endpoints(broker: Broker, plain: flight.FlightClient) -> None:
    broker.create_topic("parallel", partitions=3)
    broker.publish("parallel", pa.record_batch({"value": pa.array([b"%d" % n for n in range(300)])}))
    info = plain.get_flight_info(flight.FlightDescriptor.for_path("parallel"))
    assert (len(info.endpoints), info.total_records) == (3, 300)
    parts = [plain.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
    assert sorted(int(value) for part in parts for value in part["value"].to_pylist()) == list(range(300))
    assert b"parallel" in [listed.descriptor.path[0] for listed in plain.list_flights()]
    assert {action.type for action in plain.list_actions()} == set(OPERATIONS)


def test_a_topic_that_is_deleted_meanwhile_is_left_out_of_the_list(
    broker: Broker, plain: flight.FlightClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("stays")
    monkeypatch.setattr(broker, "list_topics", lambda: ["gone", "stays"])
    assert [listed.descriptor.path for listed in plain.list_flights()] == [[b"stays"]]


def test_the_list_of_a_broker_that_is_closed_carries_its_error() -> None:
    closed = Broker.open("memory:")
    server = FlightServer(closed, closed.access, "grpc+tcp://127.0.0.1:0")
    closed.close()
    with flight.FlightClient(f"grpc+tcp://127.0.0.1:{server.port}") as client:
        with pytest.raises(flight.FlightError) as refused:
            list(client.list_flights())
        assert isinstance(carried(refused.value), Closed)
    assert server.stop(10.0)


def test_read_gives_the_columns_that_are_asked_for(broker: Broker, plain: flight.FlightClient) -> None:
    broker.create_topic("columns")
    broker.publish("columns", VALUES)
    table = plain.do_get(flight.Ticket(encode(Read("columns", 0, 0, columns=["offset", "value"])))).read_all()
    assert table.column_names == ["offset", "value"]
    for wrong in (["nothing"], [], ["value", "value"]):
        with pytest.raises(flight.FlightError) as refused:
            plain.do_get(flight.Ticket(encode(Read("columns", 0, 0, columns=wrong)))).read_all()
        assert isinstance(carried(refused.value), InvalidInput)


def test_batch_that_is_refused_is_answered_and_the_stream_continues(broker: Broker, plain: flight.FlightClient) -> None:
    broker.create_topic("refused", message_bytes_max=5)
    descriptor = flight.FlightDescriptor.for_command(encode(Publish("refused")))
    writer, reader = plain.do_put(descriptor, VALUES.schema)
    for values in ([b"good"], [b"much too large"], [b"fine"]):
        writer.write_batch(pa.record_batch({"value": pa.array(values)}))
    answers = [decode_answer(reader.read()) for _ in range(3)]
    writer.close()
    assert isinstance(answers[1], InvalidInput)
    assert [isinstance(answer, HeadraceError) for answer in answers] == [False, True, False]


def test_topic_that_is_not_there_is_said_as_an_answer_and_as_the_end(plain: flight.FlightClient) -> None:
    with pytest.raises(flight.FlightError) as refused:
        put(plain, encode(Publish("nothing")))
    assert isinstance(carried(refused.value), TopicNotFound)


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"key": pa.array([b"no value"])}),
        pa.record_batch({"value": pa.array([1, 2])}),
        pa.record_batch({"value": pa.array([b"v"]), "colour": pa.array(["red"])}),
        pa.record_batch({"value": pa.array([b"v"]), "seqno": pa.array([1])}),
        pa.RecordBatch.from_arrays([pa.array([b"v"]), pa.array([b"w"])], names=["value", "value"]),
        pa.RecordBatch.from_arrays([], names=[]),
    ],
)
def test_batches_of_the_wrong_shape_are_refused(
    broker: Broker, plain: flight.FlightClient, batch: pa.RecordBatch
) -> None:
    broker.create_topic("shapes")
    answers = [decode_answer(answer) for answer in put(plain, encode(Publish("shapes")), batch)]
    assert all(isinstance(answer, InvalidInput) for answer in answers)
    assert broker.offsets("shapes") == {0: (0, 0)}


@pytest.mark.parametrize("kind", [pa.list_(pa.binary()), pa.struct([("a", pa.binary())]), pa.json_()])
def test_nested_columns_end_the_stream_before_any_of_it_is_decoded(
    broker: Broker, plain: flight.FlightClient, kind: pa.DataType
) -> None:
    broker.create_topic("nested")
    with pytest.raises(flight.FlightError) as refused:
        put(plain, encode(Publish("nested")), pa.record_batch({"value": pa.nulls(1, kind)}))
    error = carried(refused.value)
    assert isinstance(error, InvalidInput) and error.field == "value"
    assert broker.offsets("nested") == {0: (0, 0)}
    broker.delete_topic("nested")


def test_text_that_is_not_text_and_offsets_that_lie_are_refused(broker: Broker, plain: flight.FlightClient) -> None:
    broker.create_topic("lies")
    offsets = pa.py_buffer(np.array([0, 100_000, 2], np.int32))
    liar = pa.BinaryArray.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"ab")])
    text = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe"))
    batches = [
        pa.RecordBatch.from_arrays([liar], names=["value"]),
        pa.RecordBatch.from_arrays([pa.array([b"v"]), text], names=["value", "producer_id"]),
    ]
    for batch in batches:
        try:
            answers = [decode_answer(answer) for answer in put(plain, encode(Publish("lies")), batch)]
        except (flight.FlightError, pa.ArrowException):
            continue
        assert all(isinstance(answer, HeadraceError) for answer in answers)
    assert broker.offsets("lies") == {0: (0, 0)}
    assert len(put(plain, encode(Publish("lies")))) == 1


NOISE = st.binary(max_size=60) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
).map(lambda value: json.dumps(value).encode())
CLOSE_TO_RIGHT = st.fixed_dictionaries(
    {"type": st.sampled_from(["read", "follow", "publish", "stage"]), "topic": st.text(max_size=4)},
    optional={
        "partition": st.integers(-5, 5) | st.text(max_size=2),
        "offset": st.integers(-5, 1 << 70),
        "end": st.integers(-5, 5),
        "max_messages": st.integers(-1, 1 << 40),
        "positions": st.dictionaries(st.integers(-3, 3).map(str), st.integers(-3, 3), max_size=2),
        "stage": st.text(max_size=3),
        "epoch": st.integers(-5, 5),
    },
).map(lambda value: json.dumps(value).encode())


def raise_refusals(answers: list[pa.Buffer]) -> None:
    for answer in answers:
        refusal = decode_answer(answer)
        if isinstance(refusal, HeadraceError):
            raise flight.FlightServerError(str(refusal), encode_error(refusal))


# Where every field has a default, {} is right.
_ASKING = [name for name, kind in OPERATIONS.items() if any(field.required for field in msgspec.structs.fields(kind))]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=NOISE | CLOSE_TO_RIGHT, action=st.sampled_from([*_ASKING, "nonsense"]))
def test_noise_of_any_kind_gets_an_error_of_ours(plain: flight.FlightClient, body: bytes, action: str) -> None:
    for ask in (
        lambda: plain.do_get(flight.Ticket(body), flight.FlightCallOptions(timeout=60)).read_all(),
        lambda: raise_refusals(put(plain, body)),
        lambda: list(plain.do_action(flight.Action(action, body), flight.FlightCallOptions(timeout=60))),
        lambda: plain.get_flight_info(flight.FlightDescriptor.for_command(body)),
    ):
        with pytest.raises(flight.FlightError) as refused:
            ask()
        assert isinstance(carried(refused.value), HeadraceError)


def test_server_has_no_threads_left_over(server: FlightServer) -> None:
    eventually(lambda: "headrace-flight-upload" not in {thread.name for thread in threading.enumerate()})
    eventually(lambda: server.streams_open == 0)

"""Calls of every operation over Flight, made from the tables of operations and tickets."""

from __future__ import annotations

from typing import Any, Final, get_args

import pyarrow as pa
from pyarrow import flight

from headrace.edge.operations import OPERATIONS as NEEDS
from headrace.wire import operations as wire
from headrace.wire import tickets
from tests.hostile.target import Address

SECONDS_MAX: Final = 20.0
# A stream that does not end is read for so long.
STREAM_SECONDS: Final = 0.5
KINDS: Final[dict[str, Any]] = wire.OPERATIONS | {
    str(kind.__struct_config__.tag): kind for kind in (*get_args(tickets.Reading), *get_args(tickets.Upload))
}
READING: Final = {str(kind.__struct_config__.tag) for kind in get_args(tickets.Reading)}


def called(address: Address, name: str, body: bytes) -> int:
    """Call an operation; the size of the answer."""
    token = "admin" if NEEDS[name].full_access else "attacker"
    headers = [(b"authorization", f"Bearer {address.tokens[token]}".encode())]
    options = flight.FlightCallOptions(headers=headers, timeout=STREAM_SECONDS if name in READING else SECONDS_MAX)
    with flight.FlightClient(f"grpc+tcp://127.0.0.1:{address.flight}") as client:
        if name in wire.OPERATIONS:
            return sum(len(answer.body) for answer in client.do_action(flight.Action(name, body), options))
        if name in READING:
            return sum(chunk.data.nbytes for chunk in client.do_get(flight.Ticket(body), options))
        batch = pa.record_batch({"value": [b"x"]})
        writer, reader = client.do_put(flight.FlightDescriptor.for_command(body), batch.schema, options)
        with writer:
            writer.write_batch(batch)
            writer.done_writing()
            return len(reader.read() or b"")

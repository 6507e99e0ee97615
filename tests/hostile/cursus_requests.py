"""Requests of every command of cursus' protocol, and batches: as clients send them, long ones, and spoiled ones.

`SERVED_TEXTS` has a line for each command of the table, with names of things that exist; a test fails if one lacks it.
"""

from __future__ import annotations

import struct
from random import Random
from typing import Final

from tests.hostile.fuzz_inputs import FALSE_LENGTH, FALSE_LENGTHS, PIPELINED, SIZE, spoiled
from tests.hostile.target import DOOMED, GROUP, NARROW, WIDE, Address
from tests.protocols.cursus.raw import batch, records

_MEMBER: Final = f"topic={NARROW} group=scratch-cursus member=m-1234"
EVENTS: Final = "scratch-events"
_STREAM: Final = f"topic={EVENTS} key=k"
_TRANSACTION: Final = "transactional_id=x producerId=txn-1-00000000 epoch=0"
SERVED_TEXTS: Final = {
    "PROTOCOL_INFO": "",
    "NEGOTIATE": "version=1 features=structured_errors_v1,stream_control_v1 require_features=false",
    "AUTH": "principal=p token=t",
    "HELP": "",
    "CREATE": f"topic={EVENTS} partitions=4 event_sourcing=true",
    "DELETE": f"topic={DOOMED}",
    "LIST": "",
    "PUBLISH": f"topic={NARROW} producerId=p acks=1 key=k seqNum=1 epoch=1 isIdempotent=true message=one two",
    "CONSUME": f"topic={NARROW} partition=0 offset=0 member=m group=g batch=100 wait_ms=10 autoOffsetReset=earliest",
    "STREAM": f"topic={NARROW} partition=0 group=g offset=0 batch=10",
    "JOIN_GROUP": f"topic={NARROW} group=scratch-cursus member=m",
    "SYNC_GROUP": f"{_MEMBER} generation=1",
    "LEAVE_GROUP": _MEMBER,
    "HEARTBEAT": f"{_MEMBER} generation=1",
    "COMMIT_OFFSET": f"{_MEMBER} generation=1 partition=0 offset=0",
    "BATCH_COMMIT": f"{_MEMBER} generation=1 P0:0,P1:0,P2:0",
    "FETCH_OFFSET": f"topic={WIDE} partition=0 group={GROUP}",
    "LIST_OFFSETS": f"topic={NARROW} partition=0",
    "REGISTER_GROUP": f"topic={NARROW} group=scratch-cursus",
    "GROUP_STATUS": "group=scratch-cursus",
    "LIST_GROUPS": "",
    "DESCRIBE": f"topic={NARROW}",
    "METADATA": f"topic={NARROW}",
    "FIND_COORDINATOR": "group=g",
    "APPEND_STREAM": f"{_STREAM} version=1 event_type=t schema_version=1 producerId=p metadata=m message=x",
    "READ_STREAM": f"{_STREAM} from_version=1",
    "STREAM_VERSION": _STREAM,
    "SAVE_SNAPSHOT": f"{_STREAM} version=1 message=x",
    "READ_SNAPSHOT": _STREAM,
    "INIT_PRODUCER_ID": "transactional_id=x",
    "BEGIN_TXN": _TRANSACTION,
    "TXN_PUBLISH": f"{_TRANSACTION} topic={NARROW} partition=-1 seqNum=1 message=x",
    "SEND_OFFSETS_TO_TXN": f"{_TRANSACTION} topic={NARROW} group=g member=m generation=1 P0:0",
    "END_TXN": f"{_TRANSACTION} result=commit",
    "TXN_STATUS": "transactional_id=x",
}


def enveloped(text: str) -> bytes:
    """A command as clients send it, without its length."""
    return b"\0\0" + text.encode()


def every_body() -> list[bytes]:
    """A request of each command, bare and in an envelope, and batches of several shapes."""
    texts = [f"{name} {fields}".strip() for name, fields in SERVED_TEXTS.items()]
    batches = [
        batch(NARROW, records(count, first, size=size), partition, acks, is_idempotent)
        for count, first, size, partition, acks, is_idempotent in (
            (1, 1, 0, 0, "1", False),
            (3, 1, 10, 1, "0", True),
            (200, 1, 100, 2, "-1", True),
            (2, 0, 70_000, 3, "all", False),
        )
    ]
    return [*map(str.encode, texts), *map(enveloped, texts), *batches]


def login(address: Address) -> bytes:
    """The frame that signs a connection in."""
    return framed(enveloped(f"AUTH principal=attacker token={address.tokens['attacker']}"))


def framed(body: bytes) -> bytes:
    """A body with its length before it."""
    return struct.pack(">I", len(body)) + body


class CursusInputs:
    """Requests after a login, or without one."""

    def __init__(self, address: Address) -> None:
        self._login = login(address)
        self._pool = every_body()

    def made(self, random: Random) -> bytes:
        """What is sent over one connection."""
        count = random.randrange(2, 6) if random.randrange(100) < PIPELINED else 1
        requests = b"".join(self._framed(spoiled(self._pool, random), random) for _ in range(count))
        return (self._login if random.random() < 0.95 else b"") + requests

    def _framed(self, body: bytes, random: Random) -> bytes:
        is_false = random.randrange(100) < FALSE_LENGTH
        return SIZE.pack(random.choice(FALSE_LENGTHS) if is_false else len(body)) + body

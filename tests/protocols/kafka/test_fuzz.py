"""Spoiled requests of every API and version: none ends the server, and none is a surprise to it."""

from __future__ import annotations

import logging
import struct
from random import Random

import pytest

from headrace.protocols.kafka.apis.table import APIS
from headrace.protocols.kafka.messages.schema import request_schema
from tests.protocols.kafka.conftest import Site
from tests.protocols.kafka.messages.test_messages import filled, written
from tests.protocols.kafka.raw import RawClient

ROUNDS = 4
METADATA = 3


def frames(random: Random) -> list[bytes]:
    """Requests as they should be, and with a few bytes changed."""
    made = []
    for key, api in APIS.items():
        for version in api.versions:
            schema = request_schema(key, version)
            body = written(schema.struct, filled(schema.struct))
            head = struct.pack(">hhih", key, version, 7, -1) + (b"\x00" if schema.has_flexible_header else b"")
            made.append(head + body)
            made += [head + spoiled(body, random) for _ in range(ROUNDS)]
    return made


def spoiled(body: bytes, random: Random) -> bytes:
    changed = bytearray(body)
    for _ in range(random.choice([1, 1, 2, 4])):
        if changed:
            place = random.randrange(len(changed))
            changed[place] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
    return bytes(changed)


def test_spoiled_requests_surprise_nobody(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for frame in frames(Random(5)):
            with RawClient(site.port) as client:
                client.send(struct.pack(">i", len(frame)) + frame)
                # One that is still waited for goes with its client; whatever comes back is fine.
                client.finish()
        with RawClient(site.port) as other:
            assert other.call(METADATA, 12, topics=[]).controller_id == 0
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []

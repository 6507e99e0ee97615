"""What one request of cursus' protocol costs at most, with its words, texts, records and partitions at their most.

It is a good outcome if a request is refused.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest

from headrace.core.limits import PARTITIONS_MAX
from headrace.protocols.cursus.commands.table import PUBLIC, SERVED
from headrace.protocols.cursus.settings import FRAME_BYTES_MAX
from tests.hostile.cost import KEPT_BYTES_MAX, Attack, Trial
from tests.hostile.cursus_requests import SERVED_TEXTS, enveloped, framed, login
from tests.hostile.target import GROUP, NARROW, WIDE, Address
from tests.protocols.cursus.raw import batch, records

ANSWER_SECONDS = 20.0
KEPT = 4


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    with Trial(tmp_path_factory.mktemp("cost")) as trial:
        yield trial


def sent(request: bytes) -> Attack:
    """An attack that signs in and sends a request; the size of the answer, 0 if the connection is closed."""

    def attack(address: Address) -> int:
        with suppress(OSError), socket.create_connection(("127.0.0.1", address.cursus), ANSWER_SECONDS) as connected:
            connected.sendall(login(address) + request)
            answers = connected.makefile("rb")
            with answers:
                for _ in range(2):
                    head = answers.read(4)
                    size = struct.unpack(">I", head)[0] if len(head) == 4 else 0
                    answers.read(size)
            return size
        return 0

    return attack


def filled(text: str, size: int) -> bytes:
    """A request of so many bytes: the text again and again."""
    return framed(enveloped((text * (size // len(text) + 1))[: size - 2]))


def test_a_request_of_every_command_is_known() -> None:
    assert SERVED_TEXTS.keys() == {*SERVED, *PUBLIC}


ATTACKS = {
    "a million keys": filled("LIST " + "k1=v " * 200, FRAME_BYTES_MAX),
    "a million words": filled("BATCH_COMMIT topic=t group=g member=m generation=1 " + "P1:1 " * 50_000, 256 << 10),
    "a long word": filled("x" * 1000, FRAME_BYTES_MAX),
    "a long name": framed(struct.pack(">H", 65_535) + b"x" * 65_535 + b"LIST"),
    "a long topic": framed(enveloped("METADATA topic=" + "\u00fc" * 100_000)),
    "a long member": framed(enveloped(f"JOIN_GROUP topic={NARROW} group=g member=" + "m" * 200_000)),
    "a long key": framed(enveloped(f"PUBLISH topic={NARROW} producerId=p key={'k' * 200_000} message=x")),
    "a long message": filled(f"PUBLISH topic={NARROW} producerId=p partition=0 message=" + "x" * 1000, FRAME_BYTES_MAX),
    "a message of blanks": framed(enveloped("PUBLISH topic=t message=" + " " * (FRAME_BYTES_MAX - 100))),
    "many messages": framed(enveloped("PUBLISH " + "xmessage=" * 1_500_000)),
    "many records": framed(batch(NARROW, records(300_000, producer=""))),
    "many numbered records": framed(batch(NARROW, records(200_000), is_idempotent=True)),
    "few long records": framed(batch(NARROW, records(15, size=1 << 20))),
    "a long event": framed(enveloped(f"APPEND_STREAM topic={NARROW} key={'k' * 5_000} version=1 message=x")),
    "metadata of many partitions": framed(enveloped(f"METADATA topic={WIDE}")),
    "a description of many partitions": framed(enveloped(f"DESCRIBE topic={WIDE}")),
    "offsets of many partitions": framed(enveloped(f"LIST_OFFSETS topic={WIDE}")),
    "a member of many partitions": framed(enveloped(f"JOIN_GROUP topic={WIDE} group=many member=m")),
    "a group of many partitions": framed(enveloped(f"GROUP_STATUS group={GROUP}")),
    "commits of many partitions": framed(
        enveloped(
            f"BATCH_COMMIT topic={WIDE} group={GROUP} member=m generation=1 "
            + ",".join(f"P{number}:0" for number in range(PARTITIONS_MAX))
        )
    ),
    "a frame of 2^32 - 1 bytes": struct.pack(">I", (1 << 32) - 1) + b"x" * 1000,
    "a frame above the limit": struct.pack(">I", FRAME_BYTES_MAX + 1) + b"x" * 1000,
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_request_of_any_size_costs_little(trial: Trial, name: str) -> None:
    memory = trial.address.memory_bytes()
    for _ in range(KEPT):
        cost = trial.cost(sent(ATTACKS[name]))
        print(f"{name}: {cost}")
        assert cost.excess() == {}
    assert trial.kept_bytes(memory) <= KEPT_BYTES_MAX

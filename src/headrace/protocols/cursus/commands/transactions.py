"""Transactions: messages to one topic, kept here until they are written in one commit, or dropped.

    INIT_PRODUCER_ID ─► ready ─► BEGIN_TXN ─► open ─► TXN_PUBLISH … ─► END_TXN ─► committed, or aborted

A commit is one atomic append to one topic, over any of its partitions: so a transaction has one topic, and offsets of
groups cannot be part of it; both are refused by name. What is staged is in the memory of this server, and is gone if
that ends: then nothing was written. What was committed is known afterwards too, since the commit has a key: the caller
and the transactional id, a number that each INIT_PRODUCER_ID makes higher, and 32 random bits of the producer. So
END_TXN may be repeated, also after a restart, and a producer that another one has replaced cannot commit.

A caller's transactional ids are its own. Belongs to the event loop.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from headrace.broker import Broker
from headrace.core.errors import CommitConflict
from headrace.core.limits import LAST_COMMITS_TOPICS_MAX
from headrace.core.publish.state import CommitKey
from headrace.edge.envelope.byte_budget import HeldBytes
from headrace.protocols.cursus.call import CursusCall
from headrace.protocols.cursus.commands.publish import chosen_partition, hold_back
from headrace.protocols.cursus.errors import CursusRefusal, Quoted
from headrace.protocols.cursus.messages.command import Command

IDLE_SECONDS: Final = 900.0
# Of one caller, and of all.
CALLER_TRANSACTIONS_MAX: Final = 1_000
TRANSACTIONS_MAX: Final = 10_000
MESSAGES_MAX: Final = 10_000
_ID_CHARACTERS_MAX: Final = 255
_MESSAGE_OVERHEAD_BYTES: Final = 256
_PRODUCER: Final = re.compile(r"txn-(\d{1,10})-([0-9a-f]{8})")
_FINGERPRINT_BITS: Final = 32

READY, OPEN, COMMITTING, COMMITTED, ABORTED = "ready", "open", "committing", "committed", "aborted"
TransactionKey = tuple[str, str]
_Row = tuple[int, bytes | None, bytes]


@dataclass(slots=True, eq=False)
class Transaction:
    """What one producer does between INIT_PRODUCER_ID and END_TXN."""

    id: str
    commit: CommitKey
    epoch: int
    held: HeldBytes
    touched: float
    state: str = READY
    topic: str = ""
    rows: list[_Row] = field(default_factory=list)
    count: int = 0
    last_number: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def producer(self) -> str:
        """The id of the producer, which has the key of its commit in it."""
        return f"txn-{self.commit.number}-{self.commit.fingerprint:08x}"

    def drop(self) -> None:
        """Keep nothing that was staged."""
        self.rows = []
        self.held.shrink()


class OpenTransactions:
    """The transactions of a server."""

    def __init__(self) -> None:
        # Least recently used first.
        self._known: dict[TransactionKey, Transaction] = {}
        self._by_caller: Counter[str] = Counter()

    def begin_anew(self, call: CursusCall, transactional_id: str, number: int) -> Transaction:
        """A new producer for a transactional id; what the one before had staged is dropped."""
        now, key = time.monotonic(), (call.principal.name, transactional_id)
        self._expire(now)
        before = self._remove(key)
        full = self._by_caller[call.principal.name] >= CALLER_TRANSACTIONS_MAX
        if full or len(self._known) >= TRANSACTIONS_MAX:
            reason = f"there are too many transactional ids: {CALLER_TRANSACTIONS_MAX} of a token, {TRANSACTIONS_MAX}"
            raise CursusRefusal("init_producer_failed", True, reason=Quoted(reason))
        commit = CommitKey(_writer(call, transactional_id), number, secrets.randbits(_FINGERPRINT_BITS))
        held = HeldBytes(call.parts.envelope.decompressed, call.principal.name)
        epoch = 0 if before is None else before.epoch + 1
        made = self._known[key] = Transaction(transactional_id, commit, epoch, held, now)
        self._by_caller[key[0]] += 1
        return made

    def find(self, call: CursusCall, transactional_id: str) -> Transaction | None:
        """The transaction of an id, if this server has it."""
        self._expire(time.monotonic())
        key = call.principal.name, transactional_id
        found = self._known.pop(key, None)
        if found is not None:
            found.touched = time.monotonic()
            self._known[key] = found
        return found

    def _expire(self, now: float) -> None:
        while self._known:
            key, oldest = next(iter(self._known.items()))
            if now - oldest.touched < IDLE_SECONDS or oldest.lock.locked():
                return
            self._remove(key)

    def _remove(self, key: TransactionKey) -> Transaction | None:
        found = self._known.pop(key, None)
        if found is not None:
            found.drop()
            self._by_caller[key[0]] -= 1
            if not self._by_caller[key[0]]:
                del self._by_caller[key[0]]
        return found


async def init_producer_id(call: CursusCall, command: Command) -> str:
    """A producer that replaces any other of the same transactional id."""
    transactional_id, transactions = _id_of(command), call.parts.transactions
    last = await call.work(_last_commit, call.broker, _writer(call, transactional_id))
    before = transactions.find(call, transactional_id)
    known = 0 if before is None else before.commit.number
    made = transactions.begin_anew(call, transactional_id, max(known, 0 if last is None else last.number) + 1)
    return f"OK transactional_id={made.id} producerId={made.producer} epoch={made.epoch}"


async def begin(call: CursusCall, command: Command) -> str:
    """Begin the transaction of this epoch; there is one in each."""
    found = _found(call, command)
    if found.state != READY:
        raise CursusRefusal("producer_reinitialization_required", transactional_id=found.id, epoch=found.epoch)
    found.state = OPEN
    return f"OK transactional_id={found.id} state=open producerId={found.producer} epoch={found.epoch}"


async def publish(call: CursusCall, command: Command) -> str:
    """Stage a message."""
    transactional_id, topic = _id_of(command), command.required("topic")
    if not command.message:
        raise CursusRefusal("missing_message", command=command.name)
    call.require("publish", topic, producer=_writer(call, transactional_id))
    reader = await call.reader(topic)
    key = command.get("key").encode()
    await hold_back(call, command.size)
    found = _found(call, command)
    if found.state != OPEN:
        raise CursusRefusal("transaction_publish_failed", reason=Quoted(f"the transaction is {found.state}, not open"))
    if found.topic not in ("", reader.name):
        reason = f"a transaction has one topic here, and this one writes to {found.topic}: use another for {topic}"
        raise CursusRefusal("transaction_publish_failed", reason=Quoted(reason))
    if len(found.rows) >= MESSAGES_MAX:
        raise CursusRefusal("transaction_publish_failed", reason=Quoted(f"a transaction has {MESSAGES_MAX} messages"))
    partition, number = chosen_partition(call, reader, command, key), command.number("seqNum", "invalid_seq_num", 0)
    if not number or number > found.last_number:
        size = len(command.message) + len(key) + _MESSAGE_OVERHEAD_BYTES
        found.held.budget.add(size, found.held.owner)
        found.held.bytes += size
        found.topic, found.last_number = reader.name, number or found.last_number
        found.rows.append((partition, key or None, command.message))
    return f"OK transactional_id={transactional_id} staged_messages=1 topic={reader.name} partition={partition}"


async def send_offsets(_: CursusCall, command: Command) -> str:
    """Offsets cannot be part of a transaction."""
    _id_of(command)
    reason = "offsets are not part of a transaction here: commit them after it"
    raise CursusRefusal("transaction_offsets_failed", reason=Quoted(reason))


async def end(call: CursusCall, command: Command) -> str:
    """Commit or abort; may be repeated."""
    transactional_id, result = _id_of(command), command.get("result").lower() or "commit"
    if result not in ("commit", "abort"):
        raise CursusRefusal("invalid_transaction_result", value=result[:100])
    found = call.parts.transactions.find(call, transactional_id)
    if found is None:
        return await _end_of_unknown(call, command, transactional_id, result)
    _check_producer(found, command)
    async with found.lock:
        if result == "abort":
            return _aborted(found)
        if found.state == ABORTED:
            raise CursusRefusal("transaction_aborted", transactional_id=found.id)
        if found.state != COMMITTED:
            await _commit(call, found)
    return f"OK transactional_id={found.id} state=committed messages={found.count} offsets=0"


async def status(call: CursusCall, command: Command) -> str:
    """What became of the last transaction of an id."""
    transactional_id = _id_of(command)
    found = call.parts.transactions.find(call, transactional_id)
    if found is None:
        raise CursusRefusal("transaction_not_found", transactional_id=transactional_id)
    count = found.count or len(found.rows)
    return f"OK transactional_id={found.id} state={found.state} messages={count} offsets=0"


def _aborted(found: Transaction) -> str:
    if found.state == COMMITTED:
        raise CursusRefusal("transaction_already_committed", transactional_id=found.id)
    if found.state == COMMITTING:
        reason = "a commit was begun, and whether it was written is not known: commit again"
        raise CursusRefusal("transaction_not_abortable", transactional_id=found.id, reason=Quoted(reason))
    found.state = ABORTED
    found.drop()
    return f"OK transactional_id={found.id} state=aborted"


async def _commit(call: CursusCall, found: Transaction) -> None:
    """Write what is staged; if that fails it stays staged, and the same commit may be tried again."""
    found.state = COMMITTING
    if found.rows:
        call.require("publish", found.topic, producer=found.commit.writer)
        partitions, keys, values = zip(*found.rows, strict=True)
        batch = pa.RecordBatch.from_pydict(
            {
                "value": pa.array(values, pa.binary()),
                "key": pa.array(keys, pa.binary()),
                "partition": pa.array(partitions, pa.int32()),
            }
        )
        try:
            await call.parts.bridge.publish(found.topic, batch, found.commit, call.principal.name)
        except CommitConflict:
            raise CursusRefusal("producer_fenced", transactional_id=found.id, requested_epoch=found.epoch) from None
    found.state, found.count = COMMITTED, len(found.rows)
    found.drop()


async def _end_of_unknown(call: CursusCall, command: Command, transactional_id: str, result: str) -> str:
    """A transaction that this server has not, or has no more: the log knows whether it was committed."""
    named = _PRODUCER.fullmatch(command.required("producerId", "missing_producer_id"))
    last = await call.work(_last_commit, call.broker, _writer(call, transactional_id))
    if named is None or last is None or (last.number, last.fingerprint) != (int(named[1]), int(named[2], 16)):
        raise CursusRefusal("transaction_not_found", transactional_id=transactional_id)
    if result == "abort":
        raise CursusRefusal("transaction_already_committed", transactional_id=transactional_id)
    return f"OK transactional_id={transactional_id} state=committed messages=0 offsets=0"


def _last_commit(broker: Broker, writer: str) -> CommitKey | None:
    """The last commit of a writer, in whichever topic."""
    topics, found = broker.list_topics(), list[CommitKey]()
    for start in range(0, len(topics), LAST_COMMITS_TOPICS_MAX):
        found += broker.last_commits(topics[start : start + LAST_COMMITS_TOPICS_MAX], writer).values()
    return max(found, key=lambda key: key.number, default=None)


def _writer(call: CursusCall, transactional_id: str) -> str:
    return call.principal.stage_name(f"cursus:{transactional_id}")


def _id_of(command: Command) -> str:
    return command.required("transactional_id")[:_ID_CHARACTERS_MAX]


def _found(call: CursusCall, command: Command) -> Transaction:
    transactional_id = _id_of(command)
    found = call.parts.transactions.find(call, transactional_id)
    if found is None:
        raise CursusRefusal("transaction_not_found", transactional_id=transactional_id)
    _check_producer(found, command)
    return found


def _check_producer(found: Transaction, command: Command) -> None:
    """Raise for a producer that another one has replaced."""
    epoch = command.number("epoch", default=found.epoch, least=-1)
    if command.required("producerId", "missing_producer_id") != found.producer or epoch != found.epoch:
        raise CursusRefusal(
            "producer_fenced", transactional_id=found.id, current_epoch=found.epoch, requested_epoch=epoch
        )

"""One connection: frames in, answers out, in order.

A frame is a length in four bytes, then that many bytes. Its length is checked before anything is read, its bytes count
against the server's budget from then on until it is answered, and it has a time to arrive in. Before a caller is known
only small requests are read, and of those only the ones that say who it is.

Consecutive Produce requests are started one after the other and answered as they are written, so that they share
commits. Any other request waits for the answers before it. What cannot be read as a request ends the connection, with
one line in the log: its sender and this server no longer agree on where a request begins.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kio.schema.errors import ErrorCode

from headrace.core.errors import AccessDenied, HeadraceError, LimitExceeded
from headrace.edge.access import Principal
from headrace.edge.certificates import certificate_name
from headrace.edge.draining import Draining
from headrace.protocols.kafka.apis import sasl
from headrace.protocols.kafka.apis.call import AnswerBytes, Call, Parts
from headrace.protocols.kafka.apis.records.produce import begin_produce
from headrace.protocols.kafka.apis.table import API_VERSIONS, APIS, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE
from headrace.protocols.kafka.apis.versions import api_versions
from headrace.protocols.kafka.messages.reader import BadRequest, FieldReader
from headrace.protocols.kafka.messages.schema import request_schema, response_schema
from headrace.protocols.kafka.messages.writer import Writer

_HEAD: Final = struct.Struct(">hhi")
_SIZE: Final = struct.Struct(">i")
# What an unknown caller may send at once.
UNKNOWN_BYTES_MAX: Final = 64 << 10
# Produce requests that are under way on one connection.
PIPELINED_MAX: Final = 16
_LOOK_SECONDS: Final = 0.02

logger = logging.getLogger(__name__)

Answer = dict[str, Any] | None


class _End(Exception):
    """Ends the connection, with the reason."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer that is awaited, and the memory that it holds until it is written."""

    task: asyncio.Task[bytes | None]
    held: AnswerBytes


class KafkaConnection:
    """One connection of a client. Belongs to the event loop."""

    def __init__(self, parts: Parts, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._parts = parts
        self._reader = reader
        self._writer = writer
        self._gone = Draining()
        self._login = sasl.Login()
        peer, local = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
        self._host = str(peer[0]) if peer else ""
        self._advertised = _advertised(parts.settings.advertised, local)
        self._certificate_name = certificate_name(writer.get_extra_info("peercert"))
        self._is_known = False
        # Answers that are not written yet, oldest first, and how many there are.
        self._answers: asyncio.Queue[_Answer | None] = asyncio.Queue(PIPELINED_MAX)
        self._unwritten = 0
        self._all_written = asyncio.Event()
        self._all_written.set()

    async def run(self) -> None:
        """Serve until the client leaves, sends what is not a request, or the server stops."""
        writing = asyncio.create_task(self._write_answers())
        try:
            await self._read_requests(writing)
            await self._answers.put(None)
            await writing
        except (_End, BadRequest, HeadraceError) as error:
            logger.warning("the Kafka connection of %s was closed: %s", self._host, error)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        except Exception:
            logger.exception("the Kafka connection of %s failed", self._host)
        finally:
            self._gone.begin()
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            await self._abandon_answers()
            self._writer.close()
            with suppress(Exception):
                await self._writer.wait_closed()

    async def _read_requests(self, writing: asyncio.Task[None]) -> None:
        while not self._parts.bridge.draining.has_begun and not writing.done():
            frame = await self._unless_stopping(self._frame())
            if frame is None:
                # Long polls end with their client.
                self._gone.begin()
                return
            size = len(frame)
            try:
                answer = await self._begin(memoryview(frame))
            except BaseException:
                self._parts.budget.give_back(size)
                raise
            del frame
            answer.task.add_done_callback(partial(self._give_back, size))
            self._unwritten += 1
            self._all_written.clear()
            await self._answers.put(answer)

    def _give_back(self, size: int, _: asyncio.Task[bytes | None]) -> None:
        self._parts.budget.give_back(size)

    async def _abandon_answers(self) -> None:
        """Wait for what nobody will be answered; long polls end, and what is being written is written."""
        while not self._answers.empty():
            answer = self._answers.get_nowait()
            if answer is not None:
                await asyncio.gather(answer.task, return_exceptions=True)
                self._done_with(answer)

    def _done_with(self, answer: _Answer) -> None:
        """An answer takes no memory any more."""
        if answer.held.bytes:
            self._parts.answers.give_back(answer.held.bytes)
            answer.held.bytes = 0
        self._unwritten -= 1
        if not self._unwritten:
            self._all_written.set()

    async def _unless_stopping(self, work: Awaitable[bytes | None]) -> bytes | None:
        """The next frame; none once the server stops, the client left or a write failed."""
        reading, event = asyncio.ensure_future(work), asyncio.Event()
        reading.add_done_callback(lambda _: event.set())
        with self._parts.bridge.draining.waking(event), self._gone.waking(event):
            await event.wait()
        if not reading.done():
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            return None
        return reading.result()

    # Frames

    async def _frame(self) -> bytes | None:
        """The next request; none if the client has left."""
        settings = self._parts.settings
        try:
            async with asyncio.timeout(settings.idle_seconds_max):
                (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
        except (asyncio.IncompleteReadError, TimeoutError):
            return None
        if size > UNKNOWN_BYTES_MAX and not self._is_known:
            await self._principal("connect")
        most = settings.request_bytes_max
        if not _HEAD.size <= size <= most:
            raise _End(f"it announced a request of {size} bytes: {_HEAD.size} to {most} are accepted")
        await self._parts.budget.take(size)
        try:
            async with asyncio.timeout(settings.request_seconds_max):
                return await self._reader.readexactly(size)
        except TimeoutError:
            self._parts.budget.give_back(size)
            seconds = settings.request_seconds_max
            raise _End(f"its request took more than {seconds:g} s to arrive (kafka.request_seconds_max)") from None
        except BaseException:
            self._parts.budget.give_back(size)
            raise

    # Requests

    async def _begin(self, frame: memoryview) -> _Answer:
        """Start a request, in its turn; what it answers comes later."""
        api_key, version, correlation_id = _HEAD.unpack_from(frame)
        api = APIS.get(api_key)
        if api is None:
            raise _End(f"it sent API key {api_key}, which is not served (version {version})")
        if version not in api.versions:
            if api_key != API_VERSIONS:
                raise _End(
                    f"it sent version {version} of {api.name}: {api.versions[0]} to {api.versions[-1]} are served"
                )
            # Answered in the oldest version, so that every client understands it.
            refused = _ready(api_versions(ErrorCode.unsupported_version))
            return _Answer(asyncio.create_task(self._encoded(API_VERSIONS, 0, correlation_id, refused)), AnswerBytes())
        schema = request_schema(api_key, version)
        reader = FieldReader(frame)
        reader.bytes(_HEAD.size)
        client_id = reader.text(False) or ""
        if schema.has_flexible_header:
            reader.skip_tags()
        # What is left over is ignored, as Kafka does: librdkafka sends three bytes too many when it wants all topics.
        request = reader.struct(schema.struct)
        if api_key in (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE):
            await self._all_written.wait()
            logging_in = self._log_in(api_key, version, request)
            return _Answer(
                asyncio.create_task(self._encoded(api_key, version, correlation_id, logging_in)), AnswerBytes()
            )
        call = Call(
            self._parts,
            await self._principal(api.name),
            api_key,
            version,
            client_id,
            self._host,
            self._advertised,
            self._gone,
            AnswerBytes(),
        )
        work: Awaitable[Answer]
        if api_key == PRODUCE:
            await self._hold_back(call.principal, len(frame))
            work = await begin_produce(call, request)
        else:
            await self._all_written.wait()
            work = api.handler(call, request)
        return _Answer(asyncio.create_task(self._encoded(api_key, version, correlation_id, work)), call.held)

    async def _encoded(self, api_key: int, version: int, correlation_id: int, work: Awaitable[Answer]) -> bytes | None:
        """The bytes of an answer; none if the client wants none."""
        answer = await work
        if answer is None:
            return None
        schema = response_schema(api_key, version)
        writer = Writer()
        writer.number("int32", correlation_id)
        if schema.has_flexible_header:
            writer.unsigned_varint(0)
        writer.struct(schema.struct, answer)
        writer.parts.insert(0, _SIZE.pack(sum(map(len, writer.parts))))
        return writer.join()

    async def _write_answers(self) -> None:
        """Write answers in the order of requests, each as soon as it is ready."""
        try:
            while (answer := await self._answers.get()) is not None:
                try:
                    await self._write(await answer.task)
                finally:
                    self._done_with(answer)
        except TimeoutError:
            logger.warning("the Kafka connection of %s was closed: it did not receive its answer in time", self._host)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except (_End, HeadraceError) as error:
            logger.warning("the Kafka connection of %s was closed: %s", self._host, error)
        except Exception:
            logger.exception("a Kafka request of %s failed", self._host)
        finally:
            self._gone.begin()
            # Nobody may wait for answers that will not be written.
            self._all_written.set()

    async def _write(self, answer: bytes | None) -> None:
        if answer is not None:
            self._writer.write(answer)
            async with asyncio.timeout(self._parts.settings.send_seconds_max):
                await self._writer.drain()

    # Access

    async def _principal(self, operation: str) -> Principal:
        """Who sends this request; a caller who is too fast waits."""
        gate, loop = self._parts.gate, asyncio.get_running_loop()
        while True:
            if gate.is_stale:
                await loop.run_in_executor(None, gate.refresh)
            try:
                principal = gate.admit(self._login.token, self._host, operation, self._certificate_name)
                break
            except LimitExceeded as error:
                await asyncio.sleep(max(error.retry_after_seconds, _LOOK_SECONDS))
        if gate.has_uses:
            loop.run_in_executor(None, gate.store_uses)
        self._is_known = True
        return principal

    async def _log_in(self, api_key: int, version: int, request: Any) -> Answer:
        if api_key == API_VERSIONS:
            return api_versions()
        if api_key == SASL_HANDSHAKE:
            if version == 0:
                raise _End("it wants SASL without a header around it, which no client of the last years needs")
            return self._login.shake_hands(request.mechanism)
        answer = self._login.authenticate(request.auth_bytes)
        if self._login.token is not None:
            try:
                await self._principal("sasl_authenticate")
            except AccessDenied as error:
                self._login.token = None
                return sasl.refused(str(error))
        return answer

    async def _hold_back(self, principal: Principal, size: int) -> None:
        """Wait until the caller may publish more: Kafka's clients take that as a slow server."""
        rate = principal.limits.publish_bytes
        while (seconds := rate.seconds_until_free(principal.name)) > 0:
            principal.tell_limited("limits.publish_bytes_per_second")
            await asyncio.sleep(min(seconds, 1.0))
        rate.spend(principal.name, size)


async def _ready(answer: Answer) -> Answer:
    return answer


def _advertised(setting: str, local: Any) -> tuple[str, int]:
    if setting:
        host, _, port = setting.rpartition(":")
        return host.strip("[]"), int(port)
    return (str(local[0]), int(local[1])) if local else ("127.0.0.1", 0)

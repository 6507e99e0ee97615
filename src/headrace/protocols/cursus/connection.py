"""One connection: requests in, answers out, in order; a stream takes it over.

Before a caller is known only small requests are read, and of those only the ones that say who it is. Clients say it
with AUTH, or with `auth_token=` in a request; a certificate says it before. What cannot be read as a frame ends the
connection, with one line in the log.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, Final

from headrace.core.errors import AccessDenied, HeadraceError, LimitExceeded
from headrace.core.rights import ANYONE, Caller
from headrace.edge.access import Principal
from headrace.edge.certificates import certificate_name
from headrace.edge.envelope.answer_room import AnswerRoom
from headrace.edge.envelope.connections import ConnectionPlace
from headrace.edge.event_loop.frames import SIZE, Frame, Frames
from headrace.protocols.cursus.call import CursusAnswer, CursusCall, CursusParts, Negotiated
from headrace.protocols.cursus.commands.publish import publish_batch
from headrace.protocols.cursus.commands.table import BATCH, COMMANDS, FAILED, HANDLERS, PUBLIC
from headrace.protocols.cursus.errors import COMMAND_FAILED, CursusRefusal, ErrorPlace, Quoted, refusal_of
from headrace.protocols.cursus.messages.batch import MAGIC
from headrace.protocols.cursus.messages.command import Command, read_command

# What an unknown caller may send at once.
UNKNOWN_BYTES_MAX: Final = 64 << 10
_LOOK_SECONDS: Final = 0.02

logger = logging.getLogger(__name__)


class _End(Exception):
    """Ends the connection, with the reason."""


class CursusConnection:
    """One connection of a client. Belongs to the event loop."""

    def __init__(self, parts: CursusParts, frames: Frames, place: ConnectionPlace) -> None:
        self._parts = parts
        self._frames = frames
        self._place = place
        self._traffic = parts.gate.limits.traffic["cursus"]
        self._address = _advertised(parts.settings.advertised, frames.extra("sockname"))
        self._certificate_name = certificate_name(frames.extra("peercert"))
        self._negotiated = Negotiated()

    async def run(self) -> None:
        """Serve until the client leaves, sends what is not a request, or the server stops."""
        try:
            with self._traffic.connected():
                await self._read_requests()
        except (_End, HeadraceError) as error:
            self._parts.envelope.closed.warn(f"the cursus connection of {self._frames.host} was closed: {error}")
        except (ConnectionError, asyncio.CancelledError):
            pass
        except Exception:
            logger.exception("a cursus request of %s failed", self._frames.host)
        finally:
            self._frames.gone.begin()
            await self._frames.close()
            self._place.leave()

    async def _read_requests(self) -> None:
        with suppress(HeadraceError):
            if self._parts.gate.is_stale:
                await self._parts.leases.refresh()
            if self._parts.gate.is_open:
                self._know(ANYONE)
        while not self._parts.bridge.draining.has_begun:
            size = await self._frames.size()
            if size is None:
                return
            if size > UNKNOWN_BYTES_MAX and self._place.caller is None:
                await self._principal("connect")
            most = self._parts.settings.request_bytes_max
            if not 1 <= size <= most:
                raise _End(f"it announced a request of {size} bytes: 1 to {most} are accepted")
            frame = await self._frames.frame(size)
            if frame is None:
                return
            try:
                if not await self._serve(frame):
                    return
            finally:
                self._frames.release(len(frame))

    async def _serve(self, frame: Frame) -> bool:
        """Answer a request; whether the connection goes on."""
        room = AnswerRoom(self._parts.envelope.answers)
        name, outcome, answer = "unknown", "ok", None
        try:
            try:
                if frame[:2] == MAGIC:
                    name = BATCH
                    answer = await publish_batch(await self._call(name, room), frame)
                else:
                    command = await self._command(frame)
                    if command is None:
                        raise _End("it sent a request of blanks")
                    name = command.name
                    answer = await self._answered(command, room)
            except CursusRefusal as refusal:
                answer, outcome = refusal.text(self._negotiated.has_structured_errors), refusal.code
            sent = await self._write(answer)
            self._traffic.count(name, outcome, SIZE.size + len(frame), sent)
        finally:
            room.shrink()
        return answer is not None

    async def _command(self, frame: Frame) -> Command | None:
        if len(frame) <= UNKNOWN_BYTES_MAX:
            return read_command(frame, COMMANDS)
        return await self._parts.bridge.call(read_command, frame, COMMANDS)

    async def _answered(self, command: Command, room: AnswerRoom) -> CursusAnswer:
        try:
            await self._sign_in(command)
            if command.name in PUBLIC:
                return PUBLIC[command.name](command, self._negotiated)
            return await HANDLERS[command.name](await self._call(command.name, room), command)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            place = ErrorPlace(command.get("topic"), command.get("group"), command.get("member"))
            failed = FAILED.get(command.name, COMMAND_FAILED)
            raise refusal_of(error.with_traceback(None), place, failed) from None

    async def _write(self, answer: CursusAnswer) -> int:
        """Send the frames of an answer; how many bytes they have."""
        if answer is None:
            return 0
        frames = [each.encode() if isinstance(each, str) else each for each in _listed(answer)]
        data = b"".join(part for frame in frames for part in (SIZE.pack(len(frame)), frame))
        if frames:
            await self._frames.write(data)
        return len(data)

    # Access

    async def _call(self, operation: str, room: AnswerRoom) -> CursusCall:
        try:
            principal = await self._principal(operation.lower())
        except AccessDenied as error:
            raise CursusRefusal("authentication_required", reason=Quoted(error)) from None
        room.owner = principal.name
        return CursusCall(self._parts, principal, self._frames, self._address, self._negotiated, room)

    async def _sign_in(self, command: Command) -> None:
        """Take the token of a request that has one, or of AUTH."""
        is_auth = command.name == "AUTH"
        token = command.required("token", "invalid_auth") if is_auth else command.get("auth_token")
        if not token or token == self._negotiated.token:
            return
        before, self._negotiated.token = self._negotiated.token, token
        try:
            await self._principal("auth")
        except AccessDenied:
            self._negotiated.token = before
            raise CursusRefusal("authentication_failed", mechanism="PLAIN") from None

    async def _principal(self, operation: str) -> Principal:
        """Who sends this request; a caller who is too fast waits."""
        gate = self._parts.gate
        while True:
            if gate.is_stale:
                await self._parts.leases.refresh()
            try:
                principal = gate.admit(self._negotiated.token, self._frames.host, operation, self._certificate_name)
                break
            except LimitExceeded as error:
                await asyncio.sleep(max(error.retry_after_seconds, _LOOK_SECONDS))
        if gate.has_uses:
            asyncio.get_running_loop().run_in_executor(None, gate.store_uses)
        if self._place.caller != principal.name:
            self._know(principal.caller)
        return principal

    def _know(self, caller: Caller) -> None:
        """The connection is this caller's, if it may have one more."""
        self._place.sign_in(caller)
        self._frames.belong_to(caller.name)


def _listed(answer: str | bytes | list[str | bytes]) -> list[str | bytes]:
    return answer if isinstance(answer, list) else [answer]


def _advertised(setting: str, local: Any) -> tuple[str, int]:
    if setting:
        host, _, port = setting.rpartition(":")
        return host.strip("[]"), int(port)
    return (str(local[0]), int(local[1])) if local else ("127.0.0.1", 0)

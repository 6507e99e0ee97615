"""One connection: requests in, answers out, in order; a stream takes it over.

Before a caller is known only requests are served that say who it is. Clients say it with AUTH, or with `auth_token=` in
a request; a certificate says it before.
"""

from __future__ import annotations

import asyncio

from headrace.core.errors import AccessDenied
from headrace.edge.envelope.answer_room import AnswerRoom
from headrace.edge.envelope.connections import ConnectionPlace
from headrace.edge.event_loop.frame_connection import UNKNOWN_BYTES_MAX, EndConnection, FrameConnection
from headrace.edge.event_loop.frames import SIZE, Frame, Frames
from headrace.protocols.cursus.call import CursusAnswer, CursusCall, CursusParts, Negotiated
from headrace.protocols.cursus.commands.publish import publish_batch
from headrace.protocols.cursus.commands.table import BATCH, COMMANDS, FAILED, HANDLERS, PUBLIC
from headrace.protocols.cursus.errors import COMMAND_FAILED, CursusRefusal, ErrorPlace, Quoted, refusal_of
from headrace.protocols.cursus.messages.batch import MAGIC
from headrace.protocols.cursus.messages.command import Command, read_command


class CursusConnection(FrameConnection[CursusParts]):
    """One connection of a client. Belongs to the event loop."""

    protocol = "cursus"

    def __init__(self, parts: CursusParts, frames: Frames, place: ConnectionPlace) -> None:
        super().__init__(parts, frames, place)
        self._address = parts.settings.place(frames.extra("sockname"))
        self._negotiated = Negotiated()

    @property
    def _token(self) -> str | None:
        return self._negotiated.token

    async def _serve(self) -> None:
        await self._welcome()
        while not self._parts.bridge.draining.has_begun:
            frame = await self._next()
            if frame is None:
                return
            try:
                if not await self._take(frame):
                    return
            finally:
                self._frames.release(len(frame))

    async def _take(self, frame: Frame) -> bool:
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
                        raise EndConnection("it sent a request of blanks")
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


def _listed(answer: str | bytes | list[str | bytes]) -> list[str | bytes]:
    return answer if isinstance(answer, list) else [answer]

"""The bridge from asyncio into threads: `awaited` turns a method of the client into one that is awaited.

Each object has threads of its own, so that one that waits for messages does not keep others from calling. What may be
used by one thread at a time has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar

from headrace import tracing
from headrace.core.errors import Closed

_THREADS: Final = 4


class Closable(Protocol):
    """What ends by being closed."""

    def close(self) -> None:
        """End."""


Wrapped = TypeVar("Wrapped", bound=Closable)
Given = ParamSpec("Given")
Result = TypeVar("Result")
Wrapper = TypeVar("Wrapper", bound="ThreadBridge[Any]")


class ThreadBridge(Generic[Wrapped]):
    """Something of the client, used from asyncio."""

    _threads_max = _THREADS

    def __init__(self, wrapped: Wrapped) -> None:
        self._wrapped = wrapped
        self._threads = ThreadPoolExecutor(self._threads_max, f"headrace-aio-{type(wrapped).__name__.lower()}")
        self._is_over = False

    def __repr__(self) -> str:
        return f"<asyncio: {self._wrapped!r}>"

    def _submit(self, function: Callable[[], Result]) -> asyncio.Future[Result]:
        if self._is_over:
            raise Closed(f"the {type(self).__name__.removeprefix('Async').lower()}")
        if tracing.active is not None:
            # The span of the caller is the parent, in a thread too.
            function = partial(copy_context().run, function)
        return asyncio.get_running_loop().run_in_executor(self._threads, function)

    async def _run(self, function: Callable[[], Result]) -> Result:
        return await self._submit(function)

    async def close(self) -> None:
        """End, as the wrapped one does."""
        await self._end(self._wrapped.close)

    async def _end(self, function: Callable[[], None]) -> None:
        """The last thing that is done; later ones have nothing to do."""
        if not self._is_over:
            ending = self._submit(function)
            self._is_over = True
            try:
                await ending
            finally:
                self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Opening(Generic[Wrapper]):
    """Something that is being opened: await it, or use it in `async with`, which awaits it and closes it at the end."""

    def __init__(self, opened: Coroutine[Any, Any, Wrapper]) -> None:
        self._opened = opened
        self._wrapper: Wrapper | None = None

    def __await__(self) -> Generator[Any, None, Wrapper]:
        return self._opened.__await__()

    async def __aenter__(self) -> Wrapper:
        self._wrapper = await self._opened
        return await self._wrapper.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._wrapper is not None, "it was entered"
        await self._wrapper.__aexit__(kind, error, trace)


def awaited(
    method: Callable[Concatenate[Wrapped, Given], Result],
) -> Callable[Concatenate[ThreadBridge[Wrapped], Given], Coroutine[Any, Any, Result]]:
    """The method of the wrapped object, run in a thread."""

    @wraps(method)
    async def bridge(self: ThreadBridge[Wrapped], /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        return await self._run(partial(method, self._wrapped, *args, **kwargs))

    return bridge


def opening(
    method: Callable[Concatenate[Wrapped, Given], Result], kind: Callable[[Result], Wrapper]
) -> Callable[Concatenate[ThreadBridge[Wrapped], Given], Opening[Wrapper]]:
    """The method of the wrapped object, run in a thread, its result wrapped in turn."""

    @wraps(method)
    def bridge(self: ThreadBridge[Wrapped], /, *args: Given.args, **kwargs: Given.kwargs) -> Opening[Wrapper]:
        async def opened() -> Wrapper:
            return kind(await self._run(partial(method, self._wrapped, *args, **kwargs)))

        return Opening(opened())

    return bridge


def streamed(
    method: Callable[Concatenate[Wrapped, Given], Iterator[Result]],
) -> Callable[Concatenate[ThreadBridge[Wrapped], Given], AsyncIterator[Result]]:
    """The iterator that a method of the wrapped object gives, each step of it run in a thread."""

    @wraps(method)
    async def bridge(
        self: ThreadBridge[Wrapped], /, *args: Given.args, **kwargs: Given.kwargs
    ) -> AsyncIterator[Result]:
        steps = await self._run(partial(method, self._wrapped, *args, **kwargs))
        while (step := await self._run(partial(next, steps, _END))) is not _END:
            yield step

    return bridge


_END: Final[Any] = object()

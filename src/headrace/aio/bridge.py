"""The bridge from asyncio into threads: `awaited` turns a method of the client into one that is awaited.

Each object has threads of its own, so that one that waits for messages does not keep others from calling. What may be
used by one thread at a time has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar

from headrace.core.errors import Closed

_THREADS: Final = 4


class Closable(Protocol):
    """What ends by being closed."""

    def close(self) -> None:
        """End."""


Wrapped = TypeVar("Wrapped", bound=Closable)
Given = ParamSpec("Given")
Result = TypeVar("Result")
Wrapper = TypeVar("Wrapper")


class ThreadBridge(Generic[Wrapped]):
    """Something of the client, used from asyncio."""

    _threads_max = _THREADS

    def __init__(self, wrapped: Wrapped) -> None:
        self._wrapped = wrapped
        self._threads = ThreadPoolExecutor(self._threads_max, f"headrace-aio-{type(wrapped).__name__.lower()}")

        self._is_over = False

    def _submit(self, function: Callable[[], Result]) -> asyncio.Future[Result]:
        if self._is_over:
            raise Closed(f"the {type(self._wrapped).__name__.lower()}")
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


def awaited(
    method: Callable[Concatenate[Any, Given], Result],
) -> Callable[Concatenate[Any, Given], Awaitable[Result]]:
    """The method of the wrapped object, run in a thread."""

    @wraps(method)
    async def bridge(self: ThreadBridge[Any], /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        return await self._run(partial(method, self._wrapped, *args, **kwargs))

    return bridge


def wrapping(
    method: Callable[Concatenate[Any, Given], Result], kind: Callable[[Result], Wrapper]
) -> Callable[Concatenate[Any, Given], Awaitable[Wrapper]]:
    """The method of the wrapped object, run in a thread, its result wrapped in turn."""

    @wraps(method)
    async def bridge(self: ThreadBridge[Any], /, *args: Given.args, **kwargs: Given.kwargs) -> Wrapper:
        return kind(await self._run(partial(method, self._wrapped, *args, **kwargs)))

    return bridge


def streamed(
    method: Callable[Concatenate[Any, Given], Iterator[Result]],
) -> Callable[Concatenate[Any, Given], AsyncIterator[Result]]:
    """The iterator that a method of the wrapped object gives, each step of it run in a thread."""

    @wraps(method)
    async def bridge(self: ThreadBridge[Any], /, *args: Given.args, **kwargs: Given.kwargs) -> AsyncIterator[Result]:
        steps = await self._run(partial(method, self._wrapped, *args, **kwargs))
        while (step := await self._run(partial(next, steps, _END))) is not _END:
            yield step

    return bridge


_END: Final[Any] = object()

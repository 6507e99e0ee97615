"""The crossing from asyncio into threads: `awaited` turns a method of the client into one that is awaited.

Each object has a few threads of its own, so that one that waits for messages does not keep others from calling.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar

_THREADS: Final = 4


class Closable(Protocol):
    """What ends by being closed."""

    def close(self) -> None:
        """End."""


Wrapped = TypeVar("Wrapped", bound=Closable)
Given = ParamSpec("Given")
Result = TypeVar("Result")
Wrapper = TypeVar("Wrapper")


class Crossing(Generic[Wrapped]):
    """Something of the client, used from asyncio."""

    def __init__(self, wrapped: Wrapped) -> None:
        self._wrapped = wrapped
        self._threads = ThreadPoolExecutor(_THREADS, f"headrace-aio-{type(wrapped).__name__.lower()}")

    async def _run(self, function: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    async def close(self) -> None:
        """End, as the wrapped one does."""
        try:
            await self._run(self._wrapped.close)
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
    async def crossing(self: Crossing[Any], /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        return await self._run(partial(method, self._wrapped, *args, **kwargs))

    return crossing


def wrapping(
    method: Callable[Concatenate[Any, Given], Result], kind: Callable[[Result], Wrapper]
) -> Callable[Concatenate[Any, Given], Awaitable[Wrapper]]:
    """The method of the wrapped object, run in a thread, its result wrapped in turn."""

    @wraps(method)
    async def crossing(self: Crossing[Any], /, *args: Given.args, **kwargs: Given.kwargs) -> Wrapper:
        return kind(await self._run(partial(method, self._wrapped, *args, **kwargs)))

    return crossing

"""The memory budget that callers share: shares, turns, time limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps

import pytest

from headrace.core.errors import Overloaded
from headrace.edge.envelope.byte_budget import ByteBudget, HeldBytes


def on_a_loop(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


def budget(seconds: float = 60.0) -> ByteBudget:
    return ByteBudget(100, seconds, "limits.answers_bytes_max", share_max=50)


async def blocked(task: asyncio.Task[None]) -> bool:
    """Whether a task still waits after everybody had a turn."""
    for _ in range(5):
        await asyncio.sleep(0)
    return not task.done()


@on_a_loop
async def test_one_owner_holds_at_most_its_share() -> None:
    some = budget()
    await some.take(50, "ann")
    assert not some.try_take(1, "ann")
    assert some.try_take(50, "tom")
    assert some.taken == 100


@on_a_loop
async def test_whoever_is_at_its_share_waits_alone() -> None:
    some = budget()
    await some.take(50, "ann")
    waiting = asyncio.create_task(some.take(10, "ann"))
    assert await blocked(waiting)
    assert some.try_take(20, "tom")
    await asyncio.wait_for(some.take(20, "tom"), 5)
    some.give_back(10, "ann")
    await waiting
    assert some.taken == 90


@on_a_loop
async def test_large_sizes_are_not_starved_by_small_ones() -> None:
    some = budget()
    await some.take(45, "ann")
    await some.take(45, "tom")
    large = asyncio.create_task(some.take(30, "eve"))
    assert await blocked(large)
    assert not some.try_take(1, "mia")
    small = asyncio.create_task(some.take(1, "mia"))
    assert await blocked(small)
    some.give_back(45, "ann")
    await asyncio.gather(large, small)
    assert some.taken == 76


@on_a_loop
async def test_more_than_a_share_is_possible_alone() -> None:
    some = budget()
    assert some.try_take(80, "ann")
    assert not some.try_take(1, "ann")
    some.give_back(80, "ann")
    assert some.taken == 0


@on_a_loop
async def test_without_an_owner_there_is_no_share() -> None:
    some = budget()
    assert some.try_take(90)
    assert some.try_take(10)
    some.give_back(100)
    assert some.taken == 0


@on_a_loop
async def test_a_wait_that_is_too_long_says_which_setting_bounds_it() -> None:
    some = budget(seconds=0.01)
    await some.take(100)
    with pytest.raises(Overloaded, match=r"limits\.answers_bytes_max"):
        await some.take(1, "ann")
    some.give_back(100)
    assert some.try_take(50, "ann")


@on_a_loop
async def test_one_that_was_cancelled_takes_nothing() -> None:
    some = budget()
    await some.take(100)
    first, second = asyncio.create_task(some.take(60)), asyncio.create_task(some.take(50))
    assert await blocked(first)
    first.cancel()
    some.give_back(100)
    await second
    await asyncio.gather(first, return_exceptions=True)
    assert some.taken == 50


@on_a_loop
async def test_what_was_granted_just_when_the_wait_ended_is_given_back() -> None:
    some = budget()
    await some.take(100)
    waiting = asyncio.create_task(some.take(60, "ann"))
    assert await blocked(waiting)
    some.give_back(100)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert some.taken == 0


@on_a_loop
async def test_parts_of_something_do_not_wait() -> None:
    some = budget()
    some.add(50, "ann")
    with pytest.raises(Overloaded):
        some.add(1, "ann")
    assert some.taken == 50


@on_a_loop
async def test_what_was_given_back_is_told_once() -> None:
    some = budget()
    some.add(40)
    some.give_back(10)
    assert not some.peak.is_over(some.taken, 20)
    some.add(30)
    some.give_back(55)
    assert some.peak.is_over(some.taken, 20)
    assert not some.peak.is_over(some.taken, 20)


@on_a_loop
async def test_a_request_holds_what_it_took_until_it_gives_it_back() -> None:
    some = budget()
    held, other = HeldBytes(some, "ann"), HeldBytes(some)
    await held.take(20)
    await held.take(20)
    held.shrink(30)
    assert (held.bytes, some.taken) == (30, 30)
    assert not other.try_take(30, "ann")
    assert other.try_take(30, "tom")
    # What it held before is given back first.
    assert other.try_take(20, "ann")
    assert (other.owner, some.taken) == ("ann", 50)
    held.shrink()
    other.shrink()
    assert some.taken == 0

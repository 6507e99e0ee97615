"""Bytes that have arrived: shares, turns, and passes for halves of requests."""

from __future__ import annotations

import pytest

from headrace.edge.envelope.received import READ_BYTES, ReceivedBytes, Receiver
from headrace.edge.limits import Slots

UNIT = READ_BYTES


class Site:
    """A budget of `total` units with a share of `share` units for each caller; who was resumed, in order."""

    def __init__(self, total: int, share: int) -> None:
        self.refused: list[str] = []
        slots = Slots("bytes", "limits.requests_bytes_max", share * UNIT, lambda name, _: self.refused.append(name))
        self.budget = ReceivedBytes(total * UNIT, slots)
        self.resumed: list[str] = []

    def receiver(self, owner: str, name: str = "") -> Receiver:
        return self.budget.receiver(owner, lambda: self.resumed.append(name or owner))


def test_what_is_announced_counts_nothing_and_what_arrives_counts() -> None:
    site = Site(total=4, share=2)
    ann = site.receiver("ann")
    assert ann.add(UNIT)
    assert not ann.add(UNIT)
    assert (ann.held, site.budget.taken) == (2 * UNIT, 2 * UNIT)
    ann.release(2 * UNIT)
    assert (ann.held, site.budget.taken) == (0, 0)


def test_a_caller_at_its_share_leaves_others_alone() -> None:
    site = Site(total=4, share=2)
    site.receiver("ann").add(2 * UNIT)
    assert site.receiver("tom").add(UNIT)


def test_who_waits_reads_again_when_there_is_room_in_turn() -> None:
    site = Site(total=8, share=2)
    done, first, second = (site.receiver("ann", name) for name in ("done", "first", "second"))
    done.add(2 * UNIT)
    first.wait()
    # There was no room, so the first has a pass.
    assert site.resumed == ["first"]
    second.wait()
    assert site.resumed == ["first"]
    done.release(2 * UNIT)
    assert site.resumed == ["first", "second"]
    assert site.refused == ["ann", "ann"]


def test_no_more_are_resumed_than_there_is_room_for() -> None:
    site = Site(total=8, share=4)
    done = site.receiver("ann")
    done.add(4 * UNIT)
    waiting = [site.receiver("ann", str(number)) for number in range(5)]
    for each in waiting:
        each.wait()
    assert site.resumed == ["0"]
    done.release(2 * UNIT)
    assert site.resumed == ["0", "1", "2"]


def test_halves_of_requests_do_not_stop_each_other_for_ever() -> None:
    site = Site(total=8, share=2)
    halves = [site.receiver("ann", str(number)) for number in range(3)]
    for each in halves:
        each.add(UNIT)
    for each in halves:
        each.wait()
    for number, each in enumerate(halves):
        assert site.resumed[-1] == str(number)
        # The rest of its request; the last ones find room without a pass.
        each.add(UNIT)
        each.release(2 * UNIT)
    assert site.resumed == ["0", "1", "2"]
    assert site.budget.taken == 0


def test_a_pass_is_for_one_request() -> None:
    site = Site(total=8, share=2)
    site.receiver("ann").add(2 * UNIT)
    ann = site.receiver("ann")
    ann.add(UNIT)
    ann.wait()
    assert ann.add(UNIT) and ann.has_room()
    ann.release(2 * UNIT)
    assert not ann.has_room()


def test_while_all_is_used_up_there_is_one_pass_and_callers_take_turns() -> None:
    site = Site(total=2, share=2)
    ann, tom = site.receiver("ann"), site.receiver("tom")
    ann.add(UNIT)
    tom.add(UNIT)
    ann.wait()
    tom.wait()
    assert site.resumed == ["ann"]
    ann.add(UNIT)
    ann.release(2 * UNIT)
    assert site.resumed == ["ann", "tom"]


def test_a_connection_that_ends_gives_up_its_bytes_its_turn_and_its_pass() -> None:
    site = Site(total=2, share=2)
    first, second, third = (site.receiver("ann", name) for name in ("first", "second", "third"))
    first.add(2 * UNIT)
    second.add(UNIT)
    second.wait()
    third.wait()
    first.wait()
    assert site.resumed == ["second"]
    first.close()
    second.close()
    assert site.resumed == ["second", "third"]
    assert site.budget.taken == 0


def test_what_a_stranger_sent_is_the_callers_once_it_has_signed_in() -> None:
    strangers, callers = Site(total=2, share=1), Site(total=8, share=4)
    receiver = strangers.receiver("127.0.0.1")
    receiver.add(UNIT)
    assert not receiver.has_room()
    receiver.move(callers.budget, "ann")
    receiver.move(callers.budget, "ann")
    assert (strangers.budget.taken, callers.budget.taken, receiver.held) == (0, UNIT, UNIT)
    assert receiver.has_room()


def test_room_that_others_wait_for_is_wanted() -> None:
    site = Site(total=4, share=2)
    holder, other = site.receiver("ann"), site.receiver("tom")
    holder.add(2 * UNIT)
    assert not holder.is_wanted()
    site.receiver("ann", "first").wait()
    site.receiver("ann", "second").wait()
    assert holder.is_wanted()
    assert not other.is_wanted()
    other.add(UNIT)
    assert not other.is_wanted()
    other.add(UNIT)
    # All of the budget is used up now.
    assert other.is_wanted()


@pytest.mark.parametrize("share", [1, 2, 3])
def test_nothing_is_left_over_whatever_happens(share: int) -> None:
    site = Site(total=3, share=share)
    receivers = [site.receiver(owner, owner + str(number)) for number, owner in enumerate("aabbcc")]
    for each in receivers:
        each.add(UNIT)
        if not each.has_room():
            each.wait()
    for each in receivers:
        each.close()
    assert site.budget.taken == 0
    assert len(site.resumed) == len(set(site.resumed)) <= len(site.refused)

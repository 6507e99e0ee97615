"""Signals that interrupt a load: not while a process is started, and only once."""

from __future__ import annotations

import os
import signal

import pytest

from headrace.load.interrupts import interruptible, undisturbed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_interrupts(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interruptible():
        os.kill(os.getpid(), number)
        pytest.fail("it was not interrupted")
    assert signal.getsignal(number) is before


def test_what_comes_at_a_bad_moment_is_put_off() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interruptible():
        with undisturbed():
            with undisturbed():
                os.kill(os.getpid(), signal.SIGTERM)
                done.append("started")
            done.append("known")
        pytest.fail("it was not interrupted")
    assert done == ["started", "known"]


def test_ending_is_not_interrupted_again() -> None:
    ended = False
    with pytest.raises(KeyboardInterrupt), interruptible():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            with undisturbed():
                ended = True
    assert ended


def test_nothing_is_raised_without_a_signal_and_the_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with interruptible(), undisturbed():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before

"""Old names warn, and say the new one."""

from __future__ import annotations

import pytest

from headrace.core.deprecation import warn_renamed


def _old() -> None:
    warn_renamed("Client.old()", "Client.new()")


def test_warning_names_both_and_points_at_the_caller() -> None:
    with pytest.warns(DeprecationWarning, match=r"^Client.old\(\) is now Client.new\(\); ") as told:
        _old()
    assert told[0].filename == __file__

"""What a consumer knows of its membership: the one it reads by, and the present one, which a thread keeps up to date.

The thread sets the present membership or a failure; the thread that polls takes it up. Both are plain references, so
that there is no lock here.
"""

from __future__ import annotations

from headrace.core.descriptions import Membership
from headrace.core.errors import HeadraceError


class KnownMembership:
    """The membership taken up last, and the present one."""

    def __init__(self, present: Membership) -> None:
        self._failure: HeadraceError | None = None
        self._present = present
        self.known = present

    @property
    def has_changed(self) -> bool:
        """Whether the membership is another than the one taken up last; a topic that grows changes no generation."""
        return self._failure is not None or self._present != self.known

    def take_up(self) -> Membership:
        """Continue with the present membership."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self.known = self._present
        return self.known

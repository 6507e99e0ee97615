"""What one call holds of the budget for answers. Belongs to the event loop."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.core.errors import InvalidInput
from headrace.edge.envelope.byte_budget import HeldBytes


@dataclass(slots=True)
class AnswerRoom(HeldBytes):
    """What a call holds of the budget for answers until its answer is written."""

    # How many elements it has room for, and whether there is much to encode: that is done in a thread.
    elements: int = 0
    is_large: bool = False

    async def take(self, size: int) -> None:
        """Wait for room; an answer that could never have it is refused."""
        if self.bytes + size > self.budget.share_max:
            rule = f"an answer takes at most {self.budget.share_max}: ask for fewer ({self.budget.setting})"
            raise InvalidInput("request", f"{self.bytes + size} bytes to answer it", rule)
        await HeldBytes.take(self, size)

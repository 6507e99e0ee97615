"""How often an address may try to sign in: some wrong tokens at once, then one in a while. Pure: time is an argument.

Guessing a token is hopeless anyway, since it has 256 random bits; the limit keeps a script that tries from filling
the audit log of the server and from holding its connections. An attempt that succeeds does not count. What is kept is
bounded: of more addresses than `ADDRESSES_MAX` the one that tried longest ago is forgotten.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from typing import Final

ATTEMPTS_MAX: Final = 10
# An attempt more after each of these.
REFILL_SECONDS: Final = 6.0
ADDRESSES_MAX: Final = 10_000


class Attempts:
    """The attempts that each address has left. Runs on the event loop."""

    def __init__(self) -> None:
        # How many are left, and when that was so.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str, now: float) -> int:
        """Take an attempt of an address; 0, or after how many seconds it may try again."""
        network = _network(address)
        left, since = self._left.get(network, (float(ATTEMPTS_MAX), now))
        left = min(float(ATTEMPTS_MAX), left + (now - since) / REFILL_SECONDS)
        is_taken = left >= 1.0
        self._left[network] = (left - 1.0 if is_taken else left, now)
        self._left.move_to_end(network)
        if len(self._left) > ADDRESSES_MAX:
            self._left.popitem(last=False)
        return 0 if is_taken else max(1, math.ceil((1.0 - left) * REFILL_SECONDS))

    def give_back(self, address: str) -> None:
        """Give an attempt back: it succeeded, or the token was not judged."""
        network = _network(address)
        if network in self._left:
            left, since = self._left[network]
            self._left[network] = (min(float(ATTEMPTS_MAX), left + 1.0), since)

    def __len__(self) -> int:
        return len(self._left)


def _network(address: str) -> str:
    """What counts as one address: of IPv6 the network, since whoever has one address there has 2^64 of them."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:100]
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
    return str(found)

"""The parameters of a load, with their bounds."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.core.checks import check_number
from headrace.core.errors import InvalidInput
from headrace.core.limits import BATCH_BYTES_MAX, BATCH_ROWS_MAX, MESSAGE_BYTES_MAX, PARTITIONS_MAX

# A message says who sent it, which one it is, and when: three numbers of eight bytes.
VALUE_BYTES_MIN: Final = 24
MESSAGES_MAX: Final = 10_000_000_000
WORKERS_MAX: Final = 64
KEYS_MAX: Final = 10**12
RATE_MAX: Final = 1e9
TIMEOUT_SECONDS_MAX: Final = 24 * 3600.0


class LoadFailed(Exception):
    """A load could not be run to its end, and why."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """A load.

    messages: how many are published in all, divided among the producers.
    value_bytes: how large each value is.
    keys: how many different keys there are; 0 is no key.
    batch: messages sent together as Arrow; 1 sends one by one, batched by the producer as it lingers.
    producers: processes that publish.
    consumers: processes that read, as members of one group.
    groups: how many such groups read everything.
    partitions: of the topic that is created for it.
    rate: messages a second in all, or 0 for as fast as it goes.
    linger_seconds: how long a producer that sends one by one collects while a batch is under way.
    timeout_seconds: how long without any message until the load is aborted.
    """

    messages: int = 1_000_000
    value_bytes: int = 100
    keys: int = 10_000
    batch: int = 1_000
    producers: int = 1
    consumers: int = 1
    groups: int = 1
    partitions: int = 8
    rate: float = 0.0
    linger_seconds: float = 0.005
    timeout_seconds: float = 60.0

    def check(self) -> None:
        """Refuse what is out of bounds, by name."""
        check_number("messages", self.messages, 1, MESSAGES_MAX)
        check_number("value_bytes", self.value_bytes, VALUE_BYTES_MIN, MESSAGE_BYTES_MAX)
        check_number("keys", self.keys, 0, KEYS_MAX)
        check_number("batch", self.batch, 1, BATCH_ROWS_MAX)
        check_number("producers", self.producers, 1, WORKERS_MAX)
        check_number("consumers", self.consumers, 0, WORKERS_MAX)
        check_number("groups", self.groups, 1, WORKERS_MAX)
        check_number("partitions", self.partitions, 1, PARTITIONS_MAX)
        check_number("rate", self.rate, 0, RATE_MAX)
        check_number("linger_seconds", self.linger_seconds, 0, 60)
        check_number("timeout_seconds", self.timeout_seconds, 1, TIMEOUT_SECONDS_MAX)
        if self.producers + self.consumers * self.groups > WORKERS_MAX:
            count = self.producers + self.consumers * self.groups
            raise InvalidInput("producers and consumers", str(count), f"at most {WORKERS_MAX} processes together")
        if self.batch * self.value_bytes > BATCH_BYTES_MAX // 2:
            size = self.batch * self.value_bytes
            raise InvalidInput(
                "batch", f"{size} bytes", f"batch times value bytes must be at most {BATCH_BYTES_MAX // 2}"
            )
        if self.messages < self.producers:
            raise InvalidInput(
                "messages", str(self.messages), f"it must be at least one for each of {self.producers} producers"
            )

    def share(self, producer: int) -> int:
        """How many messages a producer sends."""
        whole, left = divmod(self.messages, self.producers)
        return whole + (producer < left)

    @property
    def pause_seconds(self) -> float:
        """How long a producer waits between two batches, at the set rate."""
        return self.batch * self.producers / self.rate if self.rate else 0.0


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What one process does: produce as number `producer`, or consume as a member of `group`."""

    load: Load
    url: str
    topic: str
    token: str | None = None
    root_certificates: str | None = None
    producer: int | None = None
    group: str = ""
    counts_path: str = ""

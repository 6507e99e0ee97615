"""Configs of Kafka's topics that only tune how its brokers store: checked, kept and shown, and without an effect here.

Programs set them on every topic that they create, Kafka Streams among them. Names, kinds and bounds are Kafka's; the
defaults say what holds here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from headrace.core.errors import InvalidInput

Kind = Literal["boolean", "string", "int", "long", "double"]

_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class KeptConfig:
    """A config without an effect: of which kind it is, its default, and what it may be."""

    kind: Kind
    default: str
    least: float = 0
    most: float = _LONG_MAX
    choices: tuple[str, ...] = ()

    def checked(self, name: str, value: str) -> str:
        """The value as it is kept."""
        text = value.strip()
        if self.choices:
            if text not in self.choices:
                raise InvalidInput(name, repr(value)[:100], f"it must be {' or '.join(self.choices)}")
            return text
        number: type[int | float] = float if self.kind == "double" else int
        try:
            found = number(text)
            if not self.least <= found <= self.most:
                raise ValueError
        except ValueError:
            what = "number" if self.kind == "double" else "whole number"
            rule = f"it must be a {what} from {self.least} to {self.most}"
            raise InvalidInput(name, repr(value)[:100], rule) from None
        return str(found)


def _int(default: int, least: int = 0, most: int = _INT_MAX) -> KeptConfig:
    return KeptConfig("int", str(default), least, most)


def _long(default: int, least: int = 0) -> KeptConfig:
    return KeptConfig("long", str(default), least)


_SWITCH: Final = ("true", "false")
_COMPRESSIONS: Final = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")

KEPT_CONFIGS: Final[dict[str, KeptConfig]] = {
    "compression.gzip.level": _int(-1, -1, 9),
    "compression.lz4.level": _int(9, 1, 17),
    "compression.type": KeptConfig("string", _COMPRESSIONS[0], choices=_COMPRESSIONS),
    "compression.zstd.level": _int(3, -131_072, 22),
    "delete.retention.ms": _long(86_400_000),
    "file.delete.delay.ms": _long(60_000),
    "flush.messages": _long(1, 1),
    "flush.ms": _long(0),
    "index.interval.bytes": _int(4096),
    "max.compaction.lag.ms": _long(_LONG_MAX, 1),
    "message.timestamp.after.max.ms": _long(_LONG_MAX),
    "message.timestamp.before.max.ms": _long(_LONG_MAX),
    "min.cleanable.dirty.ratio": KeptConfig("double", "0.5", 0, 1),
    "min.compaction.lag.ms": _long(0),
    "min.insync.replicas": _int(1, 1),
    "preallocate": KeptConfig("boolean", "false", choices=_SWITCH),
    "segment.bytes": _int(1 << 30, 14),
    "segment.index.bytes": _int(10 << 20, 4),
    "segment.jitter.ms": _long(0),
    "segment.ms": _long(604_800_000, 1),
}


def merged(present: Mapping[str, str], changes: object) -> dict[str, str]:
    """Kept configs after some changes: what is not named stays, and None takes a config away."""
    if not isinstance(changes, Mapping):
        raise InvalidInput("kafka_configs", repr(changes)[:100], "it must be an object of texts, or null, by name")
    after = dict(present)
    for name, value in changes.items():
        if name not in KEPT_CONFIGS:
            raise InvalidInput("kafka_configs", repr(name)[:100], f"known ones are {', '.join(KEPT_CONFIGS)}")
        if value is None:
            after.pop(name, None)
        elif isinstance(value, str):
            after[name] = KEPT_CONFIGS[name].checked(name, value)
        else:
            raise InvalidInput(name, repr(value)[:100], "it must be a text, or null to take it away")
    return dict(sorted(after.items()))

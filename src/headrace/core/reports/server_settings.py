"""The settings that a server runs with, as a list that people can read. Secrets are hidden by who makes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

# On a field of settings that nobody tunes: tests and programs may give another value, and a server has the default.
FIXED: Final = msgspec.Meta(extra={"is_fixed": True})


class SettingDescription(msgspec.Struct, frozen=True):
    """A setting: its name with its layer, such as `broker.queue_bytes`, its value and default, and where it is set.

    origin: `default`, the name of a file or an environment variable, or a flag of the command line.
    """

    name: str
    value: Any
    default: Any
    origin: str = "default"


class ServerSettings(msgspec.Struct, frozen=True):
    """The settings of one server of a store."""

    server_id: str
    settings: list[SettingDescription]


def is_fixed(field: Any) -> bool:
    """Whether a field, of those that msgspec names, is no setting of a server."""
    return FIXED in getattr(field.type, "__metadata__", ())


def describe_settings(
    settings: msgspec.Struct, origins: Mapping[str, str] | None = None, prefix: str = ""
) -> Iterator[SettingDescription]:
    """Every setting of a struct; a struct within it is a layer."""
    for field in msgspec.structs.fields(settings):
        name, value = prefix + field.name, getattr(settings, field.name)
        if isinstance(value, msgspec.Struct):
            yield from describe_settings(value, origins, f"{name}.")
        elif not is_fixed(field):
            default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
            yield SettingDescription(name, value, default, (origins or {}).get(name, "default"))

"""`python -m tests.tuned COMMAND… --fixed NAME=SECONDS`: the headrace command with other values of what is no setting.

A server that tests start acts on its intervals sooner. `archive.lease_seconds` is a field of a section, and
`port.room_seconds_max` one of every port.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from headrace.cli import main
from headrace.cli.server import settings
from headrace.cli.server.settings import ServeSettings
from headrace.edge.settings import LimitSettings, PortSettings


def tuned(arguments: Sequence[str]) -> list[str]:
    """The arguments without the fixed values, which this process has from now on."""
    left, values = [], defaultdict[str, dict[str, Any]](dict)
    given = iter(arguments)
    for argument in given:
        if argument == "--fixed":
            name, _, value = next(given).partition("=")
            section, _, field = name.partition(".")
            values[section][field] = float(value)
        else:
            left.append(argument)
    if values:
        _tune(values.pop("port", {}), values)
    return left


def _tune(port: dict[str, Any], sections: dict[str, dict[str, Any]]) -> None:
    load, within = settings.load, PortSettings.within

    def loaded(*given: Any) -> ServeSettings:
        made = load(*given)
        found = {name: structs.replace(getattr(made, name), **values) for name, values in sections.items()}
        return structs.replace(made, **found)

    def bounded(self: PortSettings, limits: LimitSettings) -> PortSettings:
        return structs.replace(within(self, limits), **port)

    settings.load = loaded  # type: ignore[assignment]
    PortSettings.within = bounded  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    sys.exit(main.run(tuned(sys.argv[1:])))

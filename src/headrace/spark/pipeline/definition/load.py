"""Loads a `Description` from a TOML file: replaces variables and rejects unknown keys.

`${NAME}` in a value is a variable, `${NAME:-default}` one with a default, and `$${` a literal `${`. A value that is
empty after replacement counts as omitted. Every error is an `InvalidInput` that names the key as `section.key`; only
the file is read.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from headrace.core.errors import InvalidInput
from headrace.spark.pipeline.definition.check import check
from headrace.spark.pipeline.definition.description import (
    DatabaseSink,
    DeadTable,
    DeadTopic,
    Deduplicate,
    Description,
    FormatSource,
    NamedSink,
    ReportSink,
    Run,
    SampleTest,
    Section,
    ServerSection,
    Step,
    TableSink,
    TopicSink,
    TopicSource,
)
from headrace.spark.pipeline.definition.paths import normal_path

_SECTIONS: Final = (
    "name", "server", "source", "sources", "deduplicate", "steps", "sink", "sinks", "dead_letters", "run",
    "spark", "tests",
)  # fmt: skip
_SECRETS: Final = ("token", "database")
# What says where dead letters go.
_PLACES: Final = frozenset({"topic", "format", "path"})
_PATHS: Final = ("path", "checkpoint")
_VARIABLE: Final = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

Kind = TypeVar("Kind", bound=Section)


def load(file: Path, variables: Mapping[str, str]) -> Description:
    """Load the pipeline in a file; its name defaults to the file's name."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("pipeline", str(file), f"it cannot be read: {error}") from None
    return msgspec.structs.replace(parse(text, variables, file.stem), directory=str(file.absolute().parent))


def parse(text: str, variables: Mapping[str, str], name: str = "pipeline") -> Description:
    """Parse a pipeline from TOML text."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput("pipeline", name, f"it is not valid TOML: {error}") from None
    return describe(content, variables, name)


def describe(content: Mapping[str, Any], variables: Mapping[str, str], name: str = "pipeline") -> Description:
    """Build a pipeline from tables of values."""
    _check_keys(content, _SECTIONS, "")
    given = _filled(dict(content), variables, "")
    for needed in ("source", "sink"):
        if not isinstance(given.get(needed), dict):
            raise InvalidInput(needed, "missing", f"a pipeline needs a table [{needed}]")
    description = Description(
        name=_text(given.get("name", name), "name"),
        server=_section(given.get("server", {}), ServerSection, "server"),
        source=_source(given["source"]),
        deduplicate=_section(given["deduplicate"], Deduplicate, "deduplicate") if "deduplicate" in given else None,
        steps=_steps(given.get("steps", [])),
        sink=_section(given["sink"], _sink_kind(given["sink"]), "sink"),
        dead_letters=_dead_letters(given.get("dead_letters"), content.get("dead_letters")),
        run=_section(given.get("run", {}), Run, "run"),
        spark=_spark(given.get("spark", {})),
        sources=_sources(given.get("sources", {})),
        sinks=_sinks(given.get("sinks", {})),
        tests=[_section(test, SampleTest, f"tests.{number}") for number, test in enumerate(given.get("tests", []))],
    )
    check(description)
    return description


def _source(given: Any, place: str = "source") -> TopicSource | FormatSource:
    is_topic = isinstance(given, dict) and ("topic" in given or "topic_pattern" in given)
    return _section(given, TopicSource, place) if is_topic else _section(given, FormatSource, place)


def _sources(given: Any) -> dict[str, TopicSource | FormatSource]:
    """Named sources; unlike the main one they are read as a batch unless they say otherwise."""
    if not isinstance(given, dict) or not all(isinstance(each, dict) for each in given.values()):
        raise InvalidInput("sources", repr(given)[:100], "each source is a table: write [sources.NAME]")
    return {name: _source({"mode": "batch", **each}, f"sources.{name}") for name, each in given.items()}


def _sinks(given: Any) -> dict[str, NamedSink]:
    """Named sinks, beside the main one."""
    if not isinstance(given, dict) or not all(isinstance(each, dict) for each in given.values()):
        raise InvalidInput("sinks", repr(given)[:100], "each sink is a table: write [sinks.NAME]")
    return {name: _section(each, _named_kind(each), f"sinks.{name}") for name, each in given.items()}


def _named_kind(given: Mapping[str, Any]) -> type[NamedSink]:
    if "topic" in given:
        return TopicSink
    return DatabaseSink if "database" in given else TableSink


def _sink_kind(given: Mapping[str, Any]) -> type[NamedSink] | type[ReportSink]:
    return ReportSink if given.get("format") == "report" else _named_kind(given)


def _dead_letters(given: Any, written: Any) -> DeadTopic | DeadTable | None:
    """Where dead letters go; nowhere if the topic or table that is written there is an empty variable."""
    if given is None or (isinstance(given, dict) and _PLACES & written.keys() and not _PLACES & given.keys()):
        return None
    is_topic = isinstance(given, dict) and "topic" in given
    return _section(given, DeadTopic, "dead_letters") if is_topic else _section(given, DeadTable, "dead_letters")


def _steps(given: Any) -> list[Step]:
    if not isinstance(given, list):
        raise InvalidInput("steps", type(given).__name__, "each step is a table: write [[steps]]")
    return [_section(step, Step, f"steps.{number}") for number, step in enumerate(given)]


def _spark(given: Any) -> dict[str, str]:
    """The settings of Spark by their full names, whether the table's own name was taken for a part of them or not."""
    if not isinstance(given, dict):
        raise InvalidInput("spark", repr(given)[:100], "it must be a table of settings")
    flat = _configuration(given)
    return {name if name.startswith("spark.") else f"spark.{name}": value for name, value in flat.items()}


def _configuration(given: dict[str, Any]) -> dict[str, str]:
    """Settings as text, which TOML may have taken for nested tables: a.b = 1."""
    flat: dict[str, str] = {}
    for key, value in given.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{below}": text for below, text in _configuration(value).items()}
        else:
            flat[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return flat


def _section(given: Any, kind: type[Kind], place: str) -> Kind:
    if not isinstance(given, dict):
        raise InvalidInput(place, repr(given)[:100], f"it must be a table: write [{place}]")
    _check_keys(given, kind.__struct_fields__, f"{place}.")
    if "options" in kind.__struct_fields__ and isinstance(given.get("options"), dict):
        given = {**given, "options": _configuration(given["options"])}
    is_ours = given.get("format") == "delta" or "checkpoint" in given
    given = {key: normal_path(value, is_ours) if key in _PATHS else value for key, value in given.items()}
    if "settings" in kind.__struct_fields__ and isinstance(given.get("settings"), dict):
        # Variables are text, also where a number is meant.
        numbers = {key: int(value) for key, value in given["settings"].items() if str(value).isdecimal()}
        given = {**given, "settings": given["settings"] | numbers}
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in given.items():
        try:
            # Not strict: variables are text, also where a number is meant.
            msgspec.convert(value, types[key], strict=False)
        except msgspec.ValidationError as error:
            shown = "not shown" if key in _SECRETS else repr(value)[:100]
            raise InvalidInput(f"{place}.{key}", shown, str(error)) from None
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(place, "incomplete", str(error).replace("Object missing", "it needs the")) from None


def _check_keys(given: Mapping[str, Any], known: Iterable[str], prefix: str) -> None:
    names = list(known)
    for key in given:
        if key not in names:
            close = get_close_matches(key, names, n=1, cutoff=0.6)
            hint = f"did you mean {prefix}{close[0]}?" if close else f"known keys are {', '.join(names)}"
            raise InvalidInput(f"{prefix}{key}", "unknown", f"this key does not exist: {hint}")


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInput(place, repr(value)[:100], "it must be text")
    return value


def _filled(value: Any, variables: Mapping[str, str], place: str) -> Any:
    """A value with its variables replaced; keys that are left with nothing are dropped."""
    if isinstance(value, str):
        return _replaced(value, variables, place)
    if isinstance(value, list):
        return [_filled(each, variables, f"{place}.{number}") for number, each in enumerate(value)]
    if isinstance(value, datetime):
        return value.isoformat()
    if not isinstance(value, dict):
        return value
    prefix = f"{place}." if place else ""
    filled = {key: _filled(each, variables, prefix + key) for key, each in value.items()}
    return {key: each for key, each in filled.items() if each != "" or value[key] == ""}


def _replaced(text: str, variables: Mapping[str, str], place: str) -> str:
    def value_of(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        if name is None:
            return "${"
        if name in variables:
            return variables[name]
        if default is None:
            raise InvalidInput(place, match.group(), f"the variable {name} is not set: set it with --var {name}=…")
        return default

    return _VARIABLE.sub(value_of, text)

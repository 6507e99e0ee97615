"""Prints docs/reference/python.md: everything that `headrace` exports, with types, what is returned, and examples.

`make docs` runs it. tests/docs/test_python_reference.py compares the page with what it prints, and fails for a member
that is neither shown nor named below as internal; the blocks of the page are run as those of every page.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from types import ModuleType, UnionType
from typing import Any, Final, Union, get_args, get_origin

import headrace
from headrace.core import errors

HEAD: Final = """# Python API

What `headrace` exports, with the types of parameters and of what is returned. Everything else may change between
releases ([versions](../versions.md)). [python.md](../python.md) explains how to use it.
"""
_BROKER: Final = """
can_write disk_space failing_topics forget_offsets heartbeat intake join_group known_topic_name known_topics knows_topic
leave_group open_producer publish_as publish_numbered reader start store store_metrics topic_metrics topic_name topics
topics_of_groups topics_version topics_with_gaps
"""
# What is public for other packages of Headrace, and not for programs.
INTERNAL: Final[dict[str, frozenset[str]]] = {
    "Consumer": frozenset({"generation", "give", "has_changed", "is_next", "keep_up", "one_by_one", "polled", "take"}),
    "TopicsConsumer": frozenset({"generation", "give", "is_next", "one_by_one", "take"}),
    "Following": frozenset({"take"}),
    "Receipts": frozenset(),
    "Broker": frozenset(_BROKER.split()),
}
# A program for each of the larger ones, and what it prints.
EXAMPLES: Final[dict[str, tuple[str, str]]] = {
    "connect": (
        """import headrace

with headrace.connect("headrace://127.0.0.1:7071", client_id="reports") as client:
    topic = client.create_topic("orders", partitions=2, retention_seconds=7 * 86_400)
    print(topic.name, topic.partitions, topic.settings.retention_seconds)
""",
        "orders 2 604800\n",
    ),
    "Producer": (
        """import pyarrow as pa

import headrace

with headrace.connect("headrace://127.0.0.1:7071") as client:
    with client.producer("orders", producer_id="till-7") as producer:
        future = producer.send(b"42.00", key=b"ann", attributes={"kind": b"sale"})
        print(future.result().status)
        receipts = producer.send_batch(pa.table({"value": ["7.50", "3.20"], "key": ["tom", "ann"]}))
        print(receipts.num_rows, "in one commit, last seqno", producer.last_seqno)
""",
        "written\n2 in one commit, last seqno 3\n",
    ),
    "Consumer": (
        """import headrace

with headrace.connect("headrace://127.0.0.1:7071") as client:
    with client.consumer("orders", group="billing") as consumer:
        total = sum(float(message.value) for message in consumer.messages(idle_seconds=5.0))
        consumer.commit()
    print(f"{total:.2f}, lag", client.describe_group("orders", "billing").lag_messages)
""",
        "52.70, lag 0\n",
    ),
    "TopicsConsumer": (
        """import headrace

with headrace.connect("headrace://127.0.0.1:7071") as client:
    client.create_topic("refunds")
    with client.producer("refunds") as producer:
        producer.send(b"-3.20").result()
    with client.consumer(["orders", "refunds"], group="ledger") as consumer:
        print(sorted({message.topic for message in consumer.messages(idle_seconds=5.0)}))
""",
        "['orders', 'refunds']\n",
    ),
    "Client": (
        """from datetime import UTC, datetime, timedelta

import headrace

with headrace.connect("headrace://127.0.0.1:7071") as client:
    print(client.list_topics(), client.list_groups("orders"))
    print(sum(end - start for start, end in client.offsets("orders").values()), "messages")
    an_hour_ago = client.offsets_at("orders", datetime.now(UTC) - timedelta(hours=1))
    client.seek("orders", "billing", an_hour_ago)  # read the last hour again
    print(client.describe_group("orders", "billing").lag_messages, "to read again")
    print(client.to_arrow("orders", columns=["key", "value"]).schema.names)
""",
        "['orders', 'refunds'] ['billing', 'ledger']\n3 messages\n3 to read again\n['key', 'value']\n",
    ),
    "Broker": (
        """import pyarrow as pa

from headrace import Broker

with Broker.open("memory:") as broker:
    broker.create_topic("orders")
    receipts = broker.publish("orders", pa.record_batch({"value": [b"42.00", b"7.50"]}))
    print(receipts.written, broker.offsets("orders"))
""",
        "2 {0: (0, 2)}\n",
    ),
    "errors": (
        """import headrace
from headrace.errors import TopicNotFound

with headrace.connect("headrace://127.0.0.1:7071") as client:
    try:
        client.describe_topic("nothing")
    except TopicNotFound as error:
        print(error.code, error.topic, error.retry)
""",
        "topic_not_found nothing False\n",
    ),
    "aio": (
        """import asyncio

import headrace


async def main() -> None:
    async with headrace.aio.connect("headrace://127.0.0.1:7071") as client:
        async with client.producer("orders") as producer:
            print((await producer.send(b"1.00")).status)


asyncio.run(main())
""",
        "written\n",
    ),
}
# The order of the page.
SECTIONS: Final = {
    "Connect, publish, read": (
        "connect Producer Consumer TopicsConsumer Client Following Message Receipt TopicPartition Start table"
    ),
    "Settings and descriptions": (
        "TopicOptions TopicSettings TopicDescription GroupDescription PartitionProgress CommitOutcome "
        "SourceDescription ServerDescription Identity PipelineReport PipelineDescription CommitKey Staged"
    ),
    "The broker as a library": "Broker BrokerSettings TopicDefaults Receipts",
    "Modules": "aio errors testing tracing",
}
_LINE: Final = 100
_DOCTEST: Final = re.compile(r"(?:^>>> .*\n?(?:^.+\n?)*)", re.MULTILINE)


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for title, names in SECTIONS.items():
        parts.append(f"\n## {title}\n")
        for name in names.split():
            parts += _described(name, getattr(headrace, name))
    text = "".join(parts)
    return (text + "".join(_aliases(text))).rstrip("\n") + "\n"


def listed() -> set[str]:
    """The names that the page has."""
    return {name for names in SECTIONS.values() for name in names.split()}


def members(kind: type) -> dict[str, Any]:
    """The methods and properties of a class that programs may use."""
    found = {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}
    hidden = INTERNAL.get(kind.__name__, frozenset())
    return {name: each for name, each in found.items() if name not in hidden and _is_described(each)}


def _is_described(member: Any) -> bool:
    if isinstance(member, property | classmethod | staticmethod):
        return bool(inspect.getdoc(member))
    return inspect.isfunction(member)


def _described(name: str, thing: Any) -> Iterator[str]:
    yield f"\n### headrace.{name}\n"
    if isinstance(thing, ModuleType):
        yield from _introduced(name, thing)
        if name == "errors":
            yield from _errors()
    elif inspect.isclass(thing):
        yield from _class(name, thing)
    elif inspect.isfunction(thing):
        yield f"\n```text\n{_signature(name, thing)}\n```\n"
        yield from _introduced(name, thing)
    else:
        # What may be given, not a class.
        kinds = " | ".join(getattr(each, "__name__", str(each)) for each in getattr(thing, "__args__", [thing]))
        yield f"\n`{kinds}`: where to begin to read; python.md lists the forms.\n"


def _introduced(name: str, thing: Any) -> Iterator[str]:
    """What its docstring says, and a program that uses it in place of the docstring's."""
    program, printed = EXAMPLES.get(name, ("", ""))
    text = inspect.getdoc(thing) or ""
    yield from _prose(_DOCTEST.sub("", text) if program else text)
    if program:
        yield f"\n```python\n{program}```\n\n```output\n{printed}```\n"


def _class(name: str, kind: type) -> Iterator[str]:
    fields = getattr(kind, "__struct_fields__", None) or getattr(kind, "__dataclass_fields__", None)
    is_value = fields is not None or hasattr(kind, "_fields") or hasattr(kind, "__total__")
    yield from _introduced(name, kind)
    if is_value:
        yield f"\n```text\n{chr(10).join(_fields(kind))}\n```\n"
    for each, member in members(kind).items():
        described = inspect.getdoc(member) or ""
        if isinstance(member, property):
            returned = (member.fget.__annotations__ if member.fget else {}).get("return", "")
            yield f"\n#### {name}.{each}\n\n```text\n{each}: {returned}\n```\n"
        else:
            is_static = isinstance(member, classmethod | staticmethod)
            function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            signature = _signature(f"{name}.{each}" if is_static else each, function)
            yield f"\n#### {name}.{each}\n\n```text\n{signature}\n```\n"
        yield from _prose(described)


def _fields(kind: type) -> Iterator[str]:
    defaults = {}
    if not hasattr(kind, "__total__"):
        defaults = {each.name: each.default for each in inspect.signature(kind).parameters.values()}
    for base in reversed(kind.__mro__):
        for name, annotation in inspect.get_annotations(base).items():
            if not name.startswith("_") and "ClassVar" not in str(annotation):
                default = defaults.get(name, inspect.Parameter.empty)
                has_default = default is not inspect.Parameter.empty
                yield f"{name}: {_text(annotation)}" + (f" = {default!r}" if has_default else "")


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    shown = [each for each in _parameters(signature) if each not in ("self", "cls", "/")]
    returned = (
        "" if signature.return_annotation is inspect.Signature.empty else f" -> {_text(signature.return_annotation)}"
    )
    line = f"{name}({', '.join(shown)}){returned}"
    if len(line) <= _LINE:
        return line
    return f"{name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){returned}"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    is_named = False
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not is_named:
            is_named = True
            yield "*"
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        is_named = is_named or each.kind is each.VAR_POSITIONAL
        kind = "" if each.annotation is each.empty else f": {_text(each.annotation)}"
        default = "" if each.default is each.empty else f" = {each.default!r}" if kind else f"={each.default!r}"
        yield f"{stars}{each.name}{kind}{default}"


def _text(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    return str(getattr(annotation, "__forward_arg__", None) or getattr(annotation, "__name__", annotation))


def _alias(value: Any) -> str:
    if get_origin(value) in (Union, UnionType):
        return " | ".join(map(_alias, get_args(value)))
    if inspect.isclass(value) and get_origin(value) is None:
        return value.__name__ if value is not type(None) else "None"
    return re.sub(r"\b(?:typing|collections\.abc|os|numpy)\.", "", str(value))


def _aliases(text: str) -> Iterator[str]:
    """What names in signatures stand for, where that is a choice or a union."""
    named = set(re.findall(r"(?<![\w.])[A-Z]\w+", " ".join(re.findall(r"```text\n(.*?)```", text, re.DOTALL))))
    found: dict[str, str] = {}
    for module in [sys.modules[name] for name in sorted(sys.modules, reverse=True) if name.startswith("headrace.")]:
        for name in named & set(vars(module)):
            value = getattr(module, name)
            if get_origin(value) is not None or isinstance(value, UnionType):
                found[name] = _alias(value)
    yield "\n## Names of types\n\n```text\n"
    yield from (f"{name} = {value}\n" for name, value in sorted(found.items()))
    yield "```\n"


def _errors() -> Iterator[str]:
    """Each error with its code, and whether a retry may help."""
    yield "\n| error | code | a retry may help | meaning |\n|---|---|---|---|\n"
    for name, kind in sorted(vars(errors).items()):
        if inspect.isclass(kind) and issubclass(kind, errors.HeadraceError) and hasattr(kind, "code"):
            meaning = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split()).replace("|", "\\|")
            yield f"| `{name}` | `{kind.code}` | {'yes' if kind.retry else 'no'} | {meaning} |\n"


def _prose(text: str) -> Iterator[str]:
    """A docstring as Markdown: its sentences, its parameters as a list, its examples as code."""
    for part in re.split(r"\n\n+", text.strip("\n")):
        if part.startswith(">>>"):
            yield f"\n```text\n{part}\n```\n"
        elif "\n    " in f"\n{part}" and part.startswith("    "):
            yield f"\n```text\n{textwrap.dedent(part)}\n```\n"
        elif re.match(r"(?:\w+, )*\w+: ", part):
            entries = re.split(r"\n(?=(?:[\w…]+, )*[\w…]+: )", part)
            yield "\n" + "".join(f"- {_entry(each)}\n" for each in entries)
        elif part:
            yield f"\n{part}\n"


def _entry(text: str) -> str:
    names, _, meaning = " ".join(text.split()).partition(": ")
    return ", ".join(f"`{each}`" for each in names.split(", ")) + f": {meaning}"


if __name__ == "__main__":
    print(page(), end="")

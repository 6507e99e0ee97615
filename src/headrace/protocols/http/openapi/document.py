"""The OpenAPI document: bodies, answers and errors of every operation, with examples.

Litestar finds paths and parameters by itself. What it cannot know is in `opt["docs"]` of each handler: the structs of
bodies and answers, whose schemas come from msgspec, which also checks them; examples; whether Arrow is supported;
which errors are possible beyond those of every operation. Every error is a problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

import msgspec
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import Components, SecurityScheme
from litestar.routes import HTTPRoute

from headrace.core.limits import ID_CHARACTERS_MAX, NAME_CHARACTERS_MAX, PARTITIONS_MAX
from headrace.edge.operations import OPERATIONS
from headrace.protocols.http.errors import MEDIA_TYPE, Problem
from headrace.protocols.http.formats import ARROW, JSON
from headrace.protocols.http.requests.negotiation import EVENTS
from headrace.wire.json import MessageOut

SECURITY: Final[list[dict[str, list[str]]]] = [{"token": []}]
COMPONENTS: Final = Components(
    security_schemes={
        "token": SecurityScheme(
            type="http",
            scheme="bearer",
            bearer_format="hr_<id>_<secret>",
            description="A token created by `headrace token create`. A server without tokens needs none.",
        )
    }
)

MESSAGE: Final = MessageOut(
    partition=0,
    offset=41,
    timestamp=datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
    value='{"account": 7, "cents": -1250}',
    key="account-7",
    attributes={"kind": "sale"},
    producer_id="till-7",
    seqno=4711,
)

_REFS: Final = "#/components/schemas/"
_NAME: Final = "^[^\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029]+$"
_ALWAYS: Final = (422, 503)
_WITH_TOKENS: Final = (401, 403, 429)
_WITH_BODY: Final = (408, 413, 415)
_REASONS: Final = {
    401: "No token was sent, or it is unknown, expired or revoked.",
    403: "The token lacks this right on this topic.",
    404: "The topic, or another object named in the path, does not exist.",
    406: "The answer has no type that Accept allows.",
    408: "The body did not arrive in time.",
    409: "The request conflicts with the current state.",
    413: "The body, or a message in it, is too large.",
    415: "The body is of a type that is not taken here.",
    422: "A value breaks a rule; `fields` says which.",
    429: "The caller is over one of its limits: try again after the seconds in Retry-After, if there are any.",
    503: "It cannot be done now: try again after the seconds in Retry-After.",
}


@dataclass(frozen=True)
class Docs:
    """Body and answer of an operation, with an example of each, and its specific errors."""

    body: type[msgspec.Struct] | None = None
    given: Any = None
    takes_arrow: bool = False
    takes_plain: tuple[str, ...] = ()
    answer: type[msgspec.Struct] | None = None
    example: Any = None
    answers_arrow: bool = False
    answers_events: bool = False
    errors: tuple[int, ...] = ()


def name_schema(characters_max: int) -> dict[str, Any]:
    """What a name may be: no control characters and no line ends."""
    return {"type": "string", "minLength": 1, "maxLength": characters_max, "pattern": _NAME}


def _named(description: str, characters_max: int, example: str) -> dict[str, Any]:
    schema = name_schema(characters_max)
    return {"description": f"{description}, percent-encoded", "schema": schema, "example": example}


_PATH_PARAMETERS: Final = {
    "topic": _named("the topic's name, case-insensitive", NAME_CHARACTERS_MAX, "orders"),
    "group": _named("the group's name", NAME_CHARACTERS_MAX, "billing"),
    "member": _named("the member's name, or the index of a consumer of a fixed group", ID_CHARACTERS_MAX, "worker-1"),
    "producer": {
        "description": "the producer's id, any text, percent-encoded",
        "schema": {"type": "string", "minLength": 1, "maxLength": ID_CHARACTERS_MAX},
        "example": "till-7",
    },
    "pipeline": _named("the pipeline's name", ID_CHARACTERS_MAX, "land-orders"),
    "writer": _named("the commit key writer", ID_CHARACTERS_MAX, "nightly"),
    "partition": {
        "description": "the partition's number",
        "schema": {"type": "integer", "minimum": 0, "maximum": PARTITIONS_MAX - 1},
        "example": 0,
    },
}


def document(app: Litestar) -> dict[str, Any]:
    """The whole document of an application."""
    whole = app.openapi_schema.to_schema()
    described = [(operation, handler, docs) for operation, handler, docs in _operations(app, whole) if docs]
    for operation, handler, docs in described:
        _describe(operation, handler, docs)
    kinds = {kind for *_, docs in described for kind in (docs.body, docs.answer) if kind is not None}
    _, schemas = msgspec.json.schema_components(
        [Problem, *sorted(kinds, key=lambda kind: kind.__name__)], ref_template=_REFS + "{name}"
    )
    whole["components"]["schemas"].update(schemas)
    _prune(whole)
    return whole


def _operations(app: Litestar, whole: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], HTTPRouteHandler, Any]]:
    for route in app.routes:
        if isinstance(route, HTTPRoute) and route.path_format in whole["paths"]:
            for method, (handler, _) in route.route_handler_map.items():
                operation = whole["paths"][route.path_format].get(method.lower())
                if operation is not None:
                    yield operation, handler, handler.opt.get("docs")


def _describe(operation: dict[str, Any], handler: HTTPRouteHandler, docs: Docs) -> None:
    operation["operationId"] = handler.handler_name
    for parameter in operation.get("parameters", ()):
        _describe_parameter(parameter)
    if docs.body is not None:
        content = _content(docs.body, docs.given, docs.takes_arrow) | {kind: {} for kind in docs.takes_plain}
        operation["requestBody"] = {"required": True, "content": content}
    if _is_public(handler):
        operation["security"] = []
    responses = {str(handler.status_code): _answer(docs)}
    for status in sorted(_errors(handler, docs)):
        responses[str(status)] = _problem(status)
    operation["responses"] = responses


def _is_public(handler: HTTPRouteHandler) -> bool:
    return OPERATIONS[handler.opt["operation"]].is_public


def _describe_parameter(parameter: dict[str, Any]) -> None:
    if parameter["in"] == "path":
        parameter.update(_PATH_PARAMETERS[parameter["name"]])
    # The description is beside the schema, not in it; and an optional parameter is never sent as null.
    parameter["schema"] = _without_null(parameter["schema"])
    parameter["schema"].pop("description", None)
    parameter.pop("allowEmptyValue", None)
    parameter.pop("allowReserved", None)
    parameter.pop("deprecated", None)


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    choices = [choice for choice in schema.get("oneOf", ()) if choice != {"type": "null"}]
    return choices[0] if len(choices) == 1 else schema


def _answer(docs: Docs) -> dict[str, Any]:
    if docs.answers_events:
        content = {EVENTS: {"schema": {"type": "string"}, "example": docs.example}}
        return {"description": "Events, until the client disconnects or the topic is deleted.", "content": content}
    if docs.answer is None:
        return {"description": "Done."}
    description = (docs.answer.__doc__ or "").strip().splitlines()[0]
    return {"description": description, "content": _content(docs.answer, docs.example, docs.answers_arrow)}


def _content(kind: type[msgspec.Struct], example: Any, has_arrow: bool) -> dict[str, Any]:
    content: dict[str, Any] = {JSON: {"schema": {"$ref": _REFS + kind.__name__}}}
    if example is not None:
        content[JSON]["example"] = msgspec.to_builtins(example)
    if has_arrow:
        # Binary bodies have no schema in OpenAPI 3.1; the media type says it all.
        content[ARROW] = {}
    return content


def _errors(handler: HTTPRouteHandler, docs: Docs) -> set[int]:
    errors = {*_ALWAYS, *docs.errors}
    if not _is_public(handler):
        errors.update(_WITH_TOKENS)
    if docs.body is not None:
        errors.update(_WITH_BODY)
    return errors


def _problem(status: int) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": _REASONS.get(status, HTTPStatus(status).phrase),
        "content": {MEDIA_TYPE: {"schema": {"$ref": f"{_REFS}Problem"}}},
    }
    if status in (429, 503):
        schema = {"type": "string", "pattern": "^[0-9]+$"}
        response["headers"] = {"Retry-After": {"description": "seconds", "schema": schema}}
    return response


def _prune(whole: dict[str, Any]) -> None:
    """Remove schemas that nothing refers to: Litestar adds its own for the same structs."""
    schemas = whole["components"]["schemas"]
    needed: set[str] = set()
    found = _references(whole["paths"])
    while found:
        needed |= found
        found = {name for known in found for name in _references(schemas[known])} - needed
    whole["components"]["schemas"] = {name: schemas[name] for name in sorted(needed)}


def _references(part: Any) -> set[str]:
    return set(re.findall(re.escape(f'"{_REFS}') + r'([^"]+)"', msgspec.json.encode(part).decode()))

"""The queue API in the OpenAPI document: one spelling of each request, and failures in its format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from litestar.openapi.spec import (
    Example,
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Parameter,
    RequestBody,
    Schema,
)

_JSON: Final = "application/json"
_TYPES: Final = {str: OpenAPIType.STRING, int: OpenAPIType.INTEGER}
_FAILURES: Final = {
    "400": ("The request is malformed.", "topic is missing: give the name of the topic"),
    "401": ("No token was sent, or it is unknown, expired or revoked.", "no token was sent: send a valid token"),
    "403": ("The token lacks this right on this topic.", "token 'till' has no right to read 'orders'"),
    "500": ("The request failed.", "topic 'orders' does not exist: create it first"),
}


def described(answer: dict[str, Any], given: dict[str, str | int] | None = None, in_query: bool = False) -> Any:
    """The class of an operation that takes such fields and answers like this; both are examples."""

    @dataclass
    class Described(Operation):
        def __post_init__(self) -> None:
            self.tags = ["queue API"]
            self.responses = {"200": _response("Success.", {"status": "success", **answer})}
            for status, (description, why) in _FAILURES.items():
                self.responses[status] = _response(description, {"status": "failure", "message": why})
            if given is not None and in_query:
                self.parameters = [_parameter(name, value) for name, value in given.items()]
            elif given is not None:
                self.request_body = RequestBody(content={_JSON: _content(given)}, required=True)

    return Described


def _response(description: str, example: dict[str, Any]) -> OpenAPIResponse:
    return OpenAPIResponse(description=description, content={_JSON: _content(example)})


def _content(example: dict[str, Any]) -> OpenAPIMediaType:
    properties = {name: _schema(value) for name, value in example.items()}
    schema = Schema(type=OpenAPIType.OBJECT, properties=dict(properties), required=list(example))
    return OpenAPIMediaType(schema=schema, examples={"usual": Example(value=example)})


def _parameter(name: str, value: str | int) -> Parameter:
    return Parameter(name=name, param_in="query", required=True, schema=_schema(value), example=value)


def _schema(value: object) -> Schema:
    if isinstance(value, list):
        return Schema(type=OpenAPIType.ARRAY, items=Schema(type=OpenAPIType.STRING))
    return Schema(type=_TYPES[type(value)])

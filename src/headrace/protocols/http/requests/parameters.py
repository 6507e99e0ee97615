"""Query parameters that several operations share, each with its bounds and what it means."""

from __future__ import annotations

from typing import Annotated

from litestar.params import QueryParameter

from headrace.core.limits import FETCH_BYTES_MAX, FETCH_MESSAGES_MAX, FETCH_WAIT_SECONDS_MAX, SEQNO_MAX, TIME_US_MAX
from headrace.wire.json import Encoding

FirstOffset = Annotated[int | None, QueryParameter(description="the first offset to read", ge=0, le=SEQNO_MAX)]
FirstTime = Annotated[
    int | None,
    QueryParameter(description="or the first message at or after this time, in microseconds", ge=0, le=TIME_US_MAX),
]
MaxMessages = Annotated[int, QueryParameter(description="at most so many messages", ge=1, le=FETCH_MESSAGES_MAX)]
MaxBytes = Annotated[
    int,
    QueryParameter(
        description="about so many bytes, but at least one message if there is one", ge=1, le=FETCH_BYTES_MAX
    ),
]
WaitSeconds = Annotated[
    float, QueryParameter(description="how long to wait for the first message", ge=0, le=FETCH_WAIT_SECONDS_MAX)
]
EncodingParameter = Annotated[
    Encoding, QueryParameter(description="how values are given in JSON; those that are no text are in base64 anyway")
]

"""Query parameters that several operations share, with bounds and descriptions."""

from __future__ import annotations

from typing import Annotated

from litestar.params import QueryParameter

from headrace.core.limits import FETCH_BYTES_MAX, FETCH_MESSAGES_MAX, FETCH_WAIT_SECONDS_MAX, SEQNO_MAX, TIME_US_MAX
from headrace.wire.json import Encoding

FirstOffset = Annotated[int | None, QueryParameter(description="the first offset to read", ge=0, le=SEQNO_MAX)]
FirstTime = Annotated[
    int | None,
    QueryParameter(
        description="instead of an offset: the first message at or after this time, in microseconds since 1970",
        ge=0,
        le=TIME_US_MAX,
    ),
]
MaxMessages = Annotated[int, QueryParameter(description="maximum number of messages", ge=1, le=FETCH_MESSAGES_MAX)]
MaxBytes = Annotated[
    int,
    QueryParameter(
        description="approximate maximum of bytes; at least one message is returned if there is one",
        ge=1,
        le=FETCH_BYTES_MAX,
    ),
]
WaitSeconds = Annotated[
    float, QueryParameter(description="how many seconds to wait for the first message", ge=0, le=FETCH_WAIT_SECONDS_MAX)
]
EncodingParameter = Annotated[
    Encoding, QueryParameter(description="encoding of values in JSON; values that are not valid text are always base64")
]

"""InitProducerId: an id for an idempotent producer.

Ids are made of the time and a random number, so that no server and no restart gives the same one twice; nothing is
stored until the producer writes. A producer that asks again gets a new id, as Kafka does without transactions.
"""

from __future__ import annotations

import secrets
import time
from typing import Any, Final

from kio.schema.errors import ErrorCode

from headrace.protocols.kafka.apis.call import Call

_RANDOM_BITS: Final = 20


async def init_producer_id(call: Call, request: Any) -> dict[str, Any]:
    """A new id, with epoch 0; transactions are refused."""
    call.principal.require("whoami")
    if request.transactional_id is not None:
        # No transaction is short enough. Clients give up at this code; at most others librdkafka tries again for ever.
        code = ErrorCode.invalid_transaction_timeout if request.transactional_id else ErrorCode.invalid_request
        return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
    milliseconds = time.time_ns() // 1_000_000
    producer_id = (milliseconds << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
    return {"error_code": ErrorCode.none, "producer_id": producer_id, "producer_epoch": 0}

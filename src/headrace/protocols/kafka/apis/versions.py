"""ApiVersions: which APIs are served, in which versions."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from headrace.protocols.kafka.apis import table


def api_versions(error: ErrorCode = ErrorCode.none) -> dict[str, Any]:
    """All APIs with their versions."""
    return {"error_code": error, "api_keys": [_entry(key, api) for key, api in sorted(table.APIS.items())]}


def _entry(key: int, api: table.Api) -> dict[str, Any]:
    # Older versions of librdkafka look at the first version of Produce to decide what a broker can decompress. Kafka
    # itself names a version there that it does not serve.
    first = 0 if key == table.PRODUCE else api.versions[0]
    return {"api_key": key, "min_version": first, "max_version": api.versions[-1]}

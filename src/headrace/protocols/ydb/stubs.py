"""The messages of YDB's API: the only import of what the package `ydb` generates.

The stubs are private to that package, and the only ones on PyPI that know these messages: hence the pinned release. It
chooses those that fit the installed protobuf.
"""

from __future__ import annotations

from ydb._grpc.common.protos import (
    ydb_auth_pb2 as auth,
)
from ydb._grpc.common.protos import (
    ydb_discovery_pb2 as discovery,
)
from ydb._grpc.common.protos import (
    ydb_issue_message_pb2 as issues,
)
from ydb._grpc.common.protos import (
    ydb_operation_pb2 as operation,
)
from ydb._grpc.common.protos import (
    ydb_scheme_pb2 as scheme,
)
from ydb._grpc.common.protos import (
    ydb_status_codes_pb2 as status_codes,
)
from ydb._grpc.common.protos import (
    ydb_topic_pb2 as topic,
)

__all__ = ["auth", "discovery", "issues", "operation", "scheme", "status_codes", "topic"]

"""Where tokens are administered: on the catalog of a store, or at a running server.

Both do the same. On a store no token is needed, since a user who can write its files may do everything; a server on the
same store can keep running, and reads the catalog again every second. At a server the caller needs full access. A store
that does not exist is not created.
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from headrace.cli.exits import Exit, Failure
from headrace.cli.options.shared import ServerOptions
from headrace.core.errors import HeadraceError, NotFound
from headrace.core.limits import MICROSECONDS
from headrace.core.reports.descriptions import NewToken, TokenDescription
from headrace.core.reports.pipelines import PipelineDescription
from headrace.core.text import counted

if TYPE_CHECKING:
    from headrace.broker.access import Access
    from headrace.client import Client
    from headrace.storage.catalog import Catalog

_STORE_HERE: Final = "file:./headrace-data"
# A producer that wrote within this time is in use; of very many topics the first are asked.
_RECENT_SECONDS: Final = 3_600
_TOPICS_ASKED: Final = 200
_USERS_MAX: Final = 20


class Tokens(Protocol):
    """What can be done with tokens; a `Client` can."""

    def list_tokens(self) -> list[TokenDescription]: ...

    def create_token(
        self,
        name: str,
        grants: Iterable[tuple[str, Iterable[str]]],
        groups: Iterable[str] = ...,
        producers: Iterable[str] = ...,
        life_seconds: float | None = None,
        forward_only: bool = False,
        grace_seconds: float | None = None,
    ) -> NewToken: ...

    def rotate_token(self, name: str, keep_seconds: float, life_seconds: float | None = None) -> NewToken: ...

    def revoke_token(self, token_id: str) -> bool: ...


@contextmanager
def opened(server: ServerOptions, store: str | None, audit_log: str = "") -> Iterator[Tokens]:
    """The tokens of the server, or of the store, that is meant."""
    store = _store_meant(server, store)
    if store is None:
        with server.connected() as client:
            yield client
        return
    # Imported here: other commands do not need it and start faster without it.
    from headrace.broker.access import Access
    from headrace.edge import audit
    from headrace.storage.open import open_catalog

    if audit_log:
        try:
            audit.write_to(audit_log)
        except OSError as error:
            raise Failure(Exit.USAGE, f"cannot write the audit log {audit_log}: {error.strerror}") from None
    try:
        catalog = open_catalog(store)
        try:
            yield StoreTokens(Access(catalog), catalog)
        finally:
            catalog.close()
    except HeadraceError as error:
        raise Failure(Exit.USAGE, f"{error} (for the tokens of a running server give --url)") from None


def _store_meant(server: ServerOptions, store: str | None) -> str | None:
    """The store that is meant; none if a server is: one that a flag names, or else the environment, or a profile.

    Without either it is the store in this directory, as before the first start of its server, and else the server of
    this machine.
    """
    if server.is_named:
        return None
    if store is not None:
        return store
    if server.is_chosen:
        return None
    return os.environ.get("HEADRACE_STORE") or (_STORE_HERE if Path("headrace-data").exists() else None)


def users_without_token(tokens: Tokens) -> list[str]:
    """Who uses a store that has no tokens yet, and is refused once it has one; nobody if it has, or has no topics.

    A server knows its members and producers; a store only names what reads it. Who publishes without a producer id is
    known to neither, so topics count.
    """
    if tokens.list_tokens():
        return []
    return tokens.users() if isinstance(tokens, StoreTokens) else _users_of_server(cast("Client", tokens))


def _users_of_server(client: Client) -> list[str]:
    topics, recent_us = client.list_topics(), time.time_ns() // 1000 - _RECENT_SECONDS * MICROSECONDS
    users = _topics(len(topics))
    for topic in topics[:_TOPICS_ASKED]:
        # A topic or a group may be deleted meanwhile.
        with suppress(NotFound):
            described = [client.describe_group(topic, group) for group in client.list_groups(topic)]
            users += [
                f"group {each.name} of {topic} ({counted(len(each.members), 'member')})"
                for each in described
                if each.members
            ]
            sources = client.list_sources(topic, max_sources=_USERS_MAX)
            producers = {source.producer_id for source in sources if source.last_seen_us >= recent_us}
            users += [f"producer {producer} of {topic}" for producer in sorted(producers)]
    return users + _running(client.list_pipelines())


def _topics(count: int) -> list[str]:
    return [counted(count, "topic")] if count else []


def _running(pipelines: Iterable[PipelineDescription]) -> list[str]:
    return [f"pipeline {each.name} of {each.topic}" for each in pipelines if each.state in ("starting", "running")]


class StoreTokens:
    """The tokens of a store, whose changes are recorded in the audit log of this process."""

    def __init__(self, access: Access, catalog: Catalog) -> None:
        self._access = access
        self._catalog = catalog

    def users(self) -> list[str]:
        """What reads the topics of the store, as far as the catalog says."""
        names = {topic.id: topic.name for topic in self._catalog.topics()}
        groups = sorted((names[topic], group) for topic, group in self._catalog.named_groups(None) if topic in names)
        return _topics(len(names)) + [f"group {group} of {topic}" for topic, group in groups]

    def list_tokens(self) -> list[TokenDescription]:
        """All tokens."""
        from headrace.broker.access import described

        return [described(each) for each in self._access.list()]

    def create_token(
        self,
        name: str,
        grants: Iterable[tuple[str, Iterable[str]]],
        groups: Iterable[str] = ("*",),
        producers: Iterable[str] = ("*",),
        life_seconds: float | None = None,
        forward_only: bool = False,
        grace_seconds: float | None = None,
    ) -> NewToken:
        """Make a token."""
        from headrace.broker.access import described

        record, text = self._access.create(name, grants, groups, producers, life_seconds, forward_only, grace_seconds)
        _record("create_token", record.id, record.name)
        return NewToken(described(record), text, [])

    def rotate_token(self, name: str, keep_seconds: float, life_seconds: float | None = None) -> NewToken:
        """Replace the tokens of a name."""
        from headrace.broker.access import described

        record, text, old = self._access.rotate(name, keep_seconds, life_seconds)
        replaced = [each.id for each in old]
        _record("rotate_token", record.id, record.name, replaced=replaced)
        return NewToken(described(record), text, replaced)

    def revoke_token(self, token_id: str) -> bool:
        """Revoke a token; whether it existed."""
        names = {each.id: each.name for each in self._access.list()}
        is_revoked = self._access.revoke(token_id)
        if is_revoked:
            _record("revoke_token", token_id, names[token_id])
        return is_revoked


def _record(operation: str, token_id: str, name: str, **more: Any) -> None:
    from headrace.edge import audit

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    audit.record("done", operation, f"os:{user}", "local", token=token_id, name=name, **more)

"""Readers over HTTP for `headrace consume`: of partitions directly, or as a member of a group."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pyarrow as pa

from headrace.cli.exits import Exit, Failure
from headrace.cli.messages.events import follow
from headrace.cli.messages.positions import chosen_partitions, offsets_at
from headrace.cli.output import print_note
from headrace.cli.remote.http import HttpClient, Refused
from headrace.cli.remote.paths import path_of
from headrace.core.positions import AtTime, Earliest, Latest, Position, read_from

_FOLLOW_SECONDS: Final = 20.0
# How long a group member without --follow waits for more: another member may just have left.
_LINGER_SECONDS: Final = 0.5


class HttpReader:
    """Reads partitions without a group."""

    def __init__(
        self, client: HttpClient, topic: str, place: Position, partitions: list[int], is_following: bool
    ) -> None:
        self._client = client
        self._topic = topic
        self._follow = is_following
        self._is_all = not partitions
        known = {each["partition"]: each for each in client.get(path_of("topics", topic))["partitions"]}
        chosen = [known[partition] for partition in chosen_partitions(topic, partitions, known)]
        self._ends = {each["partition"]: each["end_offset"] for each in chosen}
        bounds = {each["partition"]: (each["start_offset"], each["end_offset"]) for each in chosen}
        self._next = offsets_at(place, bounds, self._offset_at, topic)

    def tables(self, limit: int) -> Iterator[pa.Table]:
        """The existing messages, partition by partition; then new ones if it follows."""
        for partition, end in self._ends.items():
            while self._next[partition] < end:
                yield from self._fetch(partition, min(limit, end - self._next[partition]), 0.0)
        if self._follow:
            yield from follow(self._client, path_of("topics", self._topic, "events"), self._next, self._is_all)

    def printed(self, table: pa.Table) -> None:
        """Does nothing: there is no group to commit to."""

    def close(self) -> None:
        """Does nothing: there is nothing to release."""

    def _fetch(self, partition: int, limit: int, wait_seconds: float) -> Iterator[pa.Table]:
        path = path_of("topics", self._topic, "partitions", partition, "messages")
        try:
            table = self._client.get_arrow(path, wait_seconds, offset=self._next[partition], max_messages=limit)
        except Refused as refused:
            start = refused.problem.fields.get("start", 0)
            if refused.problem.code != "offset_out_of_range" or start <= self._next[partition]:
                raise
            print_note(f"{refused.problem.detail}; reading continues there")
            self._next[partition] = start
            return
        self._next[partition] += table.num_rows
        if table.num_rows:
            yield table

    def _offset_at(self, partition: int, time_us: int) -> int:
        path = path_of("topics", self._topic, "partitions", partition, "messages")
        first = self._client.get_arrow(path, time_us=time_us, max_messages=1)
        return int(first["offset"][0].as_py()) if first.num_rows else int(self._ends[partition])


class HttpMember:
    """Reads as a member of a group, with a generated member id."""

    def __init__(self, client: HttpClient, topic: str, group: str, place: Position | None, is_following: bool) -> None:
        self._client = client
        self._follow = is_following
        self._group = path_of("topics", topic, "groups", group)
        self._me = f"{socket.gethostname()}-{os.getpid()}"
        self._path = f"{self._group}/members/{path_of(self._me).rsplit('/', 1)[1]}"
        self._generation = 0
        if place is not None:
            self._begin_at(place, group)
        self._join()

    def tables(self, limit: int) -> Iterator[pa.Table]:
        """The messages that the group has not read yet, and new ones if it follows."""
        wait_seconds = _FOLLOW_SECONDS if self._follow else _LINGER_SECONDS
        while True:
            try:
                table = self._client.get_arrow(f"{self._path}/messages", wait_seconds, max_messages=limit)
            except Refused as refused:
                if refused.problem.code != "member_not_found":
                    raise
                self._join()
                continue
            if table.num_rows:
                yield table
            elif not self._follow:
                return

    def printed(self, table: pa.Table) -> None:
        """Commit what was printed; where the group has moved on meanwhile, someone else prints it again."""
        # Not with numpy: pyarrow then imports pandas, which takes half a second, and swallows a Ctrl-C meanwhile.
        ends = table.group_by("partition").aggregate([("offset", "max")])
        offsets = [{"partition": row["partition"], "offset": row["offset_max"] + 1} for row in ends.to_pylist()]
        try:
            self._client.post(f"{self._group}/offsets", {"offsets": offsets, "member": self._me})
        except Refused as refused:
            if refused.problem.code not in ("member_not_found", "partition_not_owned", "stale_generation"):
                raise
            print_note("the group was rebalanced: another member may print the last messages again")

    def close(self) -> None:
        """Leave the group, so that other members get the partitions at once."""
        # If the server is unreachable or the session has expired, there is nothing to leave.
        with suppress(Failure):
            self._client.delete(self._path)

    def _begin_at(self, place: Position, group: str) -> None:
        """Set where the group starts, if it is new."""
        if not isinstance(place, Earliest | Latest | AtTime):
            raise Failure(
                Exit.USAGE, "a group starts at earliest, latest or a time; move it later with `headrace group seek`"
            )
        try:
            self._client.get(self._group)
            print_note(
                f"group {group} exists and continues at its committed offsets: --from applies to new groups only"
            )
        except Refused as refused:
            if refused.problem.code != "group_not_found":
                raise
            self._client.put(self._group, {"read_from": read_from(place)})

    def _join(self) -> None:
        self._client.put(self._path, {})

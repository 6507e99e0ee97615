"""One broken promise."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal[
    "lost",
    "doubled",
    "misplaced",
    "contradiction",
    "phantom",
    "foreign",
    "gap",
    "out_of_order",
    "scattered",
    "torn_commit",
    "commit_went_back",
    "passed_over",
    "seek_ignored",
    "two_owners",
    "generation_went_back",
    "dropped_unread",
    "stalled",
    "client_failed",
]

# What each kind means, for people.
MEANINGS: dict[Kind, str] = {
    "lost": "an acknowledged message does not exist",
    "doubled": "a message exists more than once",
    "misplaced": "a message is not at the offset of its receipt",
    "contradiction": "two readings of one offset gave different messages",
    "phantom": "a message exists although publishing it was refused",
    "foreign": "a message exists that nobody sent",
    "gap": "offsets are missing and the server reports no gap",
    "out_of_order": "messages of one source and key are not in the order sent",
    "scattered": "messages of one key are in more partitions than the topic has grown",
    "torn_commit": "a commit exists in part",
    "commit_went_back": "a committed offset moved back without a seek",
    "passed_over": "a group stands behind messages that no member was given",
    "seek_ignored": "a group was moved back and its members were not given what follows again",
    "two_owners": "a partition had two owners in one generation",
    "generation_went_back": "the generation of a group moved back",
    "dropped_unread": "retention dropped what an important group had not committed",
    "stalled": "a group did not come to the end of the topic",
    "client_failed": "a client ended by an error that is not documented",
}


class Violation(msgspec.Struct, frozen=True):
    """Which promise, and the evidence."""

    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"

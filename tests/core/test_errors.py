"""The error tree: codes, fields, messages, and the way through pickle."""

from __future__ import annotations

import copy
import errno
import pickle
from dataclasses import fields
from typing import Any

import pytest

from headrace.core import errors
from headrace.core.errors import (
    DiskFull,
    HeadraceError,
    InvalidMessage,
    OutOfMemory,
    Overloaded,
    PartitionNotFound,
    TooManyOpenFiles,
    again,
    all_errors,
    exhausted,
)

EVERY_ERROR = list(all_errors())
RETRYABLE = {
    "overloaded",
    "limit_exceeded",
    "store_unavailable",
    "disk_full",
    "outcome_unknown",
    "log_failed",
    "unreachable",
} | {
    "too_many_open_files",
    "out_of_memory",
}


def example(kind: type[HeadraceError]) -> HeadraceError:
    """An error whose fields all have values that are seen nowhere else."""
    return kind(**{field.name: example_value(str(field.type), index) for index, field in enumerate(fields(kind))})


def example_value(kind: str, index: int) -> Any:
    return {"str": f"text-{index}", "int": 7000 + index, "float": 0.5 + index}[kind]


@pytest.mark.parametrize("kind", EVERY_ERROR)
def test_error_survives_pickle_with_fields_and_message(kind: type[HeadraceError]) -> None:
    error = example(kind)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is kind
        assert twin.details() == error.details()
        assert str(twin) == str(error)


@pytest.mark.parametrize("kind", [kind for kind in EVERY_ERROR if fields(kind)])
def test_message_mentions_every_field(kind: type[HeadraceError]) -> None:
    error = example(kind)
    for name, value in error.details().items():
        # The count of partitions is shown as the highest number.
        shown = value - 1 if (kind, name) == (PartitionNotFound, "partitions") else value
        assert str(shown) in str(error)


@pytest.mark.parametrize("kind", EVERY_ERROR)
def test_error_is_drawn_in_the_tree_of_the_module(kind: type[HeadraceError]) -> None:
    assert errors.__doc__ is not None
    assert kind.__name__ in errors.__doc__
    assert kind.__doc__


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in EVERY_ERROR]
    assert len(set(codes)) == len(codes) > 25


def test_retry_is_offered_only_where_the_same_request_may_succeed_later() -> None:
    assert {kind.code for kind in EVERY_ERROR if kind.retry} == RETRYABLE


def test_parents_come_before_their_children() -> None:
    for kind in EVERY_ERROR[1:]:
        assert kind.__base__ in EVERY_ERROR[: EVERY_ERROR.index(kind)]


def test_details_have_the_typed_fields_by_name() -> None:
    error = InvalidMessage("seqno", "-1", "it must be 0 or more", 3)
    assert error.details() == {"field": "seqno", "value": "-1", "rule": "it must be 0 or more", "row": 3}
    assert str(error) == "row 3: seqno is -1: it must be 0 or more"


def test_errors_are_equal_only_to_themselves_and_can_be_kept_in_sets() -> None:
    error, other = Overloaded("queue", 10, 1.5), Overloaded("queue", 10, 1.5)
    assert error != other
    assert len({error, other}) == 2


def test_error_raised_again_keeps_fields_and_cause_but_not_who_met_it_before() -> None:
    kept = Overloaded("queue", 10, 1.5)
    kept.__cause__ = OSError("the reason")
    with pytest.raises(Overloaded):
        raise kept
    twin = again(kept)
    assert kept.__traceback__ is not None
    assert twin.__traceback__ is None
    assert twin is not kept
    assert (twin.details(), twin.__cause__) == (kept.details(), kept.__cause__)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EMFILE, "too many"), TooManyOpenFiles),
        (OSError(errno.ENFILE, "too many"), TooManyOpenFiles),
        (OSError(errno.ENOMEM, "no memory"), OutOfMemory),
        (MemoryError(), OutOfMemory),
        (OSError(errno.ENOSPC, "full"), DiskFull),
        (OSError(errno.EDQUOT, "quota"), DiskFull),
        (OSError(errno.EFBIG, "limit"), DiskFull),
        (OSError(errno.EIO, "broken"), None),
        (ValueError("other"), None),
    ],
)
def test_what_ran_out_has_an_error_of_its_own(error: Exception, kind: type[HeadraceError] | None) -> None:
    found = exhausted("topic 't'", error)
    assert (None if found is None else type(found)) is kind
    assert found is None or str(found).startswith(("topic 't' needs", "the store could not be written (topic 't': "))

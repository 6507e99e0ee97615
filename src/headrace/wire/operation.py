"""What an operation is: a struct whose fields are the parameters of a method, with the right that it needs.

`operations` has them all.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Generic, TypeVar, get_args

import msgspec

from headrace.core.rights import Need, Right

Answer = TypeVar("Answer")

AUTHENTICATED: Final = Need()
ANY_RIGHT: Final = Need(any_right=True)
READ: Final = Need(right=Right.READ)
READ_AS_GROUP: Final = Need(right=Right.READ, for_group=True)
PUBLISH: Final = Need(right=Right.PUBLISH)
PUBLISH_AS_PRODUCER: Final = Need(right=Right.PUBLISH, for_producer=True)
MANAGE: Final = Need(right=Right.MANAGE, is_audited=True)
ADMINISTER: Final = Need(full_access=True, is_audited=True)
MANAGE_GROUP: Final = Need(right=Right.MANAGE, for_group=True, is_audited=True)


class Operation(msgspec.Struct, Generic[Answer], forbid_unknown_fields=True, tag_field="operation"):
    """An operation on a topic.

    need: the right that it needs.
    method: the method of `Broker` that does it, where its name is not the tag.
    on_topic: whether the topic is the first parameter of that method.
    """

    need: ClassVar[Need]
    method: ClassVar[str] = ""
    on_topic: ClassVar[bool] = True
    topic: str

    @property
    def needed(self) -> str:
        """The operation whose right it needs: itself, unless its fields ask for more."""
        return name_of(self)

    @property
    def is_repeatable(self) -> bool:
        """Whether doing it twice is as good as doing it once."""
        return True


class StoreOperation(Operation[Answer], Generic[Answer]):
    """An operation on the whole store or the server: it travels with a topic, which is ignored."""

    on_topic: ClassVar = False
    topic: str = "*"


def name_of(operation: Operation[Any] | type[Operation[Any]]) -> str:
    """The name of an operation: its tag."""
    return str(operation.__struct_config__.tag)


def answer_type(kind: type[Operation[Any]]) -> Any:
    """The type between the brackets of `Operation[...]`."""
    return get_args(kind.__orig_bases__[0])[0]  # type: ignore[attr-defined]

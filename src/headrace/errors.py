"""The errors of Headrace for those who catch them: `headrace.errors.TopicNotFound`, all of them `HeadraceError`."""

from headrace.core.errors import *  # noqa: F403

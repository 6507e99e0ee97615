"""The errors of Headrace, to be caught: `headrace.errors.TopicNotFound`, all of them `HeadraceError`."""

from headrace.core.errors import *  # noqa: F403

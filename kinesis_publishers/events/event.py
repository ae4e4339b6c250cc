"""What all events are: values, and how the log ranks them."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from attrs import frozen

from kinesis_publishers.model import ShardKey


@frozen
class Event:
    """A fact about reading or writing.

    Attributes:
        level: how :func:`log_event` ranks it: INFO in the life of a fetcher or a producer, DEBUG
            where there may be thousands a second, and WARNING or higher for what needs attention.
    """

    level: ClassVar[int] = logging.INFO

    def __init_subclass__(cls, *, level: int | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        if level is not None:
            cls.level = level


@frozen(kw_only=True)
class ShardEvent(Event):
    """A fact about one shard."""

    shard: ShardKey

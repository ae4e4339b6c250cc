"""What all events are: values, and how the log ranks them."""

from __future__ import annotations

import logging
from typing import ClassVar

from attrs import frozen


@frozen
class Event:
    """A fact about reading or writing; by default one in the life of a fetcher or a producer.

    Attributes:
        level: how :func:`log_event` ranks it.
    """

    level: ClassVar[int] = logging.INFO


@frozen
class Detail(Event):
    """A fact about one answer, call or delivery: there may be thousands a second."""

    level = logging.DEBUG


@frozen
class Problem(Event):
    """A fact that needs attention."""

    level = logging.WARNING

"""What an operation is."""

from __future__ import annotations

from collections.abc import Callable

from kinesis_publishers.testing.local_kinesis.requests import Request
from kinesis_publishers.testing.local_kinesis.state import ServiceState
from kinesis_publishers.testing.local_kinesis.subscriptions import Subscription

__all__ = ["Members", "Operation"]

#: The answer: its members, a body that is JSON already, nothing at all, or a subscription whose
#: events follow.
Members = dict[str, object] | bytes | Subscription | None

Operation = Callable[[ServiceState, Request], Members]

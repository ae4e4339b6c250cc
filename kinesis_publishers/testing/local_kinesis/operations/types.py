"""What an operation is."""

from __future__ import annotations

from collections.abc import Callable

from kinesis_publishers.testing.local_kinesis.requests import Request
from kinesis_publishers.testing.local_kinesis.state import ServiceState

__all__ = ["Members", "Operation"]

#: The answer: its members, a body that is JSON already, or nothing at all.
Members = dict[str, object] | bytes | None

Operation = Callable[[ServiceState, Request], Members]

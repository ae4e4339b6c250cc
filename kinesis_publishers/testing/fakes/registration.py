"""The named behaviours of registration: each returns a control plane that shows one.

The stream is ``orders`` (:data:`~kinesis_publishers.testing.fakes.STREAM_ARN`), the consumer
:data:`CONSUMER_NAME`.
"""

from __future__ import annotations

from typing import Final

from kinesis_publishers.testing.fakes.consumers import FakeConsumers
from kinesis_publishers.testing.fakes.control_plane import FakeControlPlane, FakeStream
from kinesis_publishers.testing.fakes.samples import STREAM_ARN

__all__ = [
    "CONSUMER_NAME",
    "active_consumer",
    "consumer_not_found",
    "creating_until",
    "deleting_until",
    "limit_exceeded",
    "stream_not_found",
]

CONSUMER_NAME: Final = "billing"


def stream_not_found() -> FakeControlPlane:
    """There is no stream."""
    return FakeControlPlane()


def consumer_not_found() -> FakeControlPlane:
    """A stream without consumers; one that is registered is ACTIVE when it is next described."""
    return FakeControlPlane(FakeStream())


def active_consumer() -> FakeControlPlane:
    """Somebody has registered the consumer, and it is ACTIVE."""
    return _with_consumer("ACTIVE", 0)


def creating_until(descriptions: int) -> FakeControlPlane:
    """Somebody has registered the consumer: it is CREATING for so many descriptions.

    One that is registered later takes as long.
    """
    return _with_consumer("CREATING", descriptions)


def deleting_until(descriptions: int) -> FakeControlPlane:
    """Somebody has removed the consumer: it is DELETING for so many descriptions, and then gone."""
    return _with_consumer("DELETING", descriptions)


def limit_exceeded(registrations: int) -> FakeControlPlane:
    """A stream whose first ``registrations`` registrations are refused: LimitExceeded."""
    return FakeControlPlane(FakeStream(consumers=FakeConsumers(refusals=registrations)))


def _with_consumer(status: str, descriptions: int) -> FakeControlPlane:
    consumers = FakeConsumers(creating_descriptions=descriptions)
    consumers.add(STREAM_ARN, CONSUMER_NAME, status, descriptions)
    return FakeControlPlane(FakeStream(consumers=consumers))

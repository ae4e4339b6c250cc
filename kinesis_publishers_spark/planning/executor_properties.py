"""The properties with which tasks read: what the driver does once is done by no task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers import Properties
from kinesis_publishers.config import RegistrationConfig, RegistrationStrategy, SourceConfig
from kinesis_publishers.config.options import registration
from kinesis_publishers.eager_registration import register_consumers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_publishers.consumer_guard import ConsumerGuard

__all__ = ["executor_properties"]


def executor_properties(
    properties: Properties, stream_arns: Iterable[str], guard: ConsumerGuard | None
) -> Properties:
    """Register the stream consumers that are needed; return properties that name them.

    Args:
        properties: the configuration of the source.
        stream_arns: the streams that are read.
        guard: what removes the consumers when this process is gone; ``None`` if nothing is to be.

    Raises:
        AccessDeniedError: the credentials do not allow it; the missing action is named.
        LimitExceededError: a stream has as many consumers as it may have.
    """
    if SourceConfig.from_properties(properties).record_publisher != "EFO":
        return properties
    if guard is not None:
        # Before anything is registered: whenever this process is killed, either the guard holds a
        # lease on its consumers or it has not made any.
        guard.hold(stream_arns)
    if RegistrationConfig.from_properties(properties).strategy is RegistrationStrategy.NONE:
        return properties
    registered = register_consumers(_with_strategy(properties, RegistrationStrategy.EAGER))
    return _with_strategy(registered, RegistrationStrategy.NONE)


def _with_strategy(properties: Properties, strategy: RegistrationStrategy) -> Properties:
    key = registration.REGISTRATION.full_key
    return Properties.parse({**properties.to_dict(), key: strategy.value})

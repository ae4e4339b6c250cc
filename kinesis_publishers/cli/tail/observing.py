"""Lets a tail read with the properties of an application, and not in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kinesis_publishers.config import MetricsConfig, Properties
from kinesis_publishers.config.choices import RegistrationStrategy
from kinesis_publishers.config.options import checkpoints, metrics, publisher, registration

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

__all__ = ["observer_properties"]


def observer_properties(
    properties: Properties, chosen: AbstractSet[str]
) -> tuple[Properties, list[str]]:
    """Return what a tail reads with, and what it leaves out and why, a sentence each.

    A tail that read as the application would move its checkpoints, take over its subscriptions,
    remove its consumer and publish its metrics.

    Args:
        properties: those of the application, and of the command line.
        chosen: the full keys of the options that the command line names itself.

    Raises:
        UsageError: enhanced fan-out is asked for without a consumer of the tail's own.
    """
    values, left_out = properties.to_dict(), []
    if properties.is_given(checkpoints.APPLICATION):
        # All of them: without an application the others would be in vain.
        for option in checkpoints.OPTIONS:
            values.pop(option.full_key, None)
        left_out.append(
            f"{checkpoints.APPLICATION.full_key} is left out: tail neither reads nor writes "
            "checkpoints."
        )
    sinks = metrics.METRICS_SINKS.full_key
    if sinks not in chosen and set(MetricsConfig.from_properties(properties).sinks) - {"log"}:
        del values[sinks]
        left_out.append(f"{sinks} is left out: those metrics are the application's.")
    if properties.get(publisher.RECORD_PUBLISHER) == "EFO" and not _has_own_consumer(
        properties, chosen
    ):
        key, own = publisher.RECORD_PUBLISHER.full_key, registration.CONSUMER_NAME.full_key
        advice = f"-P {key}=EFO -P {own}=NAME"
        if key in chosen:
            raise click.UsageError(
                "By enhanced fan-out tail needs a stream consumer of its own: it would take over "
                f"the subscriptions of the one in the file. Use {advice} (with registration NONE "
                "the ARNs, -P kinesis.stream.efo.consumerarn.STREAM=ARN)."
            )
        values[key] = "POLLING"
        left_out.append(
            f"{key}=EFO is left out: tail polls, because it would take over the subscriptions of "
            f"the application's consumer. For one of its own use {advice}."
        )
    return Properties.parse(values), left_out


def _has_own_consumer(properties: Properties, chosen: AbstractSet[str]) -> bool:
    if properties.get(registration.REGISTRATION) is not RegistrationStrategy.NONE:
        return registration.CONSUMER_NAME.full_key in chosen
    names = properties.members(registration.CONSUMER_ARN)
    return all(registration.CONSUMER_ARN.of(name).full_key in chosen for name in names)

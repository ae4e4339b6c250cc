"""The typed view of the options of stream consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve, frozen

from kinesis_publishers.config.choices import DeregistrationPolicy, RegistrationStrategy
from kinesis_publishers.config.fan_out_rules import consumer_arn
from kinesis_publishers.config.options import aws, registration, retries
from kinesis_publishers.config.rules import selected_streams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_publishers.config.properties import Properties
    from kinesis_publishers.retry import RetryPolicy

__all__ = ["DeregistrationPolicy", "RegistrationConfig", "RegistrationStrategy"]


@frozen(kw_only=True)
class RegistrationConfig:
    """Who registers the stream consumers of enhanced fan-out, and who removes them.

    Attributes:
        strategy: who registers, and when.
        consumer_name: the name on every stream; None only with NONE.
        consumer_arns: the ARNs that are given, by the name of the stream.
        deregister: which consumers are removed at tear-down.
        describe_retry: how DescribeStreamConsumer is repeated.
        list_retry: how ListStreamConsumers is repeated.
        register_retry: how RegisterStreamConsumer is repeated.
        register_timeout_seconds: how long a new consumer may take to become ACTIVE.
        deregister_retry: how DeregisterStreamConsumer is repeated.
        deregister_timeout_seconds: how long a removed consumer may take to be gone.
        endpoint_url: where the service is, if it is not AWS's own endpoint.
    """

    strategy: RegistrationStrategy
    consumer_name: str | None
    consumer_arns: Mapping[str, str]
    deregister: DeregistrationPolicy
    describe_retry: RetryPolicy
    list_retry: RetryPolicy
    register_retry: RetryPolicy
    register_timeout_seconds: float
    deregister_retry: RetryPolicy
    deregister_timeout_seconds: float
    endpoint_url: str | None = None

    @classmethod
    def from_properties(cls, properties: Properties) -> RegistrationConfig:
        """Read the options of registration."""
        arns = {
            stream.name: consumer_arn(properties, stream.name)
            for stream in selected_streams(properties)
        }
        return cls(
            strategy=properties.get(registration.REGISTRATION),
            consumer_name=properties.get(registration.CONSUMER_NAME),
            consumer_arns={name: arn for name, arn in arns.items() if arn is not None},
            deregister=properties.get(registration.DEREGISTER),
            describe_retry=properties.retry_policy(retries.DESCRIBE_CONSUMER),
            list_retry=properties.retry_policy(retries.LIST_CONSUMERS),
            register_retry=properties.retry_policy(retries.REGISTER_CONSUMER),
            register_timeout_seconds=properties.seconds(registration.REGISTER_TIMEOUT),
            # The end of a process waits for it, and a failure says how to do it by hand.
            deregister_retry=evolve(
                properties.retry_policy(retries.DEREGISTER_CONSUMER), outage_seconds=0.0
            ),
            deregister_timeout_seconds=properties.seconds(registration.DEREGISTER_TIMEOUT),
            endpoint_url=properties.get(aws.ENDPOINT),
        )

"""Who registers the stream consumers of enhanced fan-out, and who removes them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar

from kinesis_publishers.config.option import (
    Derived,
    Lookup,
    Option,
    OptionFamily,
    Section,
)
from kinesis_publishers.config.parsers import Duration, Text
from kinesis_publishers.config.retries import RetryOptions
from kinesis_publishers.config.sections.aws import AwsConfig
from kinesis_publishers.config.sections.source import selected_streams
from kinesis_publishers.model.sources import CONSUMER_ARN, CONSUMER_ARN_FORM, STREAM_NAME


class RegistrationStrategy(Enum):
    LAZY = "LAZY"
    EAGER = "EAGER"
    NONE = "NONE"


class DeregistrationPolicy(Enum):
    CREATED = "created"
    NEVER = "never"


def consumer_arn(lookup: Lookup, stream: str) -> str | None:
    """Return the ARN that is given for the consumer on ``stream``, None if there is none.

    Spark lower-cases keys, so a key that differs only in case counts if none fits exactly.
    """
    arns = lookup.members(RegistrationConfig.consumer_arn)
    lowered = {name.lower(): arn for name, arn in arns.items()}
    return arns.get(stream) or lowered.get(stream.lower())


def _consumer_arns(lookup: Lookup) -> Mapping[str, str]:
    arns = {one.name: consumer_arn(lookup, one.name) for one in selected_streams(lookup)}
    return {name: arn for name, arn in arns.items() if arn is not None}


class RegistrationConfig(Section, section="Registration"):
    """Who registers the stream consumers of enhanced fan-out, and who removes them."""

    consumer_name: Option[str | None] = Option(
        key="stream.efo.consumername",
        parser=Text(accepts="1 to 128 letters, digits, '_', '.' or '-'", pattern=STREAM_NAME),
        doc="The name of the stream consumer, on every stream; needed for LAZY and EAGER.",
    )
    strategy: Option[RegistrationStrategy] = Option(
        key="stream.efo.registration",
        default=RegistrationStrategy.LAZY,
        # The FLIP's own table calls the key "registrar" once.
        spellings=("stream.efo.registrar",),
        doc="Who registers the consumer: LAZY (when reading starts), EAGER (where the source is "
        "constructed) or NONE (you; no call is made).",
    )
    deregister: Option[DeregistrationPolicy] = Option(
        key="stream.efo.deregister",
        default=DeregistrationPolicy.CREATED,
        doc="Which consumers are removed when reading ends: those that this application created, "
        "or none.",
    )
    register_timeout_seconds: Option[float] = Option(
        key="stream.registerstreamconsumer.timeout",
        parser=Duration(unit="s"),
        default=60.0,
        doc="How long a new consumer may take to become ACTIVE.",
    )
    deregister_timeout_seconds: Option[float] = Option(
        key="stream.deregisterstreamconsumer.timeout",
        parser=Duration(unit="s"),
        default=60.0,
        doc="How long the removal of a consumer may take.",
    )
    consumer_arn: ClassVar[OptionFamily[str | None]] = OptionFamily(
        member=Option(
            key="stream.efo.consumerarn.<stream>",
            parser=Text(
                accepts=f"the ARN of a stream consumer ({CONSUMER_ARN_FORM})", pattern=CONSUMER_ARN
            ),
            doc="The ARN of the consumer on one stream; needed for each stream with NONE.",
        ),
        placeholder="<stream>",
        name_pattern=STREAM_NAME,
    )
    consumer_arns: Derived[Mapping[str, str]] = Derived(_consumer_arns)
    endpoint_url: Derived[str | None] = Derived(AwsConfig.endpoint_url.read)
    describe_retry: RetryOptions = RetryOptions(
        "stream.describestreamconsumer", "DescribeStreamConsumer", retries=50, delays=(2000, 5000)
    )
    list_retry: RetryOptions = RetryOptions(
        "stream.liststreamconsumers", "ListStreamConsumers", retries=10, delays=(200, 1000)
    )
    register_retry: RetryOptions = RetryOptions(
        "stream.registerstreamconsumer", "RegisterStreamConsumer", retries=10, delays=(500, 2000)
    )
    deregister_retry: RetryOptions = RetryOptions(
        "stream.deregisterstreamconsumer",
        "DeregisterStreamConsumer",
        retries=10,
        delays=(500.0, 2000.0),
        # The end of a process waits for it, and a failure says how to do it by hand.
        outlasts_outages=False,
    )

    def required_name(self) -> str:
        """Return the name of the stream consumer; for EFO alone, rules have required it."""
        if self.consumer_name is None:
            raise RegistrationConfig.consumer_name.missing()
        return self.consumer_name

"""The typed view of the connection to AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import field, frozen

from kinesis_publishers.config.credentials import CredentialsConfig
from kinesis_publishers.config.options import aws, fanout
from kinesis_publishers.errors import MissingOptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers.config.properties import Properties
    from kinesis_publishers.config.streams import StreamsConfig

__all__ = ["AwsConfig", "resolve_region"]


@frozen(kw_only=True)
class AwsConfig:
    """Where Kinesis is and who asks.

    Attributes:
        region: the configured region; None leaves it to :func:`resolve_region`.
        endpoint_url: the Kinesis endpoint, None for AWS's own.
        credentials: where the credentials come from.
        ca_bundle: a file with the CA certificates of the endpoint, None for botocore's choice.
        max_connections: the connection limit of the data plane.
    """

    region: str | None = None
    endpoint_url: str | None = None
    credentials: CredentialsConfig = field(factory=CredentialsConfig)
    ca_bundle: str | None = None
    max_connections: int = fanout.MAX_CONCURRENCY.default

    @classmethod
    def from_properties(cls, properties: Properties) -> AwsConfig:
        """Read the connection."""
        return cls(
            region=properties.get(aws.REGION),
            endpoint_url=properties.get(aws.ENDPOINT),
            ca_bundle=properties.get(aws.CA_BUNDLE),
            credentials=CredentialsConfig.from_properties(properties),
            max_connections=properties.get(fanout.MAX_CONCURRENCY),
        )


def resolve_region(
    config: AwsConfig, streams: StreamsConfig, machine_region: Callable[[], str | None]
) -> str:
    """Return the region: the configured one, else the ARN's, else that of the machine.

    Args:
        config: the configured connection.
        streams: the streams, whose ARNs name their region.
        machine_region: says what the environment and the profile name, None for nothing; called
            only where nothing is configured.

    Raises:
        MissingOptionError: nobody names a region.
    """
    region = config.region or streams.region or machine_region()
    if region is None:
        raise MissingOptionError(
            f"no region: set {aws.REGION.full_key} (as eu-west-1), or give the stream by its ARN, "
            "or set AWS_REGION in the environment"
        )
    return region

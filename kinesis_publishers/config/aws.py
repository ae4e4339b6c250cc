"""The typed view of the connection to AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import field, frozen

from kinesis_publishers.config.credentials import CredentialsConfig
from kinesis_publishers.config.options import aws, fanout
from kinesis_publishers.errors import MissingOptionError

if TYPE_CHECKING:
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
        max_connections: the connection limit of the data plane.
    """

    region: str | None = None
    endpoint_url: str | None = None
    credentials: CredentialsConfig = field(factory=CredentialsConfig)
    max_connections: int = fanout.MAX_CONCURRENCY.default

    @classmethod
    def from_properties(cls, properties: Properties) -> AwsConfig:
        """Read the connection."""
        return cls(
            region=properties.get(aws.REGION),
            endpoint_url=properties.get(aws.ENDPOINT),
            credentials=CredentialsConfig.from_properties(properties),
            max_connections=properties.get(fanout.MAX_CONCURRENCY),
        )


def resolve_region(config: AwsConfig, streams: StreamsConfig, botocore_region: str | None) -> str:
    """Return the region: the configured one, else the ARN's, else botocore's.

    Args:
        config: the configured connection.
        streams: the streams, whose ARNs name their region.
        botocore_region: what botocore's own chain says (environment, profile), None for nothing.

    Raises:
        MissingOptionError: nobody names a region.
    """
    region = config.region or streams.region or botocore_region
    if region is None:
        raise MissingOptionError(
            f"no region: set {aws.REGION.full_key} (as eu-west-1), or give the stream by its ARN, "
            "or set AWS_REGION in the environment"
        )
    return region

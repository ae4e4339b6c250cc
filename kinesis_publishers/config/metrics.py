"""The typed view of where diagnostic events go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers.config.choices import MetricsLevel
from kinesis_publishers.config.options import metrics

if TYPE_CHECKING:
    from kinesis_publishers.config.properties import Properties

__all__ = ["MetricsConfig"]


@frozen(kw_only=True)
class MetricsConfig:
    """Which sinks take diagnostic events, and how they report.

    Attributes:
        sinks: names in lower case, and ``module:Class`` as written; each once.
        is_per_shard: whether metrics are kept apart by shard, or by stream only.
        summary_interval_seconds: the period of the summary in the log.
        cloudwatch_namespace: the namespace of CloudWatch metrics.
        cloudwatch_interval_seconds: the period at which they are sent.
        cloudwatch_endpoint_url: where they are sent, ``None`` for AWS's own endpoint.
    """

    sinks: tuple[str, ...]
    is_per_shard: bool
    summary_interval_seconds: float
    cloudwatch_namespace: str
    cloudwatch_interval_seconds: float
    cloudwatch_endpoint_url: str | None

    @classmethod
    def from_properties(cls, properties: Properties) -> MetricsConfig:
        """Read the options of metrics."""
        return cls(
            sinks=_sinks(properties.get(metrics.METRICS_SINKS)),
            is_per_shard=properties.get(metrics.METRICS_LEVEL) is MetricsLevel.SHARD,
            summary_interval_seconds=properties.seconds(metrics.SUMMARY_INTERVAL),
            cloudwatch_namespace=properties.get(metrics.CLOUDWATCH_NAMESPACE),
            cloudwatch_interval_seconds=properties.seconds(metrics.CLOUDWATCH_INTERVAL),
            cloudwatch_endpoint_url=properties.get(metrics.CLOUDWATCH_ENDPOINT),
        )


def _sinks(text: str) -> tuple[str, ...]:
    if text.lower() == "none":
        return ()
    names = (name.strip() for name in text.split(","))
    return tuple(dict.fromkeys(name if ":" in name else name.lower() for name in names))

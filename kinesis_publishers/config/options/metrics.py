"""Options of what becomes of diagnostic events: the log, and metrics."""

from __future__ import annotations

import re
from typing import Final

from kinesis_publishers.config.choices import MetricsLevel
from kinesis_publishers.config.option import Namespace, Option
from kinesis_publishers.config.parsers import Choice, Duration, Text

_SECTION = "Metrics"
_SINK = r"(?:log|summary|opentelemetry|cloudwatch|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*)"

METRICS_SINKS: Final = Option(
    key="metrics.sinks",
    parser=Text(
        accepts="none, or a comma-separated list of log, summary, opentelemetry, cloudwatch and "
        "module:Class",
        pattern=re.compile(rf"none|{_SINK}(?:\s*,\s*{_SINK})*", re.IGNORECASE),
    ),
    default="log",
    guarded=":",
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="Where diagnostic events go: the log, a summary in the log, OpenTelemetry or CloudWatch "
    "metrics, or a class of your own (an EventReporter).",
)
METRICS_LEVEL: Final = Option(
    key="metrics.level",
    parser=Choice(members=MetricsLevel),
    default=MetricsLevel.SHARD,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="Whether metrics are kept apart by shard, or by stream only, for streams with thousands of "
    "shards.",
)
SUMMARY_INTERVAL: Final = Option(
    key="metrics.summary.intervalmillis",
    parser=Duration(minimum=1_000.0),
    default=60_000.0,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="How often the sink summary writes a line.",
)
CLOUDWATCH_NAMESPACE: Final = Option(
    key="metrics.cloudwatch.namespace",
    parser=Text(
        accepts="up to 255 of the characters A-Z, a-z, 0-9 and .-_/#: without AWS/ or : in front",
        pattern=re.compile(r"(?!AWS/|:)[A-Za-z0-9._/#:-]{1,255}"),
    ),
    default="KinesisPublishers",
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="The CloudWatch namespace of the metrics; the KCL uses the name of the application.",
)
CLOUDWATCH_INTERVAL: Final = Option(
    key="metrics.cloudwatch.intervalmillis",
    parser=Duration(minimum=1_000.0),
    default=60_000.0,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="How often metrics are sent to CloudWatch, which keeps them by the minute.",
)
CLOUDWATCH_ENDPOINT: Final[Option[str | None]] = Option(
    key="metrics.cloudwatch.endpoint",
    parser=Text(accepts="an http or https URL", pattern=re.compile(r"https?://[^\s/]\S*")),
    default=None,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="Another endpoint for CloudWatch than AWS's own, as http://localhost:5000.",
)

OPTIONS: Final = (
    METRICS_SINKS,
    METRICS_LEVEL,
    SUMMARY_INTERVAL,
    CLOUDWATCH_NAMESPACE,
    CLOUDWATCH_INTERVAL,
    CLOUDWATCH_ENDPOINT,
)

"""Where diagnostic events go: to the log, and to metrics."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from kinesis_publishers.config.option import Option, Section
from kinesis_publishers.config.parsers import Duration, Scalar, Text, WholeNumber

_REPORTERS: Final = {
    "log": "kinesis_publishers.metrics.sinks:EventLog",
    "summary": "kinesis_publishers.metrics.summary:SummaryLog",
    "opentelemetry": "kinesis_publishers.metrics.open_telemetry:OpenTelemetryMetrics",
    "prometheus": "kinesis_publishers.metrics.prometheus:PrometheusMetrics",
    "cloudwatch": "kinesis_publishers.metrics.cloudwatch:CloudWatchMetrics",
}
_SINK: Final = rf"(?:{'|'.join(_REPORTERS)}|[a-z_][\w.]*:[a-z_][\w.]*)"


class MetricsLevel(Enum):
    SHARD = "shard"
    STREAM = "stream"


class _SinksParser:
    """Parses names, which become lower case, and ``module:Class``; each once."""

    built_in = _REPORTERS
    accepts = f"none, or a comma-separated list of {', '.join(built_in)} and module:Class"

    def __call__(self, value: Scalar) -> tuple[str, ...]:
        text = str(value).strip()
        if text.lower() == "none":
            return ()
        if not re.fullmatch(rf"{_SINK}(?:\s*,\s*{_SINK})*", text, re.IGNORECASE):
            raise ValueError("not a list of sinks")
        names = (name.strip() for name in text.split(","))
        return tuple(dict.fromkeys(name if ":" in name else name.lower() for name in names))


class MetricsConfig(Section, section="Metrics"):
    """Which sinks take diagnostic events, and how they report."""

    sinks: Option[tuple[str, ...]] = Option(
        key="metrics.sinks",
        parser=_SinksParser(),
        default=("log",),
        guarded=":",
        doc="Where diagnostic events go: to the log, to metrics, or to a class of your own (an "
        "EventReporter).",
    )
    progress: Option[bool] = Option(
        key="progress",
        default=False,
        doc="Whether a terminal or a notebook shows how far reading has come on its way to its "
        "end (the extra cli).",
    )
    level: Option[MetricsLevel] = Option(
        key="metrics.level",
        default=MetricsLevel.SHARD,
        doc="Whether metrics are separated by shard, or by stream only (for thousands of shards).",
    )
    summary_interval_seconds: Option[float] = Option(
        key="metrics.summary.intervalmillis",
        parser=Duration(minimum=1_000.0),
        default=60_000.0,
        doc="How often the sink summary writes a line.",
    )
    traces: Option[bool] = Option(
        key="metrics.traces",
        default=True,
        doc="Whether a program with a tracer provider of OpenTelemetry has spans of what it puts.",
    )
    prometheus_port: Option[int] = Option(
        key="metrics.prometheus.port",
        parser=WholeNumber(minimum=1, maximum=65535),
        default=9464,
        doc="The port on which the sink prometheus serves /metrics. Each process needs its own.",
    )
    prometheus_host: Option[str] = Option(
        key="metrics.prometheus.host",
        parser=Text(accepts="an address of this machine, or a host name"),
        default="127.0.0.1",
        doc="The address on which the sink prometheus listens. A container needs 0.0.0.0.",
    )
    cloudwatch_namespace: Option[str] = Option(
        key="metrics.cloudwatch.namespace",
        parser=Text(
            accepts="up to 255 of the characters A-Z, a-z, 0-9 and .-_/#: without AWS/ or : in "
            "front",
            pattern=r"(?!AWS/|:)[A-Za-z0-9._/#:-]{1,255}",
        ),
        default="KinesisPublishers",
        doc="The CloudWatch namespace of the metrics; the KCL uses the name of the application.",
    )
    cloudwatch_interval_seconds: Option[float] = Option(
        key="metrics.cloudwatch.intervalmillis",
        parser=Duration(minimum=1_000.0),
        default=60_000.0,
        doc="How often metrics are sent to CloudWatch, which keeps them by the minute.",
    )
    cloudwatch_endpoint_url: Option[str | None] = Option(
        key="metrics.cloudwatch.endpoint",
        parser=Text(accepts="an http or https URL", pattern=r"https?://[^\s/]\S*"),
        doc="The URL of a CloudWatch endpoint other than AWS's own, such as http://localhost:5000.",
    )

    @property
    def is_per_shard(self) -> bool:
        return self.level is MetricsLevel.SHARD

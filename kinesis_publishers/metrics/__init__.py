"""Metrics made of diagnostic events: tables, and the reporters that export them.

Reporters with dependencies of their own are imported from their modules:
:mod:`~kinesis_publishers.metrics.open_telemetry`, :mod:`~kinesis_publishers.metrics.cloudwatch`.
"""

from kinesis_publishers.metrics.cloudwatch_table import KCL_METRICS as KCL_METRICS
from kinesis_publishers.metrics.cloudwatch_table import KPL_METRICS as KPL_METRICS
from kinesis_publishers.metrics.metric import Metric as Metric
from kinesis_publishers.metrics.metric import MetricKind as MetricKind
from kinesis_publishers.metrics.metric import MetricTable as MetricTable
from kinesis_publishers.metrics.table import METRICS as METRICS

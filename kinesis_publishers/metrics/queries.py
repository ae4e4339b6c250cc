"""The metrics of streaming queries; each value is kept apart by query."""

from __future__ import annotations

from typing import Final

from kinesis_publishers.events import QueryEnded, QueryProgressed, QueryWrote, RecordsLate
from kinesis_publishers.metrics import metric as m

QUERIES: Final = (
    m.counted_records(
        "records_late",
        "Records that arrived more than 15 s before the end of an earlier micro-batch of the query:"
        " its windows may lack them.",
        {RecordsLate: m.records_of},
    ),
    m.Metric(
        "shards_held_back",
        m.MetricKind.GAUGE,
        "{shard}",
        "Shards of a query that the others no longer wait for.",
        {QueryProgressed: lambda event: event.held_back_shards},
    ),
    m.counter(
        "rows_read", "{row}", "Rows that a query has read.", {QueryProgressed: lambda e: e.rows}
    ),
    m.counter(
        "rows_written",
        "{row}",
        "Rows that a query has written to a sink in Python; Spark does not say which.",
        {QueryWrote: lambda event: event.rows},
    ),
    m.counter(
        "query_reports", "{report}", "Reports of a query, idle or not.", {QueryProgressed: m.one}
    ),
    m.counter(
        "query_failures",
        "{query}",
        "Queries that an error has ended, of any source.",
        {QueryEnded: lambda event: event.error and 1},
    ),
)
"""Part of :data:`~kinesis_publishers.metrics.table.METRICS`."""

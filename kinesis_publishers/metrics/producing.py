"""The metrics of writing: under our own names, and under those of the Kinesis Producer Library."""

from __future__ import annotations

from typing import Final

from kinesis_publishers.events import (
    PutRecordsAnswered,
    RecordsFailed,
    RecordsPut,
    RecordsRefused,
    ShardMispredicted,
)
from kinesis_publishers.metrics.metric import (
    Metric,
    MetricKind,
    MetricTable,
    bytes_of,
    counted_records,
    counter,
    duration,
    for_cloudwatch,
    records_of,
    seconds_of,
)


def _failed_entries(event: PutRecordsAnswered) -> float | None:
    return event.entries if event.code else None


def _expired(event: RecordsFailed) -> float | None:
    return event.records if event.code == "RecordExpiredError" else None


_ERRORS: Final = {RecordsRefused: lambda event: event.entries, PutRecordsAnswered: _failed_entries}

PRODUCING: Final = (
    counted_records("records_put", "Records that were written.", {RecordsPut: records_of}),
    counter("bytes_put", "By", "Their payload.", {RecordsPut: bytes_of}),
    counted_records(
        "entries_put",
        "What shards have counted for them: an aggregate is one.",
        {RecordsPut: lambda event: event.entries},
    ),
    counter(
        "entry_bytes_put",
        "By",
        "The bytes that shards have counted.",
        {RecordsPut: lambda event: event.entry_bytes},
    ),
    counted_records(
        "put_errors", "Entries that were refused, or whose call has failed.", _ERRORS, "code"
    ),
    counted_records(
        "put_retries",
        "How often records were sent again that were written in the end.",
        {RecordsPut: lambda event: event.attempts - event.records},
    ),
    counted_records(
        "records_failed",
        "Records that were given up: their futures have an error.",
        {RecordsFailed: records_of},
        "code",
    ),
    duration(
        "put_buffering_duration",
        "How long the oldest record of a shard in a call had waited for it.",
        {RecordsPut: lambda event: event.buffering_seconds},
    ),
    duration(
        "put_duration",
        "How long it took from put to the acknowledgement, for the oldest record of a shard in a "
        "call.",
        {RecordsPut: seconds_of},
    ),
    duration(
        "put_call_duration", "The time that PutRecords takes.", {PutRecordsAnswered: seconds_of}
    ),
    Metric(
        "put_pending_records",
        MetricKind.GAUGE,
        "{record}",
        "Records that are waiting or being sent.",
        {PutRecordsAnswered: lambda event: event.pending_records},
        combined=sum,
    ),
    Metric(
        "put_pending_bytes",
        MetricKind.GAUGE,
        "By",
        "Their data and partition keys.",
        {PutRecordsAnswered: lambda event: event.pending_bytes},
        combined=sum,
    ),
    counted_records(
        "records_mispredicted",
        "Records that have gone to another shard than expected: the stream was resharded.",
        {ShardMispredicted: records_of},
    ),
    counted_records(
        "records_resent",
        "Records of them that were sent again, because readers of that shard leave them out.",
        {ShardMispredicted: lambda event: event.resent},
    ),
)
"""Part of :data:`~kinesis_publishers.metrics.table.METRICS`."""

# The KPL's name of each metric that we have as well.
_SAME: Final = {
    "UserRecordsPut": "records_put",
    "UserRecordsDataPut": "bytes_put",
    "KinesisRecordsPut": "entries_put",
    "KinesisRecordsDataPut": "entry_bytes_put",
    "AllErrors": "put_errors",
    "ErrorsByCode": "put_errors",
    "BufferingTime": "put_buffering_duration",
    "RequestTime": "put_call_duration",
    "UserRecordsPending": "put_pending_records",
    "UserRecordsFailed": "records_failed",
    "UserRecordsMispredicted": "records_mispredicted",
}
_OURS: Final = {metric.name: metric for metric in PRODUCING}

KPL_METRICS: Final = MetricTable(
    (
        *(for_cloudwatch(name, _OURS[ours]) for name, ours in _SAME.items()),
        *(
            for_cloudwatch(metric.name, metric)
            for metric in (
                counted_records(
                    "UserRecordExpired",
                    "Records that were not accepted within their time to live.",
                    {RecordsFailed: _expired},
                ),
                counter(
                    "RetriesPerRecord",
                    "1",
                    "How often a record was sent again before it was written, in the mean of a "
                    "shard in a call.",
                    {RecordsPut: lambda event: event.attempts / event.records - 1},
                ),
                counted_records(
                    "UserRecordsPerKinesisRecord",
                    "How many records an entry has, in the mean of a shard in a call.",
                    {RecordsPut: lambda event: event.records / event.entries},
                ),
                counted_records(
                    "KinesisRecordsPerPutRecordsRequest",
                    "How many entries a call has.",
                    {PutRecordsAnswered: lambda event: event.entries},
                ),
                counted_records(
                    "UserRecordsPerPutRecordsRequest",
                    "How many records a call has.",
                    {PutRecordsAnswered: records_of},
                ),
            )
        ),
    )
)
"""What CloudWatch gets of writing, with the KPL's names and dimensions (KPL, metrics_constants.h).

The KPL has no name for failed or mispredicted records.
"""

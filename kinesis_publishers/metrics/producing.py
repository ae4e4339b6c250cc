"""The metrics of writing: under our own names, and under those of the Kinesis Producer Library."""

from __future__ import annotations

from typing import Final

from kinesis_publishers import events as ev
from kinesis_publishers.metrics.metric import (
    MetricTable,
    counted_records,
    counter,
    duration,
    for_cloudwatch,
    gauge,
)

PRODUCING: Final = (
    counted_records("records_put", "Records that were written.", {ev.RecordsPut: "records"}),
    counter("bytes_put", "By", "Their payload.", {ev.RecordsPut: "payload_bytes"}),
    counted_records(
        "entries_put", "Entries that shards count: an aggregate is one.", {ev.RecordsPut: "entries"}
    ),
    counter(
        "entry_bytes_put",
        "By",
        "The bytes that shards have counted.",
        {ev.RecordsPut: "entry_bytes"},
    ),
    counted_records(
        "put_errors",
        "Entries that were refused, or whose call has failed.",
        {
            ev.RecordsRefused: "entries",
            ev.PutRecordsAnswered: lambda e: e.entries if e.code else None,
        },
        "code",
    ),
    counted_records(
        "put_retries",
        "Repeated sends of records that were written in the end.",
        {ev.RecordsPut: lambda e: e.attempts - e.records},
    ),
    counted_records(
        "records_failed",
        "Records that the producer gave up.",
        {ev.RecordsFailed: "records"},
        "code",
    ),
    duration(
        "put_buffering_duration",
        "How long the oldest record of a shard in a call waited for the call.",
        {ev.RecordsPut: "buffering_seconds"},
    ),
    duration(
        "put_duration",
        "The time from put to the acknowledgement, for the oldest record of a shard in a call.",
        {ev.RecordsPut: "seconds"},
    ),
    duration(
        "put_call_duration", "The time that PutRecords takes.", {ev.PutRecordsAnswered: "seconds"}
    ),
    gauge(
        "put_pending_records",
        "{record}",
        "Records that are waiting or being sent.",
        {ev.PutRecordsAnswered: "pending_records"},
        sum,
    ),
    gauge(
        "put_pending_bytes",
        "By",
        "The size of their data and partition keys.",
        {ev.PutRecordsAnswered: "pending_bytes"},
        sum,
    ),
    counted_records(
        "records_put_again",
        "Records that may have been written before the producer was killed.",
        {ev.SpoolFound: "unknown"},
    ),
    counted_records(
        "records_mispredicted",
        "Records that went to another shard than expected: the stream was resharded.",
        {ev.ShardMispredicted: "records"},
    ),
    counted_records(
        "records_resent",
        "Such records that were sent again: readers of that shard leave them out.",
        {ev.ShardMispredicted: "resent"},
    ),
)
"""Part of :data:`~kinesis_publishers.metrics.table.METRICS`."""

_OURS: Final = {metric.name: metric for metric in PRODUCING}
# By the KPL's names; a metric that only the KPL has needs no other one.
_METRICS: Final = {
    "UserRecordsPut": _OURS["records_put"],
    "UserRecordsDataPut": _OURS["bytes_put"],
    "KinesisRecordsPut": _OURS["entries_put"],
    "KinesisRecordsDataPut": _OURS["entry_bytes_put"],
    "AllErrors": _OURS["put_errors"],
    "ErrorsByCode": _OURS["put_errors"],
    "BufferingTime": _OURS["put_buffering_duration"],
    "RequestTime": _OURS["put_call_duration"],
    "UserRecordsPending": _OURS["put_pending_records"],
    # The KPL has no name for failed or mispredicted records.
    "UserRecordsFailed": _OURS["records_failed"],
    "UserRecordsMispredicted": _OURS["records_mispredicted"],
    "UserRecordExpired": counted_records(
        "",
        "Records that were not accepted within their time to live.",
        {ev.RecordsFailed: lambda e: e.records if e.code == "RecordExpiredError" else None},
    ),
    "RetriesPerRecord": counter(
        "",
        "1",
        "How often a record was sent again before it was written: the mean of a shard in a call.",
        {ev.RecordsPut: lambda e: e.attempts / e.records - 1},
    ),
    "UserRecordsPerKinesisRecord": counted_records(
        "",
        "The records of an entry: the mean of a shard in a call.",
        {ev.RecordsPut: lambda e: e.records / e.entries},
    ),
    "KinesisRecordsPerPutRecordsRequest": counted_records(
        "", "How many entries a call has.", {ev.PutRecordsAnswered: "entries"}
    ),
    "UserRecordsPerPutRecordsRequest": counted_records(
        "", "How many records a call has.", {ev.PutRecordsAnswered: "records"}
    ),
}

KPL_METRICS: Final = MetricTable(tuple(for_cloudwatch(name, one) for name, one in _METRICS.items()))
"""What CloudWatch gets of writing, with the KPL's names (metrics_constants.h) and dimensions."""

"""The metrics under the names of the KCL and of the KPL, so that their dashboards keep working.

The KCL's are those of its ProcessTask, and of its leases and workers (Amazon Kinesis Data Streams
Developer Guide, *Monitor the Kinesis Client Library with Amazon CloudWatch*). What its other tasks
measure is left out. Facts that the KCL does not measure have names like its own. Units are
CloudWatch's.
"""

from __future__ import annotations

from typing import Final

from kinesis_publishers.metrics.metric import MetricTable, counted_records, counter, for_cloudwatch
from kinesis_publishers.metrics.table import METRICS

_OURS: Final = {metric.name: metric for metric in METRICS.metrics}
# By the KCL's names; a metric that only the KCL has needs no other one.
_OF_KCL: Final = {
    "KinesisDataFetcher.getRecords.Success": counter(
        "",
        "{call}",
        "1 for each answer of GetRecords, 0 for each failure.",
        RecordsFetched=1,
        CallRetried=lambda e: 0 if e.operation == "GetRecords" else None,
    ),
    "Success": counter(
        "",
        "{delivery}",
        "1 for each delivery that the application has taken, 0 for each that failed.",
        RecordsProcessed=1,
        ProcessingFailed=0,
    ),
    "RecordsProcessed": _OURS["records_processed"],
    "DataBytesProcessed": _OURS["bytes_processed"],
    "MillisBehindLatest": _OURS["millis_behind_latest"],
    "KinesisDataFetcher.getRecords.Time": _OURS["fetch_duration"],
    "ProcessingLag": _OURS["processing_lag"],
    "ExpiredIterator": _OURS["iterators_replaced"],
    "RecordProcessor.processRecords.Time": _OURS["processing_duration"],
    # Taking a delivery is the whole task here.
    "Time": _OURS["processing_duration"],
    "UpdateLease.Success": _OURS["checkpoints_saved"],
    "UpdateLease.Time": _OURS["checkpoint_duration"],
    "ThrottledCalls": _OURS["throttles"],
    "Resubscribes": _OURS["resubscribes"],
    "Backpressure.Time": _OURS["backpressure_duration"],
    "PendingRecords": _OURS["pool_records"],
    "PendingBytes": _OURS["pool_bytes"],
    "DataLossTolerated": _OURS["data_losses"],
    "CurrentLeases": _OURS["lease_current"],
    "TotalLeases": _OURS["lease_total"],
    "ExpiredLeases": _OURS["lease_free"],
    "LeaseSpillover": _OURS["lease_spilled"],
    "NumWorkers": _OURS["lease_workers"],
    "TakenLeases": _OURS["leases_taken"],
    "LostLeases": _OURS["leases_lost"],
    "LateRecords": _OURS["records_late"],
    "HeldBackShards": _OURS["shards_held_back"],
    "RowsRead": _OURS["rows_read"],
    "RowsWritten": _OURS["rows_written"],
    "QueryFailures": _OURS["query_failures"],
}

KCL_METRICS: Final = MetricTable(
    tuple(for_cloudwatch(name, one, kcl_task="ProcessTask") for name, one in _OF_KCL.items())
)
"""What CloudWatch gets of reading."""

# By the KPL's names; a metric that only the KPL has needs no other one.
_OF_KPL: Final = {
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
        RecordsFailed=lambda e: e.records if e.code == "RecordExpiredError" else None,
    ),
    "RetriesPerRecord": counter(
        "",
        "1",
        "How often a record was sent again before it was written: the mean of a shard in a call.",
        RecordsPut=lambda e: e.attempts / e.records - 1,
    ),
    "UserRecordsPerKinesisRecord": counted_records(
        "",
        "The records of an entry: the mean of a shard in a call.",
        RecordsPut=lambda e: e.records / e.entries,
    ),
    "KinesisRecordsPerPutRecordsRequest": counted_records(
        "", "How many entries a call has.", PutRecordsAnswered="entries"
    ),
    "UserRecordsPerPutRecordsRequest": counted_records(
        "", "How many records a call has.", PutRecordsAnswered="records"
    ),
}

KPL_METRICS: Final = MetricTable(tuple(for_cloudwatch(name, one) for name, one in _OF_KPL.items()))
"""What CloudWatch gets of writing, with the KPL's names (metrics_constants.h) and dimensions."""

"""The metrics under the names of the Kinesis Client Library, so that its dashboards keep working.

They are those of its ProcessTask, and of its leases and workers (Amazon Kinesis Data Streams
Developer Guide, *Monitor the Kinesis Client Library with Amazon CloudWatch*). What its other tasks
measure is left out. Facts that the KCL does not measure have names like its own. Units are
CloudWatch's.
"""

from __future__ import annotations

from typing import Final

from kinesis_publishers import events as ev
from kinesis_publishers.metrics.metric import MetricTable, counter, for_cloudwatch
from kinesis_publishers.metrics.table import METRICS

_OURS: Final = {metric.name: metric for metric in METRICS.metrics}
# By the KCL's names; a metric that only the KCL has needs no other one.
_METRICS: Final = {
    "KinesisDataFetcher.getRecords.Success": counter(
        "",
        "{call}",
        "1 for each answer of GetRecords, 0 for each failure.",
        {
            ev.RecordsFetched: 1,
            ev.CallRetried: lambda e: 0 if e.operation == "GetRecords" else None,
        },
    ),
    "Success": counter(
        "",
        "{delivery}",
        "1 for each delivery that the application has taken, 0 for each that failed.",
        {ev.RecordsProcessed: 1, ev.ProcessingFailed: 0},
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
    tuple(for_cloudwatch(name, one, kcl_task="ProcessTask") for name, one in _METRICS.items())
)
"""What CloudWatch gets of reading."""

"""The metrics under the names of the Kinesis Client Library, so that its dashboards keep working.

They are those of its ProcessTask, and of its leases and workers (Amazon Kinesis Data Streams
Developer Guide, *Monitor the Kinesis Client Library with Amazon CloudWatch*). What the KCL measures
and does not exist here (its other tasks) is left out; some entries are facts that it has no name
for. Units are CloudWatch's.
"""

from __future__ import annotations

from typing import Final

from kinesis_publishers.events import (
    CallRetried,
    ProcessingFailed,
    RecordsFetched,
    RecordsProcessed,
)
from kinesis_publishers.metrics.metric import MetricTable, counter, for_cloudwatch, one, zero
from kinesis_publishers.metrics.table import METRICS

# The KCL's name of each metric that we have as well.
_SAME: Final = {
    "RecordsProcessed": "records_processed",
    "DataBytesProcessed": "bytes_processed",
    "MillisBehindLatest": "millis_behind_latest",
    "KinesisDataFetcher.getRecords.Time": "fetch_duration",
    "ProcessingLag": "processing_lag",
    "ExpiredIterator": "iterators_replaced",
    "RecordProcessor.processRecords.Time": "processing_duration",
    # Taking a delivery is the whole task here.
    "Time": "processing_duration",
    "UpdateLease.Success": "checkpoints_saved",
    "UpdateLease.Time": "checkpoint_duration",
    "ThrottledCalls": "throttles",
    "Resubscribes": "resubscribes",
    "Backpressure.Time": "backpressure_duration",
    "PendingRecords": "pool_records",
    "PendingBytes": "pool_bytes",
    "DataLossTolerated": "data_losses",
    "CurrentLeases": "lease_current",
    "TotalLeases": "lease_total",
    "ExpiredLeases": "lease_free",
    "LeaseSpillover": "lease_spilled",
    "NumWorkers": "lease_workers",
    "TakenLeases": "leases_taken",
    "LostLeases": "leases_lost",
    "LateRecords": "records_late",
    "HeldBackShards": "shards_held_back",
    "RowsRead": "rows_read",
    "RowsWritten": "rows_written",
    "QueryFailures": "query_failures",
}
_TASK: Final = "ProcessTask"


def _get_records_failed(event: CallRetried) -> float | None:
    return 0 if event.operation == "GetRecords" else None


_OURS: Final = {metric.name: metric for metric in METRICS.metrics}

KCL_METRICS: Final = MetricTable(
    (
        *(
            for_cloudwatch(metric.name, metric, kcl_task=_TASK)
            for metric in (
                counter(
                    "KinesisDataFetcher.getRecords.Success",
                    "{call}",
                    "1 for each answer of GetRecords, 0 for each failure.",
                    {RecordsFetched: one, CallRetried: _get_records_failed},
                ),
                counter(
                    "Success",
                    "{delivery}",
                    "1 for each delivery that the application has taken, 0 for each that failed.",
                    {RecordsProcessed: one, ProcessingFailed: zero},
                ),
            )
        ),
        *(for_cloudwatch(name, _OURS[ours], kcl_task=_TASK) for name, ours in _SAME.items()),
    )
)
"""What CloudWatch gets of reading."""

"""The simple API: records one by one, in a loop or through a callback, with checkpoints."""

from kinesis_publishers.processing.calls import ScanResult
from kinesis_publishers.processing.error_policies import (
    DeadLetter,
    ErrorPolicy,
    RetryOnError,
    StopOnError,
    with_error_policy,
)
from kinesis_publishers.processing.reading import RecordStream, read
from kinesis_publishers.processing.scanning import scan

__all__ = [
    "DeadLetter",
    "ErrorPolicy",
    "RecordStream",
    "RetryOnError",
    "ScanResult",
    "StopOnError",
    "read",
    "scan",
    "with_error_policy",
]

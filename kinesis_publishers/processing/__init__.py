"""The simple API: records one by one, in a loop or through a callback, with checkpoints."""

from kinesis_publishers.processing.calls import ScanResult as ScanResult
from kinesis_publishers.processing.checkpointing import AsyncCheckpointing as AsyncCheckpointing
from kinesis_publishers.processing.checkpointing import Checkpointing as Checkpointing
from kinesis_publishers.processing.error_policies import DeadLetter as DeadLetter
from kinesis_publishers.processing.error_policies import ErrorPolicy as ErrorPolicy
from kinesis_publishers.processing.error_policies import RetryOnError as RetryOnError
from kinesis_publishers.processing.error_policies import StopOnError as StopOnError
from kinesis_publishers.processing.iterating import RecordIterator as RecordIterator
from kinesis_publishers.processing.iterating import records as records
from kinesis_publishers.processing.reading import RecordStream as RecordStream
from kinesis_publishers.processing.reading import read as read
from kinesis_publishers.processing.scanning import scan as scan
from kinesis_publishers.processing.sharded import ShardStream as ShardStream
from kinesis_publishers.processing.sharded import ShardStreams as ShardStreams
from kinesis_publishers.processing.sharded import shards as shards
from kinesis_publishers.processing.tables import read_table as read_table

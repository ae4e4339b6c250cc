"""Stores of checkpoints: memory, a file of this machine, a table of DynamoDB."""

from kinesis_publishers.checkpoints.dynamodb import DynamoDbCheckpointStore
from kinesis_publishers.checkpoints.memory import CheckpointMemory, MemoryCheckpointStore
from kinesis_publishers.checkpoints.sqlite import SqliteCheckpointStore
from kinesis_publishers.checkpoints.versions import Attempt, Refusal, WriteBook, raise_refused

__all__ = [
    "Attempt",
    "CheckpointMemory",
    "DynamoDbCheckpointStore",
    "MemoryCheckpointStore",
    "Refusal",
    "SqliteCheckpointStore",
    "WriteBook",
    "raise_refused",
]

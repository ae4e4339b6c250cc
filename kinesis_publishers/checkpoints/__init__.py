"""Stores of checkpoints: memory, a file of this machine, a table of DynamoDB."""

from kinesis_publishers.checkpoints.memory import CheckpointMemory, MemoryCheckpointStore
from kinesis_publishers.checkpoints.versions import Attempt, Refusal, WriteBook, raise_refused

__all__ = [
    "Attempt",
    "CheckpointMemory",
    "MemoryCheckpointStore",
    "Refusal",
    "WriteBook",
    "raise_refused",
]

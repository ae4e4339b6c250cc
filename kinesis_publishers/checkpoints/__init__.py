"""Stores of checkpoints: memory, a file of this machine, DynamoDB, SQL databases, Redis."""

from kinesis_publishers.checkpoints.memory import CheckpointMemory as CheckpointMemory
from kinesis_publishers.checkpoints.memory import MemoryCheckpointStore as MemoryCheckpointStore
from kinesis_publishers.checkpoints.versions import Attempt as Attempt
from kinesis_publishers.checkpoints.versions import WriteBook as WriteBook

"""Replays recorded Kinesis streams from Parquet files, with their original timing."""

from kinesis_replay.factory import ReplayPublisherFactory
from kinesis_replay.publisher import ReplayPublisher

__all__ = ["ReplayPublisher", "ReplayPublisherFactory"]

"""Writes records: a producer with batches, aggregation by shard, rate limits and retries."""

from kinesis_publishers.producing.blocking import BlockingProducer as BlockingProducer
from kinesis_publishers.producing.producer import KinesisProducer as KinesisProducer
from kinesis_publishers.producing.records import PutResult as PutResult

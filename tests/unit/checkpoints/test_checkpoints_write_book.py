"""How a store tells its own writes from those of others."""

from __future__ import annotations

from kinesis_publishers.checkpoints import WriteBook
from kinesis_publishers.model import ShardKey

KEY = ShardKey("arn:aws:kinesis:eu-west-1:123456789012:stream/orders", "shardId-000000000000")


def test_a_request_that_arrives_late_undoes_nothing():
    book = WriteBook("me")
    late = book.attempt(KEY, None)
    again = book.attempt(KEY, None)
    assert not late.replaces(again.version)

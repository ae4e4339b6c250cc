"""The fake producer does what the producer does, as far as it says."""

from __future__ import annotations

import inspect

import pytest

from kinesis_publishers import KinesisProducer, UserRecord
from kinesis_publishers.errors import (
    ClosedError,
    InvalidRecordError,
    RecordExpiredError,
    RecordsNotWrittenError,
)
from kinesis_publishers.testing.fakes import FakeProducer
from tests.unit.producing.producing_support import FIRST, KEYS, SECOND


def test_it_has_the_methods_of_the_producer() -> None:
    for name in ("put", "put_many", "flush", "close", "__aenter__", "__aexit__"):
        theirs = inspect.signature(getattr(KinesisProducer, name))
        assert inspect.signature(getattr(FakeProducer, name)) == theirs, name


async def test_it_keeps_what_is_put() -> None:
    async with FakeProducer(shards=2) as producer:
        first = await producer.put("text", KEYS[FIRST])
        many = await producer.put_many([(b"x", KEYS[SECOND]), (b"y", "k", "0"), (b"z", None)])
        await producer.flush()
        assert first.result().shard_id == FIRST
        assert [one.shard_id for one in many.result()][:2] == [SECOND, FIRST]
        numbers = [first.result().sequence_number] + [one.sequence_number for one in many.result()]
        assert numbers == sorted(set(numbers))
    assert producer.records[:2] == [
        UserRecord(data=b"text", partition_key=KEYS[FIRST]),
        UserRecord(data=b"x", partition_key=KEYS[SECOND]),
    ]
    assert producer.flushes == 1
    with pytest.raises(ClosedError):
        await producer.put(b"x")


async def test_it_encodes_what_is_put() -> None:
    producer = FakeProducer(encode="json")
    await producer.put({"id": 7}, "a")
    await producer.put_many([([8], "a")])
    assert [one.data for one in producer.records] == [b'{"id":7}', b"[8]"]
    with pytest.raises(InvalidRecordError, match="not this set"):
        await producer.put({1}, "a")


async def test_it_refuses_what_the_producer_refuses() -> None:
    async with FakeProducer() as producer:
        with pytest.raises(InvalidRecordError, match="1 to 256"):
            await producer.put(b"x", "")
    assert producer.records == []


async def test_records_fail_as_a_test_says() -> None:
    producer = FakeProducer()
    error = RecordExpiredError("too old")
    producer.fail(None, error, error)
    first, second = await producer.put(b"1"), await producer.put(b"2")
    many = await producer.put_many([(b"3", "k"), (b"4", "k")])
    assert first.exception() is None
    assert second.exception() is error
    raised = many.exception()
    assert isinstance(raised, RecordsNotWrittenError)
    assert raised.results[0] is error
    assert [one.data for one in producer.records] == [b"1", b"4"]
    with pytest.raises(RecordsNotWrittenError, match="2 records were not written"):
        await producer.flush()
    await producer.close()

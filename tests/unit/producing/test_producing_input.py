"""Bad input, and producers that cannot be used: a clear error, and nothing is lost silently."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_publishers import KinesisProducer, Partitioner, UserRecord
from kinesis_publishers.abc import PutAnswer, PutColumns, RecordWriter
from kinesis_publishers.errors import (
    ClosedError,
    ConfigError,
    InvalidOptionError,
    InvalidRecordError,
    PluginLoadError,
    RecordsNotWrittenError,
    StreamNotFoundError,
)
from kinesis_publishers.producing.routing import ShardMap
from kinesis_publishers.testing.local_kinesis import Fault, Limits
from tests.unit.producing.producing_support import FIRST, KEYS, STREAM

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from tests.unit.producing.producing_support import Writing

_MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ((1, "k"), "data must be bytes, or a text, .* not int"),
        ((None, "k"), "data must be bytes, or a text, .* not NoneType"),
        ((b"x", ""), "a partition key must have 1 to 256 characters, not 0: ''"),
        ((b"x", "k" * 257), "1 to 256 characters, not 257: 'kkk"),
        ((b"x", b"k"), "a partition key must be a text, not bytes"),
        ((b"x", "\udc80"), "a partition key must have characters of UTF-8 only"),
        ((b"x", "k", "-1"), r"an explicit hash key must .* from 0 to 2\*\*128 - 1, not '-1'"),
        ((b"x", "k", str(2**128)), "an explicit hash key must"),
        ((b"x", "k", "abc"), "an explicit hash key must"),
        ((b"x", "k", 5), "an explicit hash key must be a text, .* not 5"),
        ((b"x", None, "-5"), "an explicit hash key must .*, not '-5'"),
    ],
)
async def test_a_record_that_no_stream_takes_is_refused(
    writing: Writing, record: Any, message: str
) -> None:
    async with writing.producer() as producer:
        with pytest.raises(InvalidRecordError, match=message):
            await producer.put(*record)
        with pytest.raises(InvalidRecordError, match=message):
            await producer.put_many([(b"before", "k"), record, (b"behind", "k")])
        assert producer.pending_records == 1
    assert writing.data() == [b"before"]


@pytest.mark.parametrize("record", [None, b"data", (b"x",), (b"x", "k", "1", "m", "?"), 7])
async def test_what_is_no_record_is_refused(writing: Writing, record: Any) -> None:
    async with writing.producer() as producer:
        with pytest.raises(InvalidRecordError, match="must be a UserRecord, or a tuple of data"):
            await producer.put_many([record])


@pytest.mark.parametrize("is_many", [False, True])
async def test_a_record_that_is_too_large_for_the_stream_is_refused(
    writing: Writing, is_many: bool
) -> None:
    fits, large = b"x" * (_MIB - 1), b"x" * _MIB
    async with writing.producer() as producer:
        if is_many:
            work: Any = producer.put_many([(fits, "k"), (large, "k"), (b"behind", "k")])
        else:
            await producer.put(fits, "k")
            work = producer.put(large, "k")
        with pytest.raises(InvalidRecordError, match=r"1,048,577 bytes .* takes 1,048,576 at most"):
            await work
    assert writing.data() == [fits]


async def test_what_comes_before_a_record_that_is_too_large_has_its_results(
    writing: Writing,
) -> None:
    async with writing.producer(aggregation=True) as producer:
        records = [(b"%d" % n, f"{n}") for n in range(700)]
        with pytest.raises(InvalidRecordError):
            await writing.run(producer.put_many([*records, (bytes(_MIB), "k"), (b"behind", "k")]))
    assert sorted(writing.data()) == sorted(data for data, _ in records)


async def test_a_stream_that_takes_more_since_is_asked_again(writing: Writing) -> None:
    async with writing.producer() as producer:
        writing.server.limits = Limits(record_max_bytes=2 * _MIB)
        await writing.clock.advance(2)  # It was described a moment ago.
        await producer.put(bytes(_MIB + 1), "k")
    assert [len(one) for one in writing.data()] == [_MIB + 1]


async def test_a_text_is_measured_in_bytes(writing: Writing) -> None:
    async with writing.producer() as producer:
        with pytest.raises(InvalidRecordError, match="takes 1,048,576"):
            await producer.put(bytes(_MIB - 256), "🎉" * 65)
        await producer.put(bytes(_MIB - 256), "🎉" * 64)
    assert len(writing.data()) == 1


async def test_a_closed_producer_says_so(writing: Writing) -> None:
    async with writing.producer() as producer:
        await writing.run(producer.close())
        await producer.close()
        for work in (producer.put(b"x", "k"), producer.put_many([(b"x", "k")]), producer.flush()):
            with pytest.raises(ClosedError, match="the producer for orders is closed"):
                await work


async def test_a_producer_that_was_not_opened_says_so(writing: Writing) -> None:
    other = KinesisProducer(await writing.services(), ShardMap((), {}))
    with pytest.raises(ClosedError, match="was not opened: use it as `async with`"):
        await other.put(b"x", "k")


async def test_another_event_loop_says_so(writing: Writing) -> None:
    async with writing.producer() as producer:

        def put() -> None:
            asyncio.run(producer.put(b"x", "k"))

        with pytest.raises(ClosedError, match="belongs to another event loop"):
            await asyncio.to_thread(put)


def test_an_event_loop_that_ends_before_the_producer_is_an_error_in_the_log(
    local_kinesis: LocalKinesis, caplog: pytest.LogCaptureFixture
) -> None:
    local_kinesis.create_stream(STREAM, 2)
    local_kinesis.add_fault(Fault("PutRecords", "throttle", times=None))
    opened = []

    async def put() -> list[asyncio.Future[Any]]:
        context = KinesisProducer.from_properties(local_kinesis.properties(STREAM))
        producer = await context.__aenter__()
        opened.append((context, producer))
        return [await producer.put(b"x", "k") for _ in range(3)]

    with caplog.at_level(logging.ERROR):
        # asyncio.run cancels the tasks that are left, the producer's among them.
        futures = asyncio.run(put())
    assert "has ended with 3 records that were not written" in caplog.text
    assert all(isinstance(one.exception(), ClosedError) for one in futures)
    opened.clear()
    gc.collect()


async def test_a_fork_cannot_use_the_producer_of_its_parent(writing: Writing) -> None:
    async with writing.producer(lingermillis="1h") as producer:
        future = await producer.put(b"x", "k")
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            try:
                await producer.put(b"y", "k")
            except ClosedError as error:
                os.write(write, str(error).encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as said:
            assert b"was opened before this process was forked" in said.read()
        os.waitpid(child, 0)  # noqa: ASYNC222 - it has ended
        await producer.flush()
        assert future.done()
    assert writing.data() == [b"x"]


async def test_what_nobody_expects_ends_the_producer_and_reaches_every_future(
    writing: Writing,
) -> None:
    class Broken(RecordWriter):
        async def put_records(self, stream_arn: str, records: PutColumns) -> PutAnswer:
            raise ZeroDivisionError("a bug")

    async with writing.producer(writer=Broken()) as producer:
        future = await producer.put(b"x", "k")
        waits = asyncio.ensure_future(producer.flush())
        await writing.until_done([future, waits])
        assert isinstance(future.exception(), RecordsNotWrittenError)
        assert "ZeroDivisionError" in str(future.exception())
        assert isinstance(waits.exception(), RecordsNotWrittenError)
        with pytest.raises(ClosedError, match="has failed"):
            await producer.put(b"y", "k")


async def test_a_future_that_its_owner_cancels_holds_up_nothing(writing: Writing) -> None:
    async with writing.producer() as producer:
        first, second = [await producer.put(b"x", "k") for _ in range(2)]
        many = await producer.put_many([(b"x", "k")])
        first.cancel()
        many.cancel()
        await writing.result(second)
    assert len(writing.data()) == 3


class Fixed(Partitioner):
    """Chooses what the data say."""

    def keys_of(self, data: bytes) -> tuple[str, str | None]:
        key, _, hash_key = data.decode().partition("/")
        return key, hash_key or None


_FIXED = f"{__name__}:Fixed"


async def test_a_partitioner_chooses_the_keys_that_are_missing(writing: Writing) -> None:
    async with writing.producer(partitioner=_FIXED, ordering="key") as producer:
        await producer.put(f"{KEYS[FIRST]}/{2**128 - 1}")
        await producer.put_many([(KEYS[FIRST], None), ("never", "given")])
    found = {(one.partition_key, one.data.decode()) for one in writing.stored()}
    assert found == {
        (KEYS[FIRST], f"{KEYS[FIRST]}/{2**128 - 1}"),
        (KEYS[FIRST], KEYS[FIRST]),
        ("given", "never"),
    }
    assert [one.partition_key for one in writing.stored(FIRST)] == [KEYS[FIRST]]


async def test_a_key_of_a_partitioner_is_checked_like_any_other(writing: Writing) -> None:
    async with writing.producer(partitioner=_FIXED) as producer:
        with pytest.raises(InvalidRecordError, match="1 to 256 characters, not 0"):
            await producer.put("/5")


def _open(properties: dict[str, Any]) -> None:
    async def enter() -> None:
        async with KinesisProducer.from_properties(properties):
            pass

    asyncio.run(enter())


def test_a_stream_that_does_not_exist_is_an_error_at_the_start(local_kinesis: LocalKinesis) -> None:
    with pytest.raises(StreamNotFoundError, match="orders"):
        _open(local_kinesis.properties(STREAM))


def test_a_producer_writes_to_one_stream() -> None:
    with pytest.raises(InvalidOptionError, match=r"kinesis.streams names a, b, and a producer"):
        _open({"kinesis.streams": "a,b", "aws.region": "eu-west-1"})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("batch.maxrecords", 501, "500"),
        ("aggregation.maxbytes", 10, "64"),
        ("ordering", "shard", "expected one of none, key"),
        ("partitioner", "nowhere:Class", "nowhere"),
        ("ratelimit", 0, "ratelimit"),
        ("recordtlmillis", 5, "did you mean kinesis.producer.recordttlmillis"),
    ],
)
def test_wrong_properties_are_an_error_before_any_call(key: str, value: Any, message: str) -> None:
    properties = {"kinesis.streams": "a", "aws.region": "x", f"kinesis.producer.{key}": value}
    with pytest.raises((ConfigError, PluginLoadError), match=message):
        _open(properties)


def test_user_records_are_checked_where_they_are_made() -> None:
    with pytest.raises(ValueError, match=r"an explicit hash key must .*, not 'x'"):
        UserRecord(data=b"", partition_key="k", explicit_hash_key="x")
    with pytest.raises(ValueError, match=r"put \(data, None\) without one"):
        UserRecord(data=b"", partition_key=None)  # type: ignore[arg-type]

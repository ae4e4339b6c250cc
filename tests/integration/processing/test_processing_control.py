"""What a program may ask of a reader, and is told by it."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from kinesis_publishers import (
    DeadLetter,
    RetryOnError,
    ScanResult,
    ShardStream,
    read,
    records,
    scan,
    shards,
)
from kinesis_publishers.errors import KinesisPublishersError
from tests.integration.processing.processing_support import numbers
from tests.integration.processing.scanning_support import AT_ONCE, scanned_in_next_run

if TYPE_CHECKING:
    from datetime import datetime

    from kinesis_publishers import Record, RecordBatch, Shard
    from tests.integration.processing.processing_support import Orders


def test_what_is_put_after_the_ready_signal_is_read_at_latest(orders: Orders) -> None:
    orders.put(5)
    seen: list[int] = []

    def on_ready(instant: datetime) -> None:
        orders.put(10)

    def process(record: Record) -> ScanResult | None:
        seen.append(int(record.data))
        return ScanResult.STOP if len(seen) == 10 else None

    properties = orders.properties(stream_initpos="LATEST")
    scan(properties, process, on_ready=on_ready)
    assert sorted(seen) == list(range(5, 15))


def test_a_shard_is_told_of_before_its_records_and_a_stop_after_the_last(orders: Orders) -> None:
    orders.put(20)
    orders.server.reshard("orders", 1)
    orders.put(3)
    history: list[str] = []

    def process(record: Record) -> ScanResult | None:
        history.append(record.shard_id)
        return ScanResult.STOP if record.data == b"22" else None

    def on_shard_begin(shard: Shard) -> None:
        history.append(f"begin {shard.shard_id}")

    scan(
        orders.properties(),
        process,
        on_shard_begin=on_shard_begin,
        on_stop=lambda: history.append("stop"),
    )
    shards = [f"shardId-00000000000{number}" for number in range(3)]
    for shard in shards:
        assert history.index(f"begin {shard}") < history.index(shard)
    assert history[-1] == "stop"
    assert history.count("stop") == 1


async def test_loops_have_the_same_hooks(orders: Orders) -> None:
    orders.put(1, key="one shard")
    history: list[str] = []

    async def on_ready(instant: datetime) -> None:
        history.append("ready")

    async def on_shard_begin(shard: Shard) -> None:
        history.append("begin")

    async def on_stop() -> None:
        history.append("stop")

    hooks: dict[str, Any] = {"on_shard_begin": on_shard_begin, "on_stop": on_stop}
    async with read(orders.properties(), on_ready=on_ready, **hooks) as stream:
        async for record in stream:
            history.append(record.data.decode())
            stream.stop()
    assert [one for one in history if one != "begin"] == ["ready", "0", "stop"]
    assert "begin" in history[: history.index("0")]


@pytest.mark.parametrize("face", ["scan", "records"])
def test_nothing_is_handed_out_while_a_reader_is_paused(orders: Orders, face: str) -> None:
    """Records that arrive during the pause come after it."""
    orders.put(4, key="one shard")
    seen: list[int] = []
    pause = threading.Event()

    def go_on() -> None:
        assert len(seen) < 8
        orders.put(4, key="one shard")
        pause.clear() if face == "scan" else stream.resume()

    def process(record: Record) -> ScanResult | None:
        seen.append(int(record.data))
        if len(seen) == 2:
            pause.set() if face == "scan" else stream.pause()
            threading.Timer(0.5, go_on).start()
        return ScanResult.STOP if len(seen) == 8 else None

    if face == "scan":
        scan(orders.properties(), process, pause=pause)
    else:
        with records(orders.properties()) as stream:
            for record in stream:
                if process(record) is ScanResult.STOP:
                    break
    assert seen == list(range(8))


def test_a_function_gets_empty_batches_on_request(orders: Orders) -> None:
    orders.put(3, key="one shard")
    sizes: list[int] = []

    def process(batch: RecordBatch) -> ScanResult | None:
        sizes.append(len(batch))
        is_over = sum(sizes) == 3 and sizes[-1] == 0
        if is_over:
            stop.set()
        return None

    stop = threading.Event()
    scan(orders.properties(), process, per_batch=True, empty_batches=True, stop=stop)
    assert 0 in sizes
    assert scanned_in_next_run(orders) == []


@pytest.mark.parametrize("is_async", [False, True])
def test_an_empty_batch_may_stop_and_fail_as_any_other(orders: Orders, *, is_async: bool) -> None:
    """A retry repeats it, and the last policy takes it, with no record to put aside."""
    history: list[int | str] = []

    def process(batch: RecordBatch) -> ScanResult | None:
        history.append(len(batch))
        if not batch and history.count(0) <= 4:
            raise ZeroDivisionError
        return None if batch else ScanResult.STOP

    async def process_async(batch: RecordBatch) -> ScanResult | None:
        return process(batch)

    retry = RetryOnError(policy=AT_ONCE, otherwise=DeadLetter(lambda *_: history.append("aside")))
    asked: dict[str, Any] = {"per_batch": True, "empty_batches": True, "on_error": retry}
    scan(orders.properties(), process_async if is_async else process, **asked)
    assert history == [0, 0, 0, 0, "aside", 0]


def test_a_stop_is_told_after_all_workers_have_finished(orders: Orders) -> None:
    orders.put(40)
    stop, is_told = threading.Event(), threading.Event()
    calls: list[bool] = []

    def process(record: Record) -> None:
        if len(calls) >= 10:
            stop.set()
            calls.append(is_told.wait(0.2))
        else:
            calls.append(is_told.is_set())

    asked: dict[str, Any] = {"workers": 8, "ordered_by": None, "stop": stop}
    scan(orders.properties(), process, on_stop=is_told.set, **asked)
    assert not any(calls)
    assert is_told.is_set()


@pytest.mark.parametrize("how", ["checkpoint", "stage"])
async def test_a_record_is_recorded_before_the_next_one_is_asked_for(
    orders: Orders, how: str
) -> None:
    orders.put(5, key="one shard")

    async def fail_in_the_third_record() -> None:
        async with read(orders.properties()) as stream:
            async for record in stream:
                if record.data == b"2":
                    if how == "checkpoint":
                        await stream.checkpoint()
                    else:
                        stream.stage()
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_in_the_third_record()
    assert await asyncio.to_thread(scanned_in_next_run, orders) == [3, 4]


def test_a_function_may_record_its_record_itself(orders: Orders) -> None:
    orders.put(5, key="one shard")

    def process(record: Record, checkpointer: Any) -> None:
        checkpointer.stage()
        if record.data == b"2":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        scan(orders.properties(), process)
    assert scanned_in_next_run(orders) == [3, 4]


def test_a_plain_loop_may_write_its_checkpoint(orders: Orders) -> None:
    orders.put(5, key="one shard")
    with records(orders.properties()) as stream:
        with pytest.raises(RuntimeError, match="no current record"):
            stream.checkpoint()
        for record in stream:
            stream.checkpoint()
            if record.data == b"2":
                break
    assert numbers([record]) == [2]
    assert scanned_in_next_run(orders) == [3, 4]


async def test_each_shard_is_a_stream_of_its_own(orders: Orders) -> None:
    """A task that is slow with one shard holds up no other; a child comes after its parents."""
    orders.put(20)
    first_done = asyncio.Event()
    seen: dict[str, list[int]] = {}
    order: list[str] = []

    async def consume(stream: ShardStream) -> None:
        order.append(stream.shard.shard_id)
        if len(order) == 1:
            await asyncio.to_thread(orders.server.reshard, "orders", 1)
            await asyncio.to_thread(orders.put, 3)
            await first_done.wait()
        async with stream:
            async for record in stream:
                seen.setdefault(stream.shard.shard_id, []).append(int(record.data))
                await stream.checkpoint()
                if sum(map(len, seen.values())) >= 5:
                    first_done.set()
                if record.data == b"22":
                    streams.stop()

    async with shards(orders.properties()) as streams, asyncio.TaskGroup() as tasks:
        async for stream in streams:
            tasks.create_task(consume(stream))
    assert (len(order), order[2:]) == (3, ["shardId-000000000002"]), seen
    assert seen["shardId-000000000002"] == [20, 21, 22]
    assert sorted(number for numbers in seen.values() for number in numbers) == list(range(23))
    assert await asyncio.to_thread(scanned_in_next_run, orders) == []


async def test_all_shards_are_paused_at_once(orders: Orders) -> None:
    """A shard that begins meanwhile, too, as the child of one that has ended."""
    orders.put(4, key="one shard")
    seen: list[bytes] = []

    async def consume(stream: ShardStream) -> None:
        async with stream:
            async for record in stream:
                seen.append(record.data)
                if record.data == b"3":
                    streams.pause()
                    await asyncio.to_thread(orders.server.reshard, "orders", 1)
                    await asyncio.to_thread(orders.put, 4)
                    asyncio.get_running_loop().call_later(0.5, resume)
                if len(seen) == 8:
                    streams.stop()

    def resume() -> None:
        seen.append(b"resumed")
        streams.resume()

    async with shards(orders.properties()) as streams, asyncio.TaskGroup() as tasks:
        async for stream in streams:
            tasks.create_task(consume(stream))
    assert seen[:5] == [b"0", b"1", b"2", b"3", b"resumed"]


async def test_a_stop_ends_the_streams_of_shards_that_wait(orders: Orders) -> None:
    """Nobody asks for a further shard meanwhile."""
    orders.put(1, key="one shard")

    async def consume(stream: ShardStream) -> None:
        async with stream:
            async for _ in stream:
                asyncio.get_running_loop().call_later(0.2, streams.stop)

    async with shards(orders.properties()) as streams:
        await asyncio.wait_for(consume(await anext(streams)), 30)


async def test_a_pause_after_a_stop_holds_nothing_up(orders: Orders) -> None:
    orders.put(20)
    async with read(orders.properties()) as stream:
        async for _ in stream:
            stream.stop()
            stream.pause()


@pytest.mark.parametrize(
    ("without", "store", "arguments", "problem"),
    [
        ("application", {}, (), r"set kinesis\.checkpoint\.application"),
        ("", {"checkpoint_store": "memory"}, (object(),), "part of a transaction: set .* to sql"),
    ],
)
def test_a_checkpoint_that_cannot_be_is_refused(
    orders: Orders,
    without: str,
    store: dict[str, str],
    arguments: tuple[object, ...],
    problem: str,
) -> None:
    orders.put(1)
    properties = orders.properties(**store)
    for name in ("sqlite.path", without):
        properties.pop(f"kinesis.checkpoint.{name}", None)
    with records(properties) as stream:
        next(stream)
        with pytest.raises(KinesisPublishersError, match=problem):
            stream.checkpoint(*arguments)


def test_records_go_to_a_queue_a_topic_and_a_bucket(orders: Orders, moto_url: str) -> None:
    """A queue in order takes them by key; a topic hands them to a queue; objects have their ids."""
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}

    def client(service: str) -> Any:
        return boto3.client(service, "us-east-1", endpoint_url=moto_url, **keys)

    sqs, sns, s3 = client("sqs"), client("sns"), client("s3")
    fifo = sqs.create_queue(QueueName="letters.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    plain = sqs.create_queue(QueueName="letters")["QueueUrl"]
    topic = sns.create_topic(Name="letters")["TopicArn"]
    arn = sqs.get_queue_attributes(QueueUrl=plain, AttributeNames=["QueueArn"])["Attributes"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn["QueueArn"])
    s3.create_bucket(Bucket="letters")
    orders.server.put_many("orders", [("ключ", b"x" * 300_000), ("key", b"small")])
    sinks = [
        DeadLetter.to_sqs(sqs, fifo),
        DeadLetter.to_sns(sns, topic),
        DeadLetter.to_s3(s3, "letters", "aside/"),
    ]
    stop, taken = threading.Event(), []

    def put(record: Any, error: Exception) -> None:
        for sink in sinks:
            sink.put(record, error)
        taken.append(record.id.rstrip("/"))
        if len(taken) == 2:
            stop.set()

    def fail(record: Record) -> None:
        raise ZeroDivisionError

    scan(orders.properties(), fail, on_error=DeadLetter(put), stop=stop)
    for url in (fifo, plain):
        parts: dict[str, bytes] = {}
        while found := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            for one in found:
                body = json.loads(one["Body"])
                letter = json.loads(body["Message"]) if "Message" in body else body
                data = base64.b64decode(letter["data"])
                parts[letter["id"]] = parts.get(letter["id"], b"") + data
                sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
        assert sorted(map(len, parts.values())) == [5, 300_000]
    listed = s3.list_objects_v2(Bucket="letters")["Contents"]
    assert {one["Key"] for one in listed} == {f"aside/{one}.json" for one in taken}

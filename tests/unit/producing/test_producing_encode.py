"""``encode``: values that become payloads, what cannot, and the span of a put."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kinesis_publishers import BlockingProducer, KinesisProducer, UserRecord, records
from kinesis_publishers.errors import InvalidRecordError, SchemaError
from kinesis_publishers.formats import CloudEvent, decoder_of, encoder_of
from kinesis_publishers.formats.spans import Tracing
from kinesis_publishers.producing.routing import ShardMap
from tests.unit.producing.producing_support import FIRST, KEYS, STREAM, Writing, writing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

__all__ = ["writing"]


@asynccontextmanager
async def encoding(
    writing: Writing, encode: Any, tracing: Tracing | None = None
) -> AsyncIterator[KinesisProducer]:
    services = await writing.services()
    shard_map = await ShardMap.listed(services)
    async with KinesisProducer(services, shard_map, encoder_of(encode), tracing) as producer:
        yield producer
        await writing.run(producer.close())


async def test_put_and_put_many_encode_what_they_take(writing: Writing) -> None:
    async with encoding(writing, "json") as producer:
        await producer.put({"id": 1}, "a")
        items: list[Any] = [({"id": 2}, "a"), ("three", "a", None), [[4], "a"]]
        await producer.put_many(items)
    found = sorted(map(json.loads, writing.data()), key=str)
    assert found == sorted([{"id": 1}, {"id": 2}, "three", [4]], key=str)


async def test_the_data_of_a_user_record_is_encoded_too(writing: Writing) -> None:
    async with encoding(writing, "gzip") as producer:
        await producer.put_many([UserRecord(data=b"one", partition_key="a")])
    assert [zlib.decompress(data, 31) for data in writing.data()] == [b"one"]


async def test_a_function_may_make_a_text_which_is_encoded_in_utf8(writing: Writing) -> None:
    async with encoding(writing, str) as producer:
        await producer.put(7, "a")
    assert writing.data() == [b"7"]


async def test_a_value_that_cannot_be_encoded_is_refused_by_put(writing: Writing) -> None:
    async with encoding(writing, "json") as producer:
        with pytest.raises(InvalidRecordError, match=r"not this set: TypeError\('Object of type"):
            await producer.put({1}, "a")
        with pytest.raises(InvalidRecordError, match="not this float: ValueError"):
            await producer.put_many([(1, "a"), (float("nan"), "a"), (3, "a")])
        with pytest.raises(InvalidRecordError, match="must be a UserRecord, or a tuple"):
            await producer.put_many([5])  # type: ignore[list-item]
    assert writing.data() == [b"1"]


async def test_an_error_of_the_registry_is_not_the_records(writing: Writing) -> None:
    def encode(value: object) -> bytes:
        raise SchemaError("no schema")

    async with encoding(writing, encode) as producer:
        with pytest.raises(SchemaError):
            await producer.put(1, "a")
        with pytest.raises(SchemaError):
            await producer.put_many([(1, "a")])
    assert writing.data() == []


async def test_an_encoder_that_makes_no_bytes_is_refused(writing: Writing) -> None:
    async with encoding(writing, lambda value: value) as producer:
        with pytest.raises(InvalidRecordError, match="data must be bytes, or a text"):
            await producer.put(7, "a")


def test_a_blocking_producer_writes_values_that_records_reads(local_kinesis: LocalKinesis) -> None:
    local_kinesis.create_stream(STREAM)
    properties = local_kinesis.properties(STREAM)
    with BlockingProducer.from_properties(properties, encode="msgpack") as producer:
        producer.put({"id": 1}, "a")
        producer.put_many([({"id": 2}, "a")])
        with pytest.raises(InvalidRecordError, match="not this object"):
            producer.put(object(), "a")
        with pytest.raises(InvalidRecordError, match="not this object"):
            producer.put_many([(object(), "a")])
    with records(properties, start="TRIM_HORIZON", decode="msgpack") as stream:
        assert [next(stream).value["id"] for _ in range(2)] == [1, 2]


@pytest.mark.parametrize(("encode", "error"), [("yaml", ValueError), (7, TypeError)])
def test_an_unknown_format_is_refused_before_anything_is_opened(
    encode: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match="encode"):
        BlockingProducer.from_properties(stream="orders", region="eu-west-1", encode=encode)


async def test_an_event_carries_the_span_of_its_put(writing: Writing) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    event = CloudEvent({"type": "order", "source": "/shop", "id": "7"})
    async with encoding(writing, "cloudevents", Tracing(provider.get_tracer("test"))) as producer:
        await writing.result(await producer.put(event, KEYS[FIRST]))
        await writing.result(await producer.put_many([(event, KEYS[FIRST])] * 2))
        with pytest.raises(InvalidRecordError):
            await producer.put(7, "a")
    one, many, failed = exporter.get_finished_spans()
    decode = decoder_of("cloudevents")
    assert decode is not None
    parents = [decode(data).attributes["traceparent"].split("-")[2] for data in writing.data()]
    assert parents == [f"{span.get_span_context().span_id:016x}" for span in (one, many, many)]
    assert (one.attributes or {})["messaging.destination.partition.id"] == FIRST
    assert (many.attributes or {})["messaging.batch.message_count"] == 2
    assert (failed.attributes or {})["error.type"] == "InvalidRecordError"
    provider.shutdown()


def test_a_program_with_a_tracer_provider_has_spans_unless_it_says_no(
    local_kinesis: LocalKinesis,
) -> None:
    local_kinesis.create_stream(STREAM)
    code = f"""
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from kinesis_publishers import BlockingProducer, CloudEvent

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
for traces in (False, True):
    properties = {local_kinesis.properties(STREAM)!r}
    how = {{"encode": "cloudevents", "metrics_traces": traces}}
    with BlockingProducer.from_properties(properties, **how) as producer:
        with provider.get_tracer("own").start_as_current_span("checkout"):
            event = CloudEvent({{"type": "order", "source": "/shop", "id": "7"}})
            producer.put(event, "a")
            producer.put_many([(event, "a")])
    spans = exporter.get_finished_spans()
    names = sorted(span.name for span in spans)
    print(*names, len({{span.context.trace_id for span in spans}}), sep=", ")
    exporter.clear()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.splitlines() == [
        "checkout, 1",
        "checkout, send orders, send orders, 1",
    ], done.stderr

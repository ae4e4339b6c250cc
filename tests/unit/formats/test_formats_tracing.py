"""Spans by the semantic conventions, their links, and that there are none unless wanted."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from kinesis_publishers import PutResult, Record, RecordBatch, Shard
from kinesis_publishers.errors import RecordsNotWrittenError
from kinesis_publishers.formats import CloudEvent, decoder_of, encoder_of
from kinesis_publishers.formats.spans import Tracing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan

RECORD = Record(b"{}", "key", "17", 1.5, None, "shardId-0", "orders")
BATCH = RecordBatch(
    shard=Shard(
        stream_arn="arn:aws:kinesis:us-east-1:123456789012:stream/orders", shard_id="shardId-0"
    ),
    requested_at=datetime(2026, 11, 28, tzinfo=UTC),
    payloads=[b"1", b"2"],
    partition_keys=["key"] * 2,
    sequence_numbers=["17", "18"],
    arrival_epoch_seconds=[1.5] * 2,
)
ORDER = {"type": "order", "source": "/shop", "id": "7"}
EVENT = CloudEvent(ORDER, data={"id": 7})
_SET = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider"""
_MESSAGING = {"messaging.system": "aws_kinesis", "messaging.destination.name": "orders"}


class Spans:
    """A tracer, and the spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    @property
    def ended(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())


@pytest.fixture
def spans() -> Iterator[Spans]:
    spans = Spans()
    yield spans
    spans.provider.shutdown()


def sent_within(spans: Spans) -> tuple[CloudEvent, Any]:
    """Return an event as it was encoded inside a span, and that span's context."""
    encode, decode = encoder_of("cloudevents"), decoder_of("cloudevents")
    assert encode is not None
    assert decode is not None
    with spans.tracer.start_as_current_span("checkout") as span:
        return decode(encode(EVENT)), span.get_span_context()


def test_an_event_carries_the_trace_in_which_it_was_encoded(spans: Spans) -> None:
    event, context = sent_within(spans)
    trace = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert event.attributes == {**ORDER, "traceparent": trace}
    encode, decode = encoder_of("cloudevents"), decoder_of("cloudevents")
    assert encode is not None
    assert decode is not None
    with spans.tracer.start_as_current_span("a hop on the way"):
        assert decode(encode(event)) == event
    assert decode(encode(EVENT)) == EVENT


def test_a_put_is_a_span_until_its_result_is_there(spans: Spans) -> None:
    future: Future[PutResult] = Future()
    with Tracing(spans.tracer).sending("orders", future):
        pass
    assert spans.ended == []
    future.set_result(PutResult("shardId-0", "17", None, 1, 0.1))
    (span,) = spans.ended
    assert (span.name, span.kind, span.status.status_code) == (
        "send orders",
        SpanKind.PRODUCER,
        StatusCode.UNSET,
    )
    assert span.attributes == {
        **_MESSAGING,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.partition.id": "shardId-0",
    }


@pytest.mark.parametrize("fails", [False, True])
def test_many_puts_are_one_span_with_their_number(spans: Spans, fails: bool) -> None:
    future: Future[Any] = Future()
    with Tracing(spans.tracer).sending("orders", future):
        pass
    if fails:
        future.set_exception(RecordsNotWrittenError("two are missing", results=[None] * 3))
    else:
        future.set_result([PutResult("shardId-0", "17", None, 1, 0.1)] * 3)
    (span,) = spans.ended
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == 3
    assert span.attributes.get("error.type") == ("RecordsNotWrittenError" if fails else None)
    assert span.status.description == ("two are missing" if fails else None)


def test_an_error_of_a_put_ends_its_span_once(
    spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    future: Future[Any] = Future()
    with (
        pytest.raises(ValueError, match="no value"),
        Tracing(spans.tracer).sending("orders", future),
    ):
        raise ValueError("no value")
    future.set_result(None)
    (span,) = spans.ended
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "ValueError"
    assert caplog.messages == []


def test_a_record_is_processed_in_the_trace_of_its_event(spans: Spans) -> None:
    event, context = sent_within(spans)
    with Tracing(spans.tracer).processing_span(RECORD, event):
        pass
    span = spans.ended[-1]
    assert (span.name, span.kind) == ("process orders", SpanKind.CONSUMER)
    assert span.parent is not None
    assert (span.parent.span_id, span.parent.is_remote) == (context.span_id, True)
    assert [link.context.span_id for link in span.links] == [context.span_id]
    assert span.attributes == {
        **_MESSAGING,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.partition.id": "shardId-0",
        "messaging.message.id": RECORD.id,
    }


def test_inside_a_span_of_the_program_the_trace_of_the_event_is_a_link(spans: Spans) -> None:
    event, context = sent_within(spans)
    with (
        spans.tracer.start_as_current_span("own") as own,
        Tracing(spans.tracer).processing_span(RECORD, event),
    ):
        pass
    span = spans.ended[-2]
    assert span.parent is not None
    assert span.parent.span_id == own.get_span_context().span_id
    assert [link.context.span_id for link in span.links] == [context.span_id]


def test_a_batch_is_linked_to_each_of_its_events(spans: Spans) -> None:
    events, contexts = zip(*(sent_within(spans) for _ in range(2)), strict=True)
    with Tracing(spans.tracer).processing_span(BATCH, [*events, EVENT, {"id": 7}]):
        pass
    span = spans.ended[-1]
    assert span.parent is None
    assert [link.context.span_id for link in span.links] == [one.span_id for one in contexts]
    assert (span.attributes or {})["messaging.batch.message_count"] == 2


def test_what_is_handed_out_is_received(spans: Spans) -> None:
    with Tracing(spans.tracer).processing_span(BATCH, operation="receive"):
        pass
    (span,) = spans.ended
    assert (span.name, (span.attributes or {})["messaging.operation.type"]) == (
        "receive orders",
        "receive",
    )


@pytest.mark.parametrize("value", [None, 5, {"traceparent": "00-1-2-3"}, EVENT])
def test_a_value_without_a_trace_is_processed_in_a_new_one(spans: Spans, value: object) -> None:
    with Tracing(spans.tracer).processing_span(RECORD, value):
        pass
    (span,) = spans.ended
    assert (span.parent, list(span.links)) == (None, [])


def test_an_unreadable_trace_of_an_event_is_none(spans: Spans) -> None:
    event = CloudEvent({**ORDER, "traceparent": "nonsense"})
    with Tracing(spans.tracer).processing_span(RECORD, event):
        pass
    assert list(spans.ended[0].links) == []


def test_an_error_of_the_program_is_that_of_the_span(spans: Spans) -> None:
    with pytest.raises(KeyError), Tracing(spans.tracer).processing_span(RECORD):
        raise KeyError("gone")
    (span,) = spans.ended
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "KeyError"


@pytest.mark.parametrize(
    ("program", "traces"),
    [
        ("", False),
        ("import opentelemetry.trace", False),
        (f"{_SET}(trace.NoOpTracerProvider())", False),
        (f"{_SET}(TracerProvider())", True),
    ],
    ids=["without", "not configured", "off", "configured"],
)
def test_there_are_spans_only_with_a_tracer_provider(program: str, traces: bool) -> None:
    code = f"""
{program}
import sys
from kinesis_publishers.formats import open_tracing
print(open_tracing() is not None, "opentelemetry" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == [str(traces), str(bool(program))]

"""Spans by OpenTelemetry's semantic conventions for messaging (extra ``opentelemetry``)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from attrs import frozen
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kinesis_publishers.model import Record, RecordBatch

PROPAGATOR: Final = TraceContextTextMapPropagator()
_SHARD, _ID = "messaging.destination.partition.id", "messaging.message.id"
_COUNT: Final = "messaging.batch.message_count"


@frozen
class Tracing:
    """Makes the spans of producers and consumers; ``open_tracing`` returns it."""

    _tracer: trace.Tracer

    @contextmanager
    def sending(self, stream: str, future: Any) -> Iterator[None]:
        """Be inside the span of a put, which ends with its future, or with an error here."""
        attributes = _attributes("send", stream)
        span = self._tracer.start_span(f"send {stream}", None, trace.SpanKind.PRODUCER, attributes)
        future.add_done_callback(partial(_end_sending, span))
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        except BaseException as error:
            _fail(span, error)
            span.end()
            raise

    @contextmanager
    def processing_span(
        self, given: Record | RecordBatch, value: Any = None, *, operation: str = "process"
    ) -> Iterator[trace.Span]:
        """Be inside the span in which a record or a batch is processed.

        The span has a link to the trace that ``value`` carries in its attribute ``traceparent``, if
        it is a ``CloudEvent``; for a batch, ``value`` has the values of all. The trace of a single
        record is the parent, unless the program is inside a span of its own. The ``operation``
        ``receive`` is for handing records to the program.
        """
        is_single = isinstance(given, Record)
        contexts = list(_contexts((value,) if is_single else value or ()))
        is_inside = trace.get_current_span().get_span_context().is_valid
        place = given if isinstance(given, Record) else given.shard
        own = {_ID: given.id} if isinstance(given, Record) else {_COUNT: len(given)}
        with self._tracer.start_as_current_span(
            f"{operation} {place.stream_name}",
            contexts[0] if contexts and is_single and not is_inside else None,
            trace.SpanKind.CONSUMER,
            {**_attributes(operation, place.stream_name), _SHARD: place.shard_id, **own},
            [trace.Link(trace.get_current_span(one).get_span_context()) for one in contexts],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                _fail(span, error)
                raise


def _attributes(operation: str, stream: str) -> dict[str, Any]:
    # The conventions name no system for Kinesis; this follows their aws_sqs.
    about = {"messaging.system": "aws_kinesis", "messaging.destination.name": stream}
    return about | {f"messaging.operation.{one}": operation for one in ("name", "type")}


def _contexts(values: Iterable[Any]) -> Iterator[Context]:
    """Yield the contexts that values carry."""
    for value in values:
        carrier = getattr(value, "attributes", None)
        if isinstance(carrier, Mapping) and "traceparent" in carrier:
            texts = {name: str(one) for name, one in carrier.items()}
            context = PROPAGATOR.extract(texts, Context())
            if trace.get_current_span(context).get_span_context().is_valid:
                yield context


def _end_sending(span: trace.Span, future: Any) -> None:
    if not span.is_recording():
        return  # An error of the put has ended it.
    error = asyncio.CancelledError() if future.cancelled() else future.exception()
    if error is not None:
        _fail(span, error)
    result: Any = getattr(error, "results", None) if error else future.result()
    if hasattr(result, "shard_id"):
        span.set_attribute(_SHARD, result.shard_id)
    elif result:
        span.set_attribute(_COUNT, len(result))
    span.end()


def _fail(span: trace.Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))

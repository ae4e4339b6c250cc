"""The spans of programs that trace: what a record carries is the parent of its processing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.processing.processing_support import run_program

if TYPE_CHECKING:
    from tests.integration.processing.processing_support import Orders

_LOOPS = {
    "scan": """
def process(record):
    touch()
    return ScanResult.STOP
scan(properties, process, decode="cloudevents")
""",
    "async": """
async def process(record):
    touch()
    return ScanResult.STOP
scan(properties, process, decode="cloudevents")
""",
    "records": """
with records(properties, decode="cloudevents") as stream:
    for record in stream:
        touch()
        break
""",
    "read": """
async def main():
    async with read(properties, decode="cloudevents") as stream:
        async for record in stream:
            touch()
            break
asyncio.run(main())
""",
}


@pytest.mark.parametrize("face", _LOOPS)
def test_the_trace_of_a_put_goes_on_where_its_record_is_processed(
    orders: Orders, face: str
) -> None:
    printed, _ = run_program(f"""
import asyncio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from kinesis_publishers import BlockingProducer, CloudEvent, ScanResult, read, records, scan

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
tracer = provider.get_tracer("own")

def touch():
    with tracer.start_as_current_span("work"):
        pass

properties = {orders.properties()!r}
put = {{key: one for key, one in properties.items() if "aws" in key or "streams" in key}}
with BlockingProducer.from_properties(put, encode="cloudevents") as producer:
    producer.put(CloudEvent({{"type": "order", "source": "/shop", "id": "7"}}), "a").result()
{_LOOPS[face]}
spans = {{one.name: one for one in exporter.get_finished_spans()}}
print(sorted(spans))
print(len({{one.context.trace_id for name, one in spans.items() if name != "receive orders"}}))
print(spans["work"].parent.span_id == spans["process orders"].context.span_id)
print(spans["process orders"].parent.span_id == spans["send orders"].context.span_id)
""")
    assert printed.splitlines() == [
        "['process orders', 'receive orders', 'send orders', 'work']",
        "1",
        "True",
        "True",
    ]

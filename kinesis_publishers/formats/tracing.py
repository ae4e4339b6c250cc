"""Whether a program traces with OpenTelemetry, which is not imported for one that does not."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_publishers.formats.spans import Tracing

# Only a program that has imported this can have set a provider, or be inside a span.
_API = "opentelemetry.trace"


def open_tracing() -> Tracing | None:
    """Return what makes spans, or ``None`` if the program has not set a tracer provider."""
    if sys.modules.get(_API) is None:
        return None
    from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, get_tracer_provider

    from kinesis_publishers.formats.spans import Tracing

    provider = get_tracer_provider()
    if isinstance(provider, ProxyTracerProvider | NoOpTracerProvider):
        return None
    return Tracing(provider.get_tracer("kinesis_publishers"))


def current_trace() -> Mapping[str, str]:
    """Return ``traceparent``, and perhaps ``tracestate``, of the current span, if there is one."""
    if sys.modules.get(_API) is None:
        return {}
    from kinesis_publishers.formats.spans import PROPAGATOR

    carrier: dict[str, str] = {}
    PROPAGATOR.inject(carrier)
    return carrier

"""Diagnostic events as metrics that Prometheus scrapes: needs the extra ``prometheus``."""

from __future__ import annotations

import asyncio
from threading import Lock
from typing import ClassVar, Self

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, start_http_server

from kinesis_publishers.clock import Clock
from kinesis_publishers.config import MetricsConfig, Properties
from kinesis_publishers.errors import InvalidOptionError
from kinesis_publishers.metrics.open_telemetry import METER_NAME, OpenTelemetryMetrics


class PrometheusMetrics(OpenTelemetryMetrics):
    """Serves the metrics of :class:`OpenTelemetryMetrics` at ``/metrics``.

    Selected by ``metrics.sinks = prometheus``. The readers and producers of a process that name the
    same address share one server, which ends with the last of them.
    """

    def __init__(self, endpoint: _Endpoint, *, is_per_shard: bool) -> None:
        super().__init__(endpoint.meter, is_per_shard=is_per_shard)
        self._endpoint = endpoint

    @classmethod
    def from_properties(cls, properties: Properties, clock: Clock) -> Self:
        """Start to serve; raises ``InvalidOptionError`` if the port cannot be listened on."""
        config = MetricsConfig.from_properties(properties)
        endpoint = _Endpoint.at(config.prometheus_host, config.prometheus_port)
        return cls(endpoint, is_per_shard=config.is_per_shard)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._endpoint.leave)


class _Endpoint:
    """The server of all reporters that name its address."""

    _lock: ClassVar = Lock()
    _by_address: ClassVar[dict[tuple[str, int], _Endpoint]] = {}

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._users = 0
        # Not the global one, which has the metrics of the program.
        registry = CollectorRegistry()
        self._provider = MeterProvider(
            [PrometheusMetricReader(True, scope_info_enabled=False, registry=registry)],
            shutdown_on_exit=False,
        )
        self.meter: Meter = self._provider.get_meter(METER_NAME)
        self._server, self._thread = start_http_server(port, host, registry)

    @classmethod
    def at(cls, host: str, port: int) -> _Endpoint:
        """Return the endpoint at an address, which :meth:`leave` gives back."""
        with cls._lock:
            endpoint = cls._by_address.get((host, port))
            if endpoint is None:
                try:
                    endpoint = cls(host, port)
                except OSError as error:
                    raise InvalidOptionError(
                        f"{MetricsConfig.prometheus_port.full_key}: cannot listen on {host}, port "
                        f"{port} ({error.strerror or error}): choose another port for each process"
                    ) from error
                cls._by_address[host, port] = endpoint
            endpoint._users += 1
            return endpoint

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                del self._by_address[self._address]
                self._server.shutdown()
                self._server.server_close()
                self._thread.join()
                self._provider.shutdown()

"""Diagnostic events as CloudWatch metrics, under the names of the Kinesis Client Library."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from attrs import frozen

from kinesis_publishers.abc import EventReporter
from kinesis_publishers.aws.clients import ServiceAddress, open_client
from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.config import AwsConfig, MetricsConfig
from kinesis_publishers.metrics.cloudwatch_upload import CloudWatchUpload
from kinesis_publishers.metrics.kcl_table import KCL_METRICS
from kinesis_publishers.metrics.periodic import repeated
from kinesis_publishers.metrics.put_metric_data import datum_of
from kinesis_publishers.metrics.statistics import IntervalStatistics

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers.config import Properties
    from kinesis_publishers.events import Event

__all__ = ["CloudWatchMetrics", "CloudWatchSettings"]

_LOGGER = logging.getLogger(__name__)

# Whoever stops reading does not wait any longer than this for the last metrics.
_CLOSE_TIMEOUT_SECONDS = 6.0


@frozen(kw_only=True)
class CloudWatchSettings:
    """How metrics are sent.

    Attributes:
        namespace: the namespace of the metrics; the KCL uses the application's name.
        interval_seconds: how often they are sent.
        is_per_shard: whether they have the dimension ShardId.
    """

    namespace: str
    interval_seconds: float = 60.0
    is_per_shard: bool = True


class CloudWatchMetrics(EventReporter):
    """Adds events up and sends the sums to CloudWatch, in a thread, now and then and at the end.

    Selected by ``metrics.sinks = cloudwatch``; or use it as ``async with CloudWatchMetrics(...) as
    metrics`` and hand ``metrics`` to ``events=``. What could not be sent is kept within a bound and
    sent later. It never stops the reading.

    Args:
        create_client: makes boto3's client for CloudWatch; called once, in the thread.
        settings: namespace, interval and level.
        clock: what the interval is measured with, this machine's unless it is given.
    """

    def __init__(
        self,
        create_client: Callable[[], Any],
        settings: CloudWatchSettings,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._statistics = IntervalStatistics(KCL_METRICS, is_per_shard=settings.is_per_shard)
        self._upload = CloudWatchUpload(create_client, settings.namespace)
        # One thread: what is sent at the end comes behind what is being sent.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="cloudwatch-metrics")
        self._repeating = AsyncExitStack()

    @classmethod
    def from_properties(cls, properties: Properties, clock: Clock) -> Self:
        config, aws = (
            MetricsConfig.from_properties(properties),
            AwsConfig.from_properties(properties),
        )
        settings = CloudWatchSettings(
            namespace=config.cloudwatch_namespace,
            interval_seconds=config.cloudwatch_interval_seconds,
            is_per_shard=config.is_per_shard,
        )
        address = ServiceAddress(
            service="cloudwatch",
            endpoint_url=config.cloudwatch_endpoint_url,
            connect_timeout_seconds=3.0,
            read_timeout_seconds=5.0,
        )
        return cls(lambda: open_client(aws, address), settings, clock=clock)

    def __call__(self, event: Event) -> None:
        self._statistics.add(event)

    async def __aenter__(self) -> Self:
        await self._repeating.enter_async_context(
            repeated(
                self.flush,
                interval_seconds=self._settings.interval_seconds,
                clock=self._clock,
                name="send metrics to CloudWatch",
            )
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._repeating.aclose()
            async with self._clock.timeout(_CLOSE_TIMEOUT_SECONDS):
                await self.flush()
        except TimeoutError:
            _LOGGER.warning("CloudWatch does not answer: the last metrics may be missing there.")
        finally:
            self._upload.give_up()
            # Behind the call in flight, which has a timeout of its own and is not waited for.
            self._executor.submit(self._upload.close)
            self._executor.shutdown(wait=False)

    async def flush(self) -> None:
        """Send what has been added up now."""
        now = self._clock.now()
        taken = self._statistics.take()
        # Added first: a call that is cancelled before its thread has begun must not lose them.
        self._upload.add([datum_of(series, values, now) for series, values in taken])
        await asyncio.get_running_loop().run_in_executor(self._executor, self._upload.send)

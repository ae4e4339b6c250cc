"""Diagnostic events as CloudWatch metrics, under the names of the KCL and of the KPL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from threading import Event as Flag
from typing import Any, Final, Self

from attrs import frozen

from kinesis_publishers.abc import EventReporter
from kinesis_publishers.aws.clients import open_client
from kinesis_publishers.aws.errors import mapped_errors
from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.config import AwsConfig, MetricsConfig, Properties
from kinesis_publishers.errors import InvalidArgumentError, ServiceError
from kinesis_publishers.events import Event
from kinesis_publishers.metrics.cloudwatch_table import KCL_METRICS, KPL_METRICS
from kinesis_publishers.metrics.metric import Metric, MetricTable, stream_of
from kinesis_publishers.metrics.sinks import repeated
from kinesis_publishers.model import ShardKey

_LOGGER = logging.getLogger(__name__)

#: The maximum number of data that are kept for the next call, as in the KCL.
MAX_UNSENT_DATA: Final = 10_000
#: The maximum number of data in a request. CloudWatch takes 1,000 and 1 MB; this many have less, in
#: any protocol and with the longest names.
MAX_DATA: Final = 300

_METRICS: Final = MetricTable((*KCL_METRICS.metrics, *KPL_METRICS.metrics))
_NOT_SENT: Final = (
    "Metrics could not be sent to CloudWatch: %s; up to %d data are kept and sent with the next "
    "ones. This needs the permission cloudwatch:PutMetricData and a route to the endpoint."
)


# How long the end of a reading waits for the last metrics.
_CLOSE_TIMEOUT_SECONDS = 6.0


@frozen(kw_only=True)
class CloudWatchSettings:
    """How metrics are sent: to which ``namespace``, and whether with the dimension ShardId."""

    namespace: str
    interval_seconds: float = 60.0
    is_per_shard: bool = True


class CloudWatchMetrics(EventReporter):
    """Adds events up and sends the sums to CloudWatch, in a thread, periodically and at the end.

    Selected by ``metrics.sinks = cloudwatch``; or use it as ``async with CloudWatchMetrics(...) as
    metrics`` and pass ``metrics`` to ``events=``. Data that could not be sent are kept within a
    bound and sent later. ``create_client`` makes a client of botocore or boto3, in the thread.
    Failures are logged, never raised: metrics must not stop the reading.
    """

    def __init__(
        self,
        create_client: Callable[[], Any],
        settings: CloudWatchSettings,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._statistics = IntervalStatistics(_METRICS, is_per_shard=settings.is_per_shard)
        self._create_client = create_client
        self._namespace = settings.namespace
        self._sending = repeated(
            self.flush, settings.interval_seconds, self._clock, name="send metrics to CloudWatch"
        )
        self._gives_up = Flag()
        # One thread: the last metrics follow those being sent. It alone uses what follows.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="cloudwatch-metrics")
        self._client: Any = None
        self._unsent: list[dict[str, Any]] = []
        self._is_failing = False

    @classmethod
    def from_properties(cls, properties: Properties, clock: Clock) -> Self:
        config = MetricsConfig.from_properties(properties)
        aws = AwsConfig.from_properties(properties)
        settings = CloudWatchSettings(
            namespace=config.cloudwatch_namespace,
            interval_seconds=config.cloudwatch_interval_seconds,
            is_per_shard=config.is_per_shard,
        )
        url = config.cloudwatch_endpoint_url
        create = partial(open_client, aws, "cloudwatch", url, connect_timeout=3.0, read_timeout=5.0)
        return cls(create, settings, clock=clock)

    def __call__(self, event: Event) -> None:
        self._statistics.add(event)

    async def __aenter__(self) -> Self:
        await self._sending.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._sending.__aexit__(None, None, None)
            async with self._clock.timeout(_CLOSE_TIMEOUT_SECONDS):
                await self.flush()
        except TimeoutError:
            _LOGGER.warning("CloudWatch does not answer: the last metrics may be missing there.")
        finally:
            self._gives_up.set()
            # After the call in flight, which has its own timeout and is not waited for.
            self._executor.submit(self._close)
            self._executor.shutdown(wait=False)

    async def flush(self) -> None:
        data = self._statistics.take(self._clock.now())
        sending = self._executor.submit(self.send, data)
        # A call that is cancelled before its thread has begun must not lose them.
        await asyncio.shield(asyncio.wrap_future(sending))

    def send(self, data: list[dict[str, Any]]) -> None:
        """Send ``data``, after what could not be sent before; keep what fails. This blocks."""
        if (excess := len(self._unsent) - MAX_UNSENT_DATA) > 0:
            del self._unsent[:excess]
            _LOGGER.warning(
                "The %d oldest metric data were dropped: CloudWatch has taken none for too long.",
                excess,
            )
        self._unsent += data
        is_taken = False
        while self._unsent and not self._gives_up.is_set():
            request = self._unsent[:MAX_DATA]
            try:
                self._put(request)
                is_taken = True
            except InvalidArgumentError as error:
                # It would be refused again, and block everything after it.
                _LOGGER.warning(
                    "CloudWatch refuses %d metric data for good; they are dropped: %s",
                    len(request),
                    error,
                )
            except Exception as error:
                # The class that provides credentials may be the user's own, and raise anything.
                trace = None if isinstance(error, ServiceError) else error
                # One warning when it begins to fail, not one each minute.
                level = logging.DEBUG if self._is_failing else logging.WARNING
                self._is_failing = True
                _LOGGER.log(level, _NOT_SENT, error, MAX_UNSENT_DATA, exc_info=trace)
                return
            del self._unsent[: len(request)]
        if self._is_failing and is_taken:
            self._is_failing = False
            _LOGGER.info("CloudWatch takes metrics again.")

    def _put(self, request: list[dict[str, Any]]) -> None:
        where, client = self._namespace, self._client
        with mapped_errors("PutMetricData", where, service="cloudwatch", client=client):
            if self._client is None:
                self._client = self._create_client()
            self._client.put_metric_data(Namespace=self._namespace, MetricData=request)

    def _close(self) -> None:
        if self._unsent:
            _LOGGER.warning("%d metric data were not sent to CloudWatch.", len(self._unsent))
        if self._client is not None:
            self._client.close()


# The one metric that has the code of an error as a dimension.
_BY_CODE = "ErrorsByCode"
_SUMS = ("SampleCount", "Sum", "Minimum", "Maximum")


class IntervalStatistics:
    """Adds up what events measure, by metric and shard (or stream), until the sums are taken.

    The sums are data for PutMetricData, with the dimensions of the KCL or of the KPL.
    """

    def __init__(self, table: MetricTable, *, is_per_shard: bool) -> None:
        self._table = table
        self._is_per_shard = is_per_shard
        # By shard or stream and query, and then by the metric's name.
        self._found: dict[object, dict[str, tuple[dict[str, Any], list[float]]]] = {}

    def add(self, event: Event) -> None:
        measured = self._table.measured_by(event)
        if not measured:
            return
        shard: ShardKey | None = getattr(event, "shard", None)
        place = shard if shard is not None and self._is_per_shard else stream_of(event)
        query: str | None = getattr(event, "query", None)
        owner = place if query is None else (place, query)
        found = self._found.get(owner)
        if found is None:
            found = self._found[owner] = {}
        for metric, value in measured:
            name, code = metric.name, None
            if name == _BY_CODE:
                code = event.code  # type: ignore[attr-defined]
                name = f"{name}/{code}"
            if name in found:
                _add_to(found[name][1], value)
            else:
                datum = _datum_of(metric, event, place, code)
                found[name] = datum, [1, value, value, value]

    def take(self, now: datetime) -> list[dict[str, Any]]:
        """Return the sums since the last call, as of ``now``, and start over."""
        found, self._found = self._found, {}
        data = []
        for datum, sums in (one for of_owner in found.values() for one in of_owner.values()):
            values = dict(zip(_SUMS, map(float, sums), strict=True))
            data.append({**datum, "Timestamp": now, "StatisticValues": values})
        return data


def _datum_of(
    metric: Metric, event: Event, place: ShardKey | str | None, code: str | None
) -> dict[str, Any]:
    task = metric.kcl_task
    named = (
        ("Operation", task),
        ("StreamName" if task is None else "StreamId", stream_of(event)),
        ("ShardId", place.shard_id if isinstance(place, ShardKey) else None),
        ("Query", getattr(event, "query", None)),
        ("ErrorCode", code),
    )
    return {
        "MetricName": metric.name,
        "Dimensions": [{"Name": name, "Value": one} for name, one in named if one],
        "Unit": metric.unit,
    }


def _add_to(sums: list[float], value: float) -> None:
    sums[0] += 1
    sums[1] += value
    # Not min() and max(): this runs a dozen times for each answer.
    if value < sums[2]:
        sums[2] = value
    elif value > sums[3]:
        sums[3] = value

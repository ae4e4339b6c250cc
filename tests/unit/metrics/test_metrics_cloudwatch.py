"""Events as CloudWatch metrics, read back from a server; and servers that refuse them."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from attrs import define, field
from botocore.config import Config
from botocore.exceptions import ClientError

from kinesis_publishers import Properties, SystemClock
from kinesis_publishers.events import QueryLagMeasured, RecordsRefused
from kinesis_publishers.metrics.cloudwatch import (
    MAX_DATA,
    MAX_UNSENT_DATA,
    CloudWatchMetrics,
    CloudWatchSettings,
)
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.metrics.metric_support import ONE, PROCESSED, ZERO, fetched

if TYPE_CHECKING:
    from collections.abc import Iterator

_MODULE = "kinesis_publishers.metrics.cloudwatch"
_DATUM = {"MetricName": "m", "Dimensions": []}


def _client(url: str) -> Any:
    return boto3.client(
        "cloudwatch",
        "eu-west-1",
        endpoint_url=url,
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(retries={"total_max_attempts": 1}),
    )


def _metrics(url: str, namespace: str, **options: str) -> CloudWatchMetrics:
    keys = {"namespace": namespace, "endpoint": url}
    properties = Properties.parse(
        {
            "aws.region": "eu-west-1",
            "aws.credentials.provider.basic.accesskeyid": "local",
            "aws.credentials.provider.basic.secretkey": "local",
            **{f"kinesis.metrics.cloudwatch.{key}": value for key, value in keys.items()},
            **options,
        },
        complete=False,
    )
    return CloudWatchMetrics.from_properties(properties, SystemClock())


def _total(url: str, namespace: str, name: str) -> dict[str, Any]:
    """Return the statistics of a metric of shard 0 of the stream orders."""
    client, now = _client(url), datetime.now(UTC)
    try:
        points = client.get_metric_statistics(
            Namespace=namespace,
            MetricName=name,
            Dimensions=[
                {"Name": "Operation", "Value": "ProcessTask"},
                {"Name": "StreamId", "Value": "orders"},
                {"Name": "ShardId", "Value": ZERO.shard_id},
            ],
            StartTime=now - timedelta(hours=1),
            EndTime=now + timedelta(hours=1),
            Period=7200,
            Statistics=["Sum", "SampleCount", "Maximum"],
        )["Datapoints"]
    finally:
        client.close()
    return {
        "sum": sum(one["Sum"] for one in points),
        "count": sum(one["SampleCount"] for one in points),
        "maximum": max((one["Maximum"] for one in points), default=None),
    }


async def test_what_is_left_at_the_end_is_sent_under_the_names_of_the_kcl(moto_url: str) -> None:
    async with _metrics(moto_url, "at-the-end") as metrics:
        for _ in range(3):
            metrics(PROCESSED)
        metrics(fetched(shard=ONE))
    found = await asyncio.to_thread(_total, moto_url, "at-the-end", "RecordsProcessed")
    assert found == {"sum": 135.0, "count": 3.0, "maximum": 45.0}


async def test_by_stream_there_is_no_dimension_for_shards(moto_url: str) -> None:
    async with _metrics(moto_url, "streams", **{"kinesis.metrics.level": "stream"}) as metrics:
        metrics(fetched(shard=ZERO))
        metrics(fetched(shard=ONE))
        lag = {"seconds": 1.0, "millis_behind_latest": 1}
        metrics(QueryLagMeasured(shard=ONE, query="totals", **lag))
    client = _client(moto_url)
    listed = await asyncio.to_thread(client.list_metrics, Namespace="streams")
    client.close()
    of_lag = [one for one in listed["Metrics"] if one["MetricName"] == "MillisBehindLatest"]
    dimensions = [[one["Name"] for one in metric["Dimensions"]] for metric in of_lag]
    assert sorted(dimensions) == [["Operation", "StreamId"], ["Operation", "StreamId", "Query"]]


async def test_writing_has_the_dimensions_of_the_kpl(moto_url: str) -> None:
    async with _metrics(moto_url, "writing") as metrics:
        for code in ("Throttled", "InternalFailure"):
            metrics(RecordsRefused(shard=ZERO, code=code, entries=1))
    client = _client(moto_url)
    listed = await asyncio.to_thread(client.list_metrics, Namespace="writing")
    client.close()
    found = {
        (metric["MetricName"], *((one["Name"], one["Value"]) for one in metric["Dimensions"]))
        for metric in listed["Metrics"]
    }
    place = (("StreamName", "orders"), ("ShardId", ZERO.shard_id))
    assert found == {
        ("AllErrors", *place),
        ("ErrorsByCode", *place, ("ErrorCode", "InternalFailure")),
        ("ErrorsByCode", *place, ("ErrorCode", "Throttled")),
    }


async def test_metrics_are_sent_each_time_the_interval_has_passed() -> None:
    service, clock = Service(), ManualClock()
    settings = CloudWatchSettings(namespace="n", interval_seconds=60.0)
    async with CloudWatchMetrics(lambda: service, settings, clock=clock) as metrics:
        metrics(PROCESSED)
        await clock.advance(59.0)
        assert service.requests == []
        await clock.advance(1.0)
        await asyncio.to_thread(service.has_been_called.wait, 10)
        assert {one["Timestamp"] for one in service.requests[0]} == {clock.now()}
    # Nothing has happened since.
    assert len(service.requests) == 1


def _error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "PutMetricData")


@define(eq=False)
class Service:
    """Stands for the client: what CloudWatch would take is noted, or refused."""

    errors: list[Exception | None] = field(factory=list)
    requests: list[list[dict[str, Any]]] = field(factory=list)
    has_been_called: threading.Event = field(factory=threading.Event)

    def put_metric_data(self, *, Namespace: str, MetricData: list[dict[str, Any]]) -> None:
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        self.requests.append(MetricData)
        self.has_been_called.set()

    def close(self) -> None:
        pass

    @property
    def names(self) -> list[str]:
        return [one["MetricName"] for request in self.requests for one in request]


def _metrics_to(service: Service) -> CloudWatchMetrics:
    return CloudWatchMetrics(lambda: service, CloudWatchSettings(namespace="namespace"))


async def _thread_has_ended() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("cloudwatch-metrics"):
            await asyncio.to_thread(thread.join)


def _send(metrics: CloudWatchMetrics, *names: str) -> None:
    metrics.send([{**_DATUM, "MetricName": name} for name in names])


@pytest.mark.parametrize(
    "error", [_error("Throttling"), OSError("no route"), _error("AccessDenied")]
)
def test_what_could_not_be_sent_is_sent_with_the_next_ones(error: Exception) -> None:
    service = Service(errors=[error])
    metrics = _metrics_to(service)
    _send(metrics, "first")
    _send(metrics, "second")
    assert service.names == ["first", "second"]


def test_a_service_that_is_down_is_warned_of_once_and_so_is_its_return(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service(errors=[_error("ServiceUnavailable")] * 3)
    metrics = _metrics_to(service)
    with caplog.at_level(logging.INFO, _MODULE):
        for _ in range(4):
            _send(metrics, "m")
    assert [one.levelno for one in caplog.records] == [logging.WARNING, logging.INFO]
    assert "cloudwatch:PutMetricData" in caplog.text


def test_data_that_cloudwatch_refuses_for_what_they_are_do_not_block_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service(errors=[_error("InvalidParameterValue")])
    metrics = _metrics_to(service)
    _send(metrics, "bad")
    _send(metrics, "good")
    assert service.names == ["good"]
    assert "refuses 1 metric data for good" in caplog.text


def test_a_refusal_for_good_is_not_the_return_of_the_service(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service(errors=[_error("ServiceUnavailable"), _error("ValidationError")])
    metrics = _metrics_to(service)
    with caplog.at_level(logging.INFO, _MODULE):
        _send(metrics, "dropped")
        metrics.send([])
        assert "again" not in caplog.records[-1].getMessage()
        _send(metrics, "taken")
    assert caplog.messages[-1] == "CloudWatch takes metrics again."


def test_memory_is_bounded_while_cloudwatch_takes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service(errors=[OSError("down")] * 3)
    metrics = _metrics_to(service)
    _send(metrics, *["old"] * 5)
    _send(metrics, *["kept"] * MAX_UNSENT_DATA)
    _send(metrics, "new")
    _send(metrics, "newest")
    assert service.names == [*["kept"] * (MAX_UNSENT_DATA - 1), "new", "newest"]
    dropped = [one.args[0] for one in caplog.records if "were dropped" in one.getMessage()]
    assert dropped == [5, 1]


def test_many_data_are_cut_into_requests_that_cloudwatch_takes() -> None:
    service = Service()
    names = [str(number) for number in range(2 * MAX_DATA + 1)]
    _send(_metrics_to(service), *names)
    assert service.names == names
    assert [len(request) for request in service.requests] == [MAX_DATA, MAX_DATA, 1]


async def test_after_the_end_no_further_call_is_made_and_what_is_missing_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service(errors=[OSError("down")])
    async with _metrics_to(service) as metrics:
        _send(metrics, "m", "n")
    await _thread_has_ended()
    assert "2 metric data were not sent" not in caplog.text, "they were sent at the end"
    _send(metrics, "o")
    assert service.names == ["m", "n"]


async def test_what_could_not_be_sent_by_the_end_is_told(caplog: pytest.LogCaptureFixture) -> None:
    service = Service(errors=[OSError("down")] * 2)
    async with _metrics_to(service) as metrics:
        _send(metrics, "m", "n")
    await _thread_has_ended()
    assert service.requests == []
    assert "2 metric data were not sent" in caplog.text


@contextmanager
def _silent_server() -> Iterator[tuple[str, threading.Event]]:
    """Serve requests that are not answered before the event is set."""
    may_answer = threading.Event()

    class Silent(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            may_answer.wait(30)
            self.send_response(500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", may_answer
        finally:
            may_answer.set()
            server.shutdown()
            thread.join()


async def test_the_end_is_not_held_up_by_a_service_that_does_not_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, settings = ManualClock(), CloudWatchSettings(namespace="n")
    with _silent_server() as (url, may_answer):
        metrics = CloudWatchMetrics(lambda: _client(url), settings, clock=clock)
        await metrics.__aenter__()
        metrics(PROCESSED)
        closing = asyncio.create_task(metrics.__aexit__(None, None, None))
        await clock.advance(5.9)
        assert not closing.done()
        await clock.advance(0.2)
        await closing
        may_answer.set()
        await _thread_has_ended()
    assert "CloudWatch does not answer" in caplog.text

"""Services differ in their ARNs and in what they have; what reads them asks for it."""

from __future__ import annotations

import pytest

from kinesis_publishers.config import Properties
from kinesis_publishers.config.sections.source import built_in_publisher, selected_source
from kinesis_publishers.engine.data_loss import DataLossGuard
from kinesis_publishers.events import Event
from kinesis_publishers.model import Shard, ShardKey, StreamSummary
from kinesis_publishers.model.sources import (
    EFO,
    KINESIS,
    POLLING,
    Source,
    consumer_name_of,
    region_of,
    source_of,
    stream_arn_of,
    stream_name_of,
)
from kinesis_publishers.testing import ManualClock

_KINESIS_ARN = "arn:aws-cn:kinesis:cn-north-1:123456789012:stream/orders"
_TABLE_ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders/stream/2026-01-01T00:00:00.000"
_TABLES = Source(
    arn_pattern=r"arn:aws:dynamodb:(?P<region>[a-z0-9-]+):[0-9]{12}:table/"
    r"(?P<name>[a-zA-Z0-9_.-]+)/stream/[0-9T:.-]+",
    arn_form="arn:aws:dynamodb:<region>:<account>:table/<name>/stream/<label>",
    control_plane="",
    data_plane="",
    publishers=(POLLING,),
    has_hash_keys=False,
)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a service whose streams have names inside their ARNs, and no hash keys."""
    monkeypatch.setattr("kinesis_publishers.model.sources.SOURCES", (KINESIS, _TABLES))


def test_the_arn_of_a_stream_says_its_service_region_and_name() -> None:
    assert source_of(_KINESIS_ARN) is KINESIS
    assert region_of(_KINESIS_ARN) == "cn-north-1"
    assert stream_name_of(_KINESIS_ARN) == "orders"
    assert ShardKey(_KINESIS_ARN, "shardId-000000000000").stream_name == "orders"


@pytest.mark.parametrize("text", [None, "", "orders", f"{_KINESIS_ARN}/consumer/app:1"])
def test_what_is_no_arn_of_a_stream_has_no_service(text: str | None) -> None:
    assert source_of(text) is None


def test_the_arn_of_a_consumer_has_that_of_its_stream() -> None:
    arn = f"{_KINESIS_ARN}/consumer/app:1700000000"
    assert (stream_arn_of(arn), consumer_name_of(arn)) == (_KINESIS_ARN, "app")
    assert consumer_name_of(_KINESIS_ARN) == ""


@pytest.mark.usefixtures("tables")
def test_the_streams_of_another_service_can_be_named() -> None:
    properties = Properties.parse({"kinesis.streams": _TABLE_ARN})
    assert selected_source(properties) is _TABLES
    assert stream_name_of(_TABLE_ARN) == "orders"
    assert str(Shard(stream_arn=_TABLE_ARN, shard_id="shardId-1")) == "orders/shardId-1"


def test_streams_without_an_arn_are_those_of_kinesis() -> None:
    assert selected_source(Properties.parse({"kinesis.streams": "orders"})) is KINESIS


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(("arn", "reports"), [(_KINESIS_ARN, 1), (_TABLE_ARN, 0)])
def test_only_a_service_with_hash_keys_can_lack_some(arn: str, reports: int) -> None:
    async def describe(_: str) -> StreamSummary:
        raise AssertionError("no stream is described")

    events: list[Event] = []
    guard = DataLossGuard(fail=False, events=events.append, clock=ManualClock(), describe=describe)
    for look in range(5):
        guard.audit(arn, (), look * 120.0)
    assert len(events) == reports


@pytest.mark.parametrize(
    ("name", "known"), [("polling", POLLING), ("EFO", EFO), ("mine:Publisher", None)]
)
def test_only_a_built_in_publisher_is_known_before_it_is_loaded(name: str, known: object) -> None:
    values = {
        "kinesis.streams": "orders",
        "kinesis.stream.recordpublisher": name,
        "kinesis.stream.efo.consumername": "app",
    }
    assert built_in_publisher(Properties.parse(values)) is known

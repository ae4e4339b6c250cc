"""``read_table``: which records, in which order, and the types of their columns."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars
import pyarrow as pa
import pytest

from kinesis_publishers import DeadLetter, RetryOnError, StopOnError, read_table
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.config import Properties
from kinesis_publishers.errors import ConfigError
from tests.integration.processing.processing_support import STREAM

if TYPE_CHECKING:
    from tests.integration.processing.processing_support import Orders


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A local record is visible at once: nobody waits for it after the end."""
    monkeypatch.setattr("kinesis_publishers.engine.ending.VISIBLE_AFTER", timedelta(0))


@pytest.fixture
def properties(orders: Orders) -> dict[str, str]:
    return {
        **orders.server.properties(STREAM),
        "kinesis.shard.getrecords.intervalmillis": "20",
    }


def numbers(table: pa.Table) -> list[int]:
    return [int(data.as_py()) for data in table["data"]]


def put_values(orders: Orders, *values: Any) -> None:
    records = [(f"key-{n}", json.dumps(one).encode()) for n, one in enumerate(values)]
    orders.server.put_many(STREAM, records)


def test_a_table_has_everything_that_is_in_the_stream(
    orders: Orders, properties: dict[str, str]
) -> None:
    expected = orders.put(50)
    orders.server.reshard(STREAM, 1)
    expected += orders.put(10, key="one shard", is_aggregated=True)
    table = read_table(properties)
    assert sorted(numbers(table)) == expected
    arrivals = table["approximate_arrival_timestamp"].to_pylist()
    assert arrivals == sorted(arrivals)
    # They have one time of arrival.
    assert numbers(table)[-10:] == expected[-10:]


def test_the_columns_have_real_types_in_every_library(
    orders: Orders, properties: dict[str, str]
) -> None:
    orders.put(3)
    table = read_table(properties)
    assert table.schema.field("approximate_arrival_timestamp").type == pa.timestamp("us", "UTC")
    assert table.schema.field("data").type == pa.binary()
    assert str(table.to_pandas()["approximate_arrival_timestamp"].dtype) == "datetime64[us, UTC]"
    frame = polars.from_arrow(table)
    assert isinstance(frame, polars.DataFrame)
    assert frame.schema["approximate_arrival_timestamp"] == polars.Datetime("us", "UTC")
    assert frame.schema["data"] == polars.Binary


def test_the_fields_of_decoded_values_are_columns(
    orders: Orders, properties: dict[str, str]
) -> None:
    put_values(orders, {"id": 1, "price": 2.5}, {"id": 2, "tags": ["a"]})
    table = read_table(properties, decode="json").sort_by("id")
    assert {*table.column_names[-3:]} == {"id", "price", "tags"}
    assert "data" not in table.column_names
    types = [table.schema.field(name).type for name in ("id", "price", "tags")]
    assert types == [pa.int64(), pa.float64(), pa.list_(pa.string())]
    assert table.select(["id", "price", "tags"]).to_pylist() == [
        {"id": 1, "price": 2.5, "tags": None},
        {"id": 2, "price": None, "tags": ["a"]},
    ]


def test_other_values_are_one_column(orders: Orders, properties: dict[str, str]) -> None:
    put_values(orders, 7)
    assert read_table(properties, decode="json")["value"].to_pylist() == [7]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((7, "seven"), r"the values do not make a column: record \d+ of orders/.* has 'seven'"),
        (({"id": 7}, {"id": "x"}), r"the field 'id' does not .*: record \d+ of orders/.* has 'x'"),
        (({"n": 0}, {"id": 2**63}), f"the field 'id' does not make a column: .* has {2**63}"),
        (
            ({"id": 2**53 + 1}, {"id": 0.5}),
            "the field 'id' does not .* has 0.5, .*9007199254740993",
        ),
        (({"id": 7}, 7), "the values do not make a column: .* has 7"),
        ((2**80,), f"the values do not make a column: .* has {2**80}"),
        (({"shard_id": 7},), "a value has the field 'shard_id', which is a column of each table"),
    ],
)
def test_values_that_make_no_table_are_an_error(
    orders: Orders, properties: dict[str, str], values: tuple[Any, ...], message: str
) -> None:
    for value in values:
        put_values(orders, value)
    with pytest.raises(ValueError, match=message):
        read_table(properties, decode="json")


def test_an_error_of_a_decoder_names_the_record(orders: Orders, properties: dict[str, str]) -> None:
    orders.server.put_many(STREAM, [("key", b"oops")])
    with pytest.raises(ValueError, match="unexpected") as caught:
        read_table(properties, decode="json")
    assert "by decode for record" in caught.value.__notes__[0]


def test_what_is_put_aside_is_not_in_the_table(orders: Orders, properties: dict[str, str]) -> None:
    put_values(orders, 1, 2)
    orders.server.put_many(STREAM, [("key", b"oops")])
    letters: list[tuple[Any, Exception]] = []
    on_error = DeadLetter(lambda *letter: letters.append(letter))
    table = read_table(properties, decode="json", on_error=on_error)
    assert sorted(table["value"].to_pylist()) == [1, 2]
    ((record, error),) = letters
    assert (record.data, record.partition_key, str(error)[:10]) == (b"oops", "key", "unexpected")
    assert record.arrival_epoch_seconds > 1e9
    assert read_table(properties, decode=str.upper, on_error=on_error).num_rows == 0
    assert len(letters) == 4

    async def put(*_: Any) -> None: ...

    with pytest.raises(TypeError, match=r"put of DeadLetter for record \d+ of orders/.* returned"):
        read_table(properties, decode="json", on_error=DeadLetter(lambda *one: put(*one)))


@pytest.mark.parametrize("windows", [(), (0.0,), (0.05, 3600.0)])
def test_the_last_records_are_the_most_recent_ones_of_all_shards(
    orders: Orders,
    properties: dict[str, str],
    windows: tuple[float, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "kinesis_publishers.processing.tables._WINDOWS",
        [timedelta(seconds=seconds) for seconds in windows],
    )
    orders.put(30)
    asyncio.run(SystemClock().sleep(0.1))
    newest = orders.put(20)
    assert sorted(numbers(read_table(properties, last=20))) == newest
    assert sorted(numbers(read_table(properties, last=1000))) == list(range(50))
    assert len(read_table(properties, last=7)) == 7
    later = SystemClock().now() + timedelta(milliseconds=1)
    assert len(read_table(properties, last=7, start=later - timedelta(days=1), end=later)) == 7


def test_of_the_last_records_no_more_are_kept_than_may_be_among_them(
    orders: Orders, properties: dict[str, str], page_by_page: None
) -> None:
    orders.put(500, key="one shard")
    table = read_table(properties, last=5, limit=20, shard_getrecords_maxrecordcount=10)
    assert numbers(table) == list(range(495, 500))


def test_more_than_the_limit_is_an_error_and_not_a_part(
    orders: Orders, properties: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    orders.put(11)
    assert len(read_table(properties, limit=11)) == 11
    for limit in ({"limit": 10}, {"limit_bytes": 10}):
        with pytest.raises(ConfigError, match=r"orders has more than limit=.* raise the limit"):
            read_table(properties, **limit)
    assert not caplog.records


def test_a_table_of_nothing_has_the_columns(properties: dict[str, str]) -> None:
    table = read_table(properties, end=datetime(2020, 1, 1, tzinfo=UTC))
    assert (table.num_rows, table.column_names[0]) == (0, "data")
    assert read_table(properties, last=3, decode="json").num_rows == 0


@pytest.mark.parametrize("is_parsed", [False, True])
def test_the_properties_of_an_application_are_read_without_its_progress(
    orders: Orders, properties: dict[str, str], tmp_path: Path, is_parsed: bool
) -> None:
    expected = orders.put(3)
    path = tmp_path / "checkpoints"
    properties |= {
        "kinesis.checkpoint.application": "billing",
        "kinesis.checkpoint.sqlite.path": str(path),
        "kinesis.lease.enabled": "true",
        "kinesis.shard.assigner": "LEASES",
        "kinesis.stream.recordpublisher": "EFO",
        "kinesis.stream.efo.consumername": "billing",
    }
    given = Properties.parse(properties) if is_parsed else properties
    assert sorted(numbers(read_table(given, end="LATEST"))) == expected
    assert not path.exists()
    # A subscription would end that of the application.
    assert not orders.server.calls("SubscribeToShard")


async def test_a_table_is_read_where_an_event_loop_runs(
    orders: Orders, properties: dict[str, str]
) -> None:
    orders.put(3)
    assert read_table(properties).num_rows == 3


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"application": "billing"}, ConfigError, "application: read_table records no progress"),
        ({"start": "-1h", "end": "-2h"}, ConfigError, "start .* is later than end"),
        ({"on_error": RetryOnError()}, TypeError, "RetryOnError has nothing to repeat"),
        ({"on_error": StopOnError()}, ValueError, "on_error is for decode, and there is none"),
        ({"last": 0}, ValueError, "last must be at least 1, not 0"),
        ({"limit": 0}, ValueError, "limit must be at least 1, not 0"),
        ({"decode": "xml"}, ValueError, "decode='xml': expected one of"),
    ],
)
def test_what_cannot_work_is_refused_before_any_call(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_table(stream="orders", **options)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'kinesis-publishers\[arrow\]'"):
        read_table(stream="orders")

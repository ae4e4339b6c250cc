"""The live table of tail: what it counts, and what it shows."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Console

from kinesis_publishers import SequenceNumber, ShardKey, StartingPosition
from kinesis_publishers.cli.tail.table import Meter, Rate, ShardRow, describe_position, render_tail

_ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"


def row(shard: int, *, state: str = "reading", stream_arn: str = _ARN) -> ShardRow:
    return ShardRow(
        key=ShardKey(stream_arn, f"shardId-{shard:012}"),
        state=state,
        records=1_234_567,
        rate=Rate(1500.0, 1536.0),
        millis_behind_latest=None if state == "ended" else 1000 * shard,
        position="4" * 56,
    )


def drawn(*rows: ShardRow, newest: tuple[str, ...] = (), width: int = 80) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(render_tail(rows, newest))
    return capture.get().splitlines()


def test_a_rate_is_that_of_the_last_ten_seconds() -> None:
    meter = Meter(100.0)
    meter.count(1000, 5000, now=105.0)
    assert meter.rate(110.0) == Rate(100.0, 500.0)
    meter.count(10, 20, now=114.0)
    assert meter.rate(115.0) == Rate(1.0, 2.0)
    assert (meter.records, meter.payload_bytes) == (1010, 5020)
    assert meter.rate(200.0) == Rate(0.0, 0.0)


def test_a_rate_at_the_beginning_is_that_since_the_beginning() -> None:
    meter = Meter(100.0)
    meter.count(100, 100, now=100.1)
    assert meter.rate(100.1) == Rate(100.0, 100.0)
    assert meter.rate(104.0) == Rate(25.0, 25.0)


def test_shards_that_have_ended_stand_last() -> None:
    lines = drawn(row(0, state="ended"), row(1), row(2))
    shards = [line.split()[0] for line in lines if "shardId" in line]
    assert shards == ["shardId-000000000001", "shardId-000000000002", "shardId-000000000000"]


def test_the_last_line_sums_up_and_names_the_largest_distance() -> None:
    (total,) = [line.split() for line in drawn(row(1), row(2)) if "2 shards" in line]
    assert total == ["2", "shards", "2,469,134", "3,000", "3.0", "KiB", "2.0", "s"]


def test_all_but_the_position_fits_in_eighty_columns() -> None:
    (line,) = [line for line in drawn(row(1)) if "shardId" in line]
    assert "reading  1,234,567      1,500  1.5 KiB   1.0 s  44444" in line
    assert line.rstrip().endswith("…")


def test_streams_are_named_if_there_are_several() -> None:
    lines = drawn(row(1), row(1, stream_arn=f"{_ARN}-2"))
    assert [line.split()[0] for line in lines if "shardId" in line] == [
        "orders/shardId-000000000001",
        "orders-2/shardId-000000000001",
    ]


def test_a_newest_record_is_one_line_below_the_table() -> None:
    lines = drawn(row(1), newest=("[bold]x" * 100, "y"))
    assert lines[-2].startswith("[bold]x[bold]x")
    assert lines[-1].rstrip() == "y"


def test_before_shards_are_found_it_says_so() -> None:
    assert drawn() == ["Looking for shards ..."]


def test_a_position_is_a_record_an_instant_or_an_end_of_the_shard() -> None:
    instant = datetime(2026, 11, 22, tzinfo=UTC)
    positions = (
        StartingPosition.after(SequenceNumber("7")),
        StartingPosition.at_timestamp(instant),
        StartingPosition.trim_horizon(),
    )
    assert [describe_position(one) for one in positions] == [
        "7",
        "2026-11-22T00:00:00.000000Z",
        "TRIM_HORIZON",
    ]

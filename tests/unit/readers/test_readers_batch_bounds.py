"""Between which positions a batch is read: defaults, contradictions, and what filters leave."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kinesis_publishers import Properties, SequenceNumber, ShardKey, StartingPosition
from kinesis_publishers.model import Positions
from kinesis_publishers.readers.bounded_read import BatchBounds, Narrowing

_LOADED_AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)
_ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
_SHARD, _OTHER = ShardKey(_ARN, "shardId-000000000000"), ShardKey(_ARN, "shardId-000000000001")


def at(minutes: float) -> StartingPosition:
    return StartingPosition.at_timestamp(_LOADED_AT + minutes * _MINUTE)


def bounds(**options: object) -> BatchBounds:
    values = {f"kinesis.stream.{key.replace('_', '.')}": str(one) for key, one in options.items()}
    properties = Properties.parse({"kinesis.streams": "orders", **values})
    return BatchBounds.from_properties(properties, loaded_at=_LOADED_AT)


def instant(minutes: float) -> float:
    return (_LOADED_AT + minutes * _MINUTE).timestamp()


def one_shard(kind: str, marker: object = "", shard: ShardKey = _SHARD) -> str:
    return f'{{"{shard.shard_id}": {{"iteratorType": "{kind}", "iteratorPosition": "{marker}"}}}}'


def test_a_batch_is_everything_that_was_there_when_it_was_loaded() -> None:
    assert bounds() == BatchBounds(
        starts=Positions(StartingPosition.trim_horizon()), ends=Positions(at(0))
    )


def test_what_arrived_in_the_millisecond_of_loading_is_part_of_the_batch() -> None:
    properties = Properties.parse({"kinesis.streams": "orders"})
    loaded_at = _LOADED_AT + timedelta(microseconds=1)
    read = BatchBounds.from_properties(properties, loaded_at=loaded_at)
    assert read.ends.default.timestamp == _LOADED_AT + timedelta(milliseconds=1)


def test_relative_times_count_from_the_instant_of_loading() -> None:
    read = bounds(initpos="-2m", endpos="-60s")
    assert read == BatchBounds(starts=Positions(at(-2)), ends=Positions(at(-1)))


def test_an_end_in_the_future_is_the_instant_of_loading() -> None:
    assert bounds(endpos="AT_TIMESTAMP", endpos_timestamp=instant(5)).ends.default == at(0)
    number = int(instant(5) * 1000)
    assert bounds(endpos_shards=one_shard("AT_TIMESTAMP", number)).ends.of(_SHARD) == at(0)


def test_single_shards_have_their_own_positions() -> None:
    both = bounds(
        initpos_shards=one_shard("AFTER_SEQUENCE_NUMBER", 5),
        endpos_shards=one_shard("SHARD_END", shard=_OTHER),
    )
    assert both.starts.of(_SHARD) == StartingPosition.after(SequenceNumber("5"))
    assert both.ends.of(_SHARD) == at(0)
    assert both.starts.of(_OTHER) == StartingPosition.trim_horizon()
    assert both.ends.of(_OTHER) is None
    assert both.named_shards(_ARN) == {_SHARD.shard_id, _OTHER.shard_id}
    assert both.listed_since(_ARN) is None
    late = {"initpos": "AT_TIMESTAMP", "initpos_timestamp": instant(-5)}
    assert bounds(**late).listed_since(_ARN) == at(-5).timestamp
    # A named shard may have been closed before.
    assert bounds(**late, initpos_shards=one_shard("TRIM_HORIZON")).listed_since(_ARN) is None


def test_a_shard_that_begins_at_its_end_is_empty() -> None:
    assert bounds(initpos_shards=one_shard("SHARD_END")).is_empty(_SHARD)
    same = bounds(
        initpos="AT_TIMESTAMP",
        initpos_timestamp=instant(-5),
        endpos="AT_TIMESTAMP",
        endpos_timestamp=instant(-5),
    )
    assert same.is_empty(_SHARD)
    assert not bounds().is_empty(_SHARD)


def test_arrival_times_narrow_the_bounds_with_a_minute_to_spare() -> None:
    narrowed = bounds().narrowed(
        Narrowing(arrived_since=_LOADED_AT - 60 * _MINUTE, arrived_until=_LOADED_AT - 30 * _MINUTE)
    )
    assert (narrowed.starts.default, narrowed.ends.default) == (at(-61), at(-29))


def test_arrival_times_never_widen_the_bounds() -> None:
    given = bounds(initpos="AT_TIMESTAMP", initpos_timestamp=instant(-10))
    wide = Narrowing(arrived_since=_LOADED_AT - 60 * _MINUTE, arrived_until=_LOADED_AT + _MINUTE)
    assert given.narrowed(wide) == given


@pytest.mark.parametrize(
    "either",
    [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1200, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    ],
)
def test_the_first_and_the_last_day_of_all_are_harmless(either: datetime) -> None:
    narrowed = bounds().narrowed(Narrowing(arrived_since=either, arrived_until=either))
    for position in (narrowed.starts.default, narrowed.ends.default):
        assert position.timestamp is None or position.timestamp.timestamp() >= 0


def test_sequence_numbers_are_not_narrowed() -> None:
    given = bounds(
        initpos_shards=one_shard("AT_SEQUENCE_NUMBER", 5),
        endpos_shards=one_shard("AFTER_SEQUENCE_NUMBER", 7),
    )
    narrow = Narrowing(arrived_since=_LOADED_AT - _MINUTE, arrived_until=_LOADED_AT - _MINUTE)
    narrowed = given.narrowed(narrow)
    assert narrowed.starts.own == given.starts.own
    assert narrowed.ends.own == given.ends.own


def test_a_filter_that_contradicts_the_bounds_leaves_nothing() -> None:
    future = Narrowing(arrived_since=_LOADED_AT + 60 * _MINUTE)
    assert bounds().narrowed(future).is_empty(_SHARD)


def test_several_streams_have_their_own_positions() -> None:
    values = {
        "kinesis.streams": "orders, clicks",
        "kinesis.stream.initpos.shards": '{"orders": {"shardId-000000000000": {"iteratorType": '
        '"AFTER_SEQUENCE_NUMBER", "iteratorPosition": "5"}}, "clicks": {"iteratorType": '
        '"AT_TIMESTAMP", "iteratorPosition": "1767265200000"}}',
    }
    read = BatchBounds.from_properties(Properties.parse(values), loaded_at=_LOADED_AT)
    clicks = _ARN.replace("orders", "clicks")
    assert read.starts.of(_SHARD) == StartingPosition.after(SequenceNumber("5"))
    assert read.starts.of(_OTHER) == StartingPosition.trim_horizon()
    assert read.starts.of(ShardKey(clicks, _SHARD.shard_id)) == at(-60)
    assert (read.listed_since(_ARN), read.listed_since(clicks)) == (None, at(-60).timestamp)
    assert (read.named_shards(_ARN), read.named_shards(clicks)) == ({_SHARD.shard_id}, set())

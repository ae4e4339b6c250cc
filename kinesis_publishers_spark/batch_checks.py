"""What is refused before a batch is planned: positions, and a publisher, that cannot work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.config import (
    EndingPositionConfig,
    InitialPosition,
    InitialPositionConfig,
    SourceConfig,
)
from kinesis_publishers.errors import ConfigError, ConfigErrors, InvalidOptionError
from kinesis_publishers.model import PositionType
from kinesis_publishers.readers import BatchBounds, is_after, publisher_factory_class

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from kinesis_publishers import Properties

__all__ = ["checked_bounds", "refuse_ending_position"]


def refuse_ending_position(properties: Properties) -> None:
    """Refuse an ending position where a stream is read for ever.

    Raises:
        ConfigErrors: names every option that says where reading ends.
    """
    _raise_all(
        InvalidOptionError(
            f"{key} is for spark.read: a streaming query has no end. Remove it, or use "
            "trigger(availableNow=True) to read what there is and stop"
        )
        for key in properties.given_keys(EndingPositionConfig.options())
    )


def checked_bounds(properties: Properties, *, loaded_at: datetime) -> BatchBounds:
    """Return between which positions a batch is read.

    Args:
        properties: the configuration as the user wrote it, for the sake of the messages.
        loaded_at: the instant that LATEST means, and the latest possible end.

    Raises:
        ConfigErrors: names everything that is wrong with them; no call to AWS is made.
    """
    bounds = BatchBounds.from_properties(properties, loaded_at=loaded_at)
    _raise_all(_problems(properties, bounds))
    return bounds


def _raise_all(found: Iterator[ConfigError]) -> None:
    problems = list(found)
    if problems:
        raise ConfigErrors(problems)


def _problems(properties: Properties, bounds: BatchBounds) -> Iterator[ConfigError]:
    yield from _latest_problems(properties)
    yield from _order_problems(properties, bounds)
    yield from _shard_order_problems(properties, bounds)
    yield from _publisher_problems(properties)


def _latest_problems(properties: Properties) -> Iterator[ConfigError]:
    initial = InitialPositionConfig.from_properties(properties)
    advice = "a batch would read nothing. Begin at TRIM_HORIZON or AT_TIMESTAMP"
    is_given = properties.is_given(InitialPositionConfig.position)
    if is_given and initial.position is InitialPosition.LATEST:
        key = properties.written_key(InitialPositionConfig.position)
        yield InvalidOptionError(f"{key} = LATEST begins after the last record: {advice}")
    for shard_id, progress in initial.shards:
        if progress.position.type is PositionType.LATEST:
            key = properties.written_key(InitialPositionConfig.shards)
            yield InvalidOptionError(
                f"{key}: {shard_id} begins at LATEST, after its last record: {advice}"
            )


def _order_problems(properties: Properties, bounds: BatchBounds) -> Iterator[ConfigError]:
    if is_after(bounds.start, bounds.until):
        start_key = properties.written_key(InitialPositionConfig.position)
        end_key = properties.written_key(EndingPositionConfig.position)
        yield InvalidOptionError(
            f"{start_key} ({bounds.start}) is later than {end_key} ({bounds.until}): a batch "
            "begins before it ends, and it ends when it is loaded at the latest"
        )


def _shard_order_problems(properties: Properties, bounds: BatchBounds) -> Iterator[ConfigError]:
    for shard_id in sorted(bounds.named_shards):
        start, until = bounds.start_of(shard_id), bounds.until_of(shard_id)
        if start is not None and until is not None and is_after(start, until):
            start_key = properties.written_key(InitialPositionConfig.shards)
            end_key = properties.written_key(EndingPositionConfig.shards)
            yield InvalidOptionError(
                f"{shard_id} begins ({start}, by {start_key} or the stream's) later than it ends "
                f"({until}, by {end_key} or the stream's)"
            )


def _publisher_problems(properties: Properties) -> Iterator[ConfigError]:
    if not publisher_factory_class(properties).reads_ranges:
        name = properties.get(SourceConfig.record_publisher)
        yield InvalidOptionError(
            f"{properties.written_key(SourceConfig.record_publisher)} is {name}, and spark.read "
            "finds the ends of a batch with GetRecords, with which a publisher of your own need "
            "not agree: remove it, or set it to POLLING"
        )

"""Options that are fine one by one and cannot hold together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.config.choices import Planner
from kinesis_publishers.config.options import aws, ending, publisher, spark
from kinesis_publishers.errors import ConfigError, InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_publishers.config.option import Lookup
    from kinesis_publishers.config.stream_selectors import StreamSelector

__all__ = ["contradictions"]


def contradictions(lookup: Lookup, streams: Sequence[StreamSelector]) -> Iterator[ConfigError]:
    """Yield what cannot hold together.

    Args:
        lookup: the configuration.
        streams: the streams to read, as far as they are known.
    """
    yield from _positions_of_no_stream(lookup, streams)
    yield from _unknown_ends(lookup)
    yield from _other_regions(lookup, streams)


def _positions_of_no_stream(
    lookup: Lookup, streams: Sequence[StreamSelector]
) -> Iterator[ConfigError]:
    if len(streams) < 2:
        return
    for option, verb in (
        (publisher.INITIAL_SHARD_POSITIONS, "begin"),
        (ending.ENDING_SHARD_POSITIONS, "end"),
    ):
        if lookup.get(option):
            yield InvalidOptionError(
                f"{lookup.written_key(option)} has positions by shard id, which is not unique in "
                f"{len(streams)} streams: read each stream on its own, or {verb} at a timestamp"
            )


def _unknown_ends(lookup: Lookup) -> Iterator[ConfigError]:
    name = lookup.get(publisher.RECORD_PUBLISHER)
    if lookup.get(spark.PLANNER) is Planner.RANGES and name not in {"POLLING", "EFO"}:
        yield InvalidOptionError(
            f"{lookup.written_key(spark.PLANNER)} is ranges, which finds the ends of micro-batches "
            f"with GetRecords, and {lookup.written_key(publisher.RECORD_PUBLISHER)} is {name}, "
            "which need not deliver the same records: use prefetch, or POLLING or EFO"
        )


def _other_regions(lookup: Lookup, streams: Sequence[StreamSelector]) -> Iterator[ConfigError]:
    region = lookup.get(aws.REGION)
    # An emulator takes any region.
    if not region or lookup.get(aws.ENDPOINT):
        return
    others = [one for one in streams if one.region not in {None, region.lower()}]
    if others:
        listed = ", ".join(f"{one.region} ({one.arn})" for one in others)
        yield InvalidOptionError(
            f"{lookup.written_key(aws.REGION)} is {region}, but {publisher.STREAMS.full_key} has "
            f"streams of {listed}: leave the region out, or name the streams of that region"
        )

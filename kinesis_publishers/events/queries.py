"""Events of streaming queries, which Spark runs; ``query`` is the name of one, or its id."""

from __future__ import annotations

from logging import DEBUG, WARNING

from attrs import frozen

from kinesis_publishers.events.event import Event, ShardEvent
from kinesis_publishers.model import ShardKey


@frozen(kw_only=True)
class QueryProgressed(Event, level=DEBUG):
    """A query has reported what it has read of a source, or that nothing is new.

    The source reads several streams if none is named.
    """

    says = (
        "Query {query} read {rows:# rows}{stream: of stream #} and holds back "
        "{held_back_shards:# shards}."
    )
    query: str
    stream_arn: str | None
    rows: int
    held_back_shards: int


@frozen(kw_only=True)
class QueryLagMeasured(ShardEvent, level=DEBUG):
    """How far a query is behind in a shard; the shards that are furthest behind are reported.

    That is the age of the oldest record that is not committed, 0 without one; ``None`` when the
    shard is no longer reported.
    """

    says = "Query {query} reads shard {shard}{seconds: with a lag of # s}."
    query: str
    seconds: float | None
    millis_behind_latest: int | None


@frozen(kw_only=True)
class RecordsLate(Event, level=WARNING):
    """A query has read records that arrived more than 15 s before an earlier micro-batch's end."""

    says = (
        "Query {query} read {records:# records}{stream: of stream #}{shard: of shard #} that "
        "arrived more than 15 s before the end of an earlier micro-batch."
    )
    query: str
    shard: ShardKey | None
    stream_arn: str | None
    records: int


@frozen(kw_only=True)
class QueryWrote(Event, level=DEBUG):
    """A query has written the rows of a micro-batch to its sink."""

    says = "Query {query} wrote {rows:# rows}."
    query: str
    rows: int


@frozen(kw_only=True)
class QueryEnded(Event):
    """A query has ended, perhaps with an error, of which it has the class."""

    says = "Query {query} ended{error: with #}."
    query: str
    error: str | None

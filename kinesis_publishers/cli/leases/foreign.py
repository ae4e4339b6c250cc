"""Reads the checkpoints of other programs: each row becomes the progress of a shard.

Nothing is written to their storage.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NoReturn, TypeAlias

from attrs import field, frozen

from kinesis_publishers.abc import CheckpointStoreContext
from kinesis_publishers.assembly import open_checkpoint_store, with_region
from kinesis_publishers.aws.errors import RefusedError
from kinesis_publishers.checkpoints.dynamodb_table import TableClient, TableForm
from kinesis_publishers.checkpoints.kcl_rows import is_lease, lease_row, split_key, stream_key
from kinesis_publishers.checkpoints.stored_progress import FOUND_LATER, STREAM
from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.config import (
    AwsConfig,
    CheckpointConfig,
    DynamoDbCheckpointConfig,
    InitialPositionConfig,
    Properties,
)
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.model import (
    PositionType,
    SequenceNumber,
    ShardKey,
    ShardProgress,
    StartingPosition,
    StreamIdentity,
)

Item: TypeAlias = Mapping[str, Mapping[str, Any]]

# SQLAlchemy's names: the database alone would mean a driver that blocks.
_DRIVERS: Final = {
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "mysql": "mysql+asyncmy",
    "mariadb": "mysql+asyncmy",
    "sqlite": "sqlite+aiosqlite",
}


@frozen(kw_only=True)
class ForeignRow:
    """What another program has stored of one shard.

    Attributes:
        name: the key of the row there.
        shard: which shard that is, if it exists; ``None`` if it is none of the streams'.
    """

    name: str
    shard: ShardKey | None
    progress: ShardProgress


@frozen(kw_only=True)
class Source:
    """Where another program has its rows.

    Attributes:
        application: its name there.
        table: of DynamoDB, or of the database at ``url``.
        url: a database, a Redis, or an endpoint of DynamoDB other than that of the properties.
        streams: those whose rows are wanted.
    """

    properties: Properties
    application: str
    table: str
    url: str
    streams: Sequence[StreamIdentity] = ()
    clock: Clock = field(factory=SystemClock)

    def beginning_of(self, kind: PositionType) -> StartingPosition:
        """Return where a shard begins of which the KCL's table says LATEST or AT_TIMESTAMP.

        Raises:
            CheckpointError: the instant is in the configuration of its program only.
        """
        if kind is PositionType.LATEST:
            return StartingPosition.at_timestamp(self.clock.now())
        start = InitialPositionConfig.from_properties(self.properties).start
        if start.timestamp is None:
            raise CheckpointError(
                "A lease begins AT_TIMESTAMP, and the table does not have the instant: set "
                "kinesis.stream.initpos and kinesis.stream.initpos.timestamp as its program has "
                "them."
            )
        return start


def is_redis(url: str) -> bool:
    """Return whether ``url`` is that of a Redis."""
    return url.startswith(("redis://", "rediss://", "unix://"))


def is_endpoint(url: str) -> bool:
    """Return whether ``url`` is an endpoint of DynamoDB."""
    return url.startswith(("http://", "https://"))


async def read_kcl(source: Source) -> list[ForeignRow]:
    """Return the leases of a table of the Kinesis Client Library, or of zio-kinesis.

    Both have the same attributes, as far as they are read here.
    """
    streams: dict[str | None, StreamIdentity] = {stream_key(one): one for one in source.streams}
    if len(source.streams) == 1:
        streams[None] = source.streams[0]
    rows = []
    async with _open_table(source, {"leaseKey": "HASH"}) as client:
        async for item in client.read_items("Scan"):
            # In the same table are rows about workers and streams. A new lease of zio-kinesis may
            # have no checkpoint.
            if not is_lease(item) or "S" not in item.get("checkpoint", {}):
                continue
            row = lease_row(item, source.beginning_of, where=client)
            key, shard_id = split_key(row.key)
            shard = ShardKey(streams[key].arn, shard_id) if key in streams else None
            rows.append(ForeignRow(name=row.key, shard=shard, progress=row.progress))
    return rows


async def read_bento(source: Source) -> list[ForeignRow]:
    """Return the rows of a table of Bento, or of Redpanda Connect.

    ``SequenceNumber`` is the last record that was acknowledged, and missing before the first one.
    """
    # As its configuration names the stream.
    ids = {name: one for one in source.streams for name in (one.name, one.arn)}
    async with _open_table(source, {"StreamID": "HASH", "ShardID": "RANGE"}) as client:
        return [
            _row(ids[name], _text(item, "ShardID"), _text(item, "SequenceNumber"))
            for name in ids
            async for item in client.read_items("Query", **_with_key("StreamID", name))
        ]


async def read_harlow(source: Source) -> list[ForeignRow]:
    """Return the checkpoints of harlow/kinesis-consumer: the last record that was processed."""
    if is_redis(source.url):
        return await _read_redis(source)
    if source.url and not is_endpoint(source.url):
        return await _read_sql(source)
    async with _open_table(source, {"namespace": "HASH", "shard_id": "RANGE"}) as client:
        return [
            _row(one, _text(item, "shard_id"), _text(item, "sequence_number"))
            for one in source.streams
            for namespace in (_namespace(source, one),)
            async for item in client.read_items("Query", **_with_key("namespace", namespace))
        ]


def _namespace(source: Source, stream: StreamIdentity) -> str:
    return f"{source.application}-{stream.name}"


async def _read_redis(source: Source) -> list[ForeignRow]:
    try:
        from redis.asyncio import Redis
        from redis.exceptions import RedisError
    except ImportError as error:
        _raise_missing(error, "redis")
    rows = []
    try:
        async with Redis.from_url(source.url, decode_responses=True) as client:
            for stream in source.streams:
                prefix = f"{source.application}:checkpoint:{stream.name}:"
                keys = [key async for key in client.scan_iter(match=f"{prefix}*", count=1000)]
                values = await client.mget(keys) if keys else []
                rows += [
                    _row(stream, key.removeprefix(prefix), value)
                    for key, value in zip(keys, values, strict=True)
                ]
    except (RedisError, ValueError) as error:
        raise _unreadable("The Redis", error) from error
    return rows


async def _read_sql(source: Source) -> list[ForeignRow]:
    try:
        import sqlalchemy as sa
        from sqlalchemy.ext.asyncio import create_async_engine
    except ImportError as error:
        _raise_missing(error, "sql")
    schema, _, name = source.table.rpartition(".")
    columns: list[sa.ColumnClause[Any]] = [
        sa.column(one) for one in ("shard_id", "sequence_number")
    ]
    table = sa.table(name, *columns, sa.column("namespace"), schema=schema or None)
    rows = []
    try:
        url = sa.make_url(source.url)
        url = url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))
        engine = create_async_engine(url, poolclass=sa.NullPool)
        async with engine.connect() as connection:
            for stream in source.streams:
                query = sa.select(*columns).where(table.c.namespace == _namespace(source, stream))
                found = await connection.execute(query)
                rows += [_row(stream, shard_id, number) for shard_id, number in found]
    except ModuleNotFoundError as error:
        _raise_missing(
            error, {"asyncpg": "postgres", "asyncmy": "mysql"}.get(error.name or "", "sql")
        )
    except (sa.exc.SQLAlchemyError, OSError) as error:
        raise _unreadable(f"The table {source.table}", error) from error
    return rows


async def read_checkpoints(source: Source) -> list[ForeignRow]:
    """Return the checkpoints of this framework, in the store that the properties name."""
    created_at = {one.arn: one.created_at for one in source.streams}
    async with open_checkpoint_store(source.properties, clock=source.clock) as store:
        store.name_streams(source.streams)
        found = await store.load()
    return [
        ForeignRow(
            name=str(key),
            # A stream that was created again has other records.
            shard=key
            if created_at.get(key.stream_arn) == row.checkpoint.stream_created_at
            else None,
            progress=row.checkpoint.progress,
        )
        for key, row in found.items()
        if key.shard_id != STREAM
    ]


def _row(stream: StreamIdentity, shard_id: str, number: object) -> ForeignRow:
    """Return the row of a shard whose last processed record is ``number``, if there is one."""
    name, progress = f"{stream.name} {shard_id}", FOUND_LATER
    if number:
        try:
            last = SequenceNumber(str(number))
        except ValueError as error:
            raise _no_position(name, str(number)) from error
        progress = ShardProgress(position=StartingPosition.after(last))
    return ForeignRow(name=name, shard=ShardKey(stream.arn, shard_id), progress=progress)


@asynccontextmanager
async def _open_table(source: Source, keys: Mapping[str, str]) -> AsyncIterator[TableClient]:
    """Open a table of DynamoDB with ``keys``.

    Raises:
        CheckpointError: it does not exist, or is another program's.
    """
    properties = with_region(source.properties)
    config = DynamoDbCheckpointConfig.from_properties(properties)
    config = DynamoDbCheckpointConfig(
        table=source.table, endpoint_url=source.url or config.endpoint_url, create_table=False
    )
    context = CheckpointStoreContext(
        application=source.application,
        retry=CheckpointConfig.from_properties(properties).retry,
        clock=source.clock,
    )
    aws = AwsConfig.from_properties(properties)
    client = TableClient(aws, config, context, TableForm(keys=keys))
    try:
        await client.open()
        found = await client.call("DescribeTable", lambda answer: answer["Table"]["KeySchema"])
        names = [key["AttributeName"] for key in found]
        if names != list(keys):
            raise CheckpointError(
                f"{client} is not a table of that program: its keys are {' and '.join(names)}, not "
                f"{' and '.join(keys)}. Name the right one with --table."
            )
        yield client
    except RefusedError as error:
        raise CheckpointError(f"{client} does not exist: name it with --table.") from error
    finally:
        await client.close()


def _with_key(name: str, value: str) -> dict[str, Any]:
    """Return the parameters of a query for one partition key."""
    return {
        "KeyConditionExpression": "#key = :value",
        "ExpressionAttributeNames": {"#key": name},
        "ExpressionAttributeValues": {":value": {"S": value}},
    }


def _text(item: Item, name: str) -> str:
    """Return a text or a number of an item, empty if it has none."""
    value = item.get(name, {})
    return str(value.get("S", value.get("N", "")))


def _no_position(name: str, text: str) -> CheckpointError:
    return CheckpointError(f"The row {name} has the position {text!r}, which is none: correct it.")


def _unreadable(what: str, error: Exception) -> CheckpointError:
    return CheckpointError(f"{what} of --url cannot be read: {error}")


def _raise_missing(error: ImportError, extra: str) -> NoReturn:
    raise CheckpointError(
        f"{error.name} is not installed: pip install 'kinesis-publishers[{extra}]'"
    ) from error

"""Checkpoints and leases in the lease table of the Kinesis Client Library, which may use it too."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Self

from kinesis_publishers.abc import CheckpointStoreContext
from kinesis_publishers.aws.errors import RefusedError
from kinesis_publishers.checkpoints.dynamodb import OWN_FORM
from kinesis_publishers.checkpoints.dynamodb_table import TableClient, TableForm, write_all
from kinesis_publishers.checkpoints.kcl_rows import (
    KEY,
    Item,
    LeaseRow,
    created_at,
    is_lease,
    key_in_table,
    lease_row,
    row_condition,
    row_update,
    split_key,
    stream_key,
    version_of,
    written_at,
)
from kinesis_publishers.checkpoints.versions import Attempt, Change, Refusal, VersionedStore
from kinesis_publishers.config import (
    AwsConfig,
    CheckpointConfig,
    DynamoDbCheckpointConfig,
    InitialPositionConfig,
    Properties,
)
from kinesis_publishers.errors import AccessDeniedError, CheckpointError, InvalidOptionError
from kinesis_publishers.model import (
    Checkpoint,
    CheckpointVersion,
    PositionType,
    ShardKey,
    ShardProgress,
    StartingPosition,
    StoredCheckpoint,
    StreamIdentity,
)

_LOGGER = logging.getLogger(__name__)

_FORM: Final = TableForm(
    keys={KEY: "HASH"},
    # Version 3 of the KCL adds it to a table that has none, which takes minutes.
    indexes={"LeaseOwnerToLeaseKeyIndex": {"leaseOwner": "HASH", KEY: "RANGE"}},
)
_MARK: Final = "*"
_SHORTEST_TABLE: Final = 3


class KclLeaseTable(VersionedStore):
    """Keeps checkpoints and leases as the KCL does: one table for each application.

    The rows do not say which stream they are of: it needs :meth:`name_streams`. That a stream was
    begun follows from its rows; the mark of it is kept in this object only.
    """

    def __init__(
        self,
        context: CheckpointStoreContext,
        aws: AwsConfig,
        config: DynamoDbCheckpointConfig,
        initial: datetime | None = None,
        former: DynamoDbCheckpointConfig | None = None,
    ) -> None:
        """Make a store that is not open yet.

        Args:
            context: what every store needs.
            aws: how to reach DynamoDB.
            config: which table.
            initial: the instant of AT_TIMESTAMP, if streams begin there.
            former: the table in which a reader without leases would have had checkpoints.
        """
        super().__init__(context)
        self._client = TableClient(aws, config, context, _FORM)
        self._initial = initial
        self._former = former
        # By ARN, with the keys that they have in the table, and by those.
        self._streams: dict[str, StreamIdentity] = {}
        self._stream_keys: dict[str, str] = {}
        self._by_key: dict[str, StreamIdentity] = {}
        self._has_stream_keys = False
        # Of the rows that there are.
        self._keys: dict[ShardKey, str] = {}
        self._marks: dict[ShardKey, StoredCheckpoint] = {}
        # When a row was first seen that is at LATEST, by its key.
        self._seen_at: dict[str, datetime] = {}
        self._warned: set[str] = set()

    @classmethod
    def from_properties(cls, properties: Properties, context: CheckpointStoreContext) -> Self:
        table = DynamoDbCheckpointConfig.table
        former = None
        if not properties.is_given(table):
            own = DynamoDbCheckpointConfig.from_properties(properties)
            former = DynamoDbCheckpointConfig(
                table=own.table, endpoint_url=own.endpoint_url, create_table=False
            )
            properties = properties.with_values({table: _table_of(context.application)})
        return cls(
            context,
            AwsConfig.from_properties(properties),
            DynamoDbCheckpointConfig.from_properties(properties),
            InitialPositionConfig.from_properties(properties).timestamp,
            former,
        )

    def __str__(self) -> str:
        return str(self._client)

    async def open(self) -> None:
        await self._client.open()

    async def close(self) -> None:
        await self._client.close()

    def name_streams(self, streams: Collection[StreamIdentity]) -> None:
        self._streams = {one.arn: one for one in streams}
        self._stream_keys = {one.arn: stream_key(one) for one in streams}
        if len(set(self._stream_keys.values())) < len(self._streams):
            raise CheckpointError(
                f"Two of the streams {', '.join(sorted(self._streams))} have the same key in "
                f"{self}, which has no region: read each with a kinesis.checkpoint.application of "
                "its own."
            )

    async def load(self) -> dict[ShardKey, StoredCheckpoint]:
        rows = [
            lease_row(item, self._beginning_of(item), where=self)
            async for item in self._client.read_items("Scan")
            if is_lease(item)
        ]
        found: dict[ShardKey, StoredCheckpoint] = {}
        keys = [split_key(row.key) for row in rows]
        known = {stream for stream, _ in keys if stream is not None}
        self._keys, self._has_stream_keys = {}, bool(known)
        self._stream_keys = {
            arn: key_in_table(identity, known) for arn, identity in self._streams.items()
        }
        self._by_key = {key: self._streams[arn] for arn, key in self._stream_keys.items()}
        for row, (key, shard_id) in zip(rows, keys, strict=True):
            identity = self._stream_of(row, key)
            if identity is None:
                continue
            shard = ShardKey(identity.arn, shard_id)
            if shard in found:
                raise CheckpointError(
                    f"{self} has two rows of {shard}, {self._keys[shard]} and {row.key}: remove "
                    "the one that nothing writes any more."
                )
            self._keys[shard] = row.key
            found[shard] = _stored(row, shard, row.created_at or created_at(key, identity))
        return found | self._marks_of(found.values())

    async def check_first_use(self) -> None:
        if self._former is None:
            return
        client = TableClient(self._client.aws, self._former, self._context, OWN_FORM)
        try:
            await client.open()
            await client.call("DescribeTable", dict)
            items = client.read_items(
                "Query",
                KeyConditionExpression="application = :application",
                ExpressionAttributeValues={":application": {"S": self._context.application}},
                Limit=1,
            )
            has_checkpoints = await anext(items, None) is not None
        except (RefusedError, AccessDeniedError):
            # There is none, or it is not for this application.
            return
        finally:
            await client.close()
        if has_checkpoints:
            raise CheckpointError(
                f"{self} has no leases, and {client} has checkpoints of the application "
                f"{self._context.application}, made without leases. To go on there, set "
                "kinesis.lease.format = own; or copy them into the KCL's form: pipe "
                "`kinesis-publishers leases list --json`, with properties without leases, into "
                "`kinesis-publishers leases import -`."
            )

    def _beginning_of(self, item: Item) -> Callable[[PositionType], StartingPosition]:
        def beginning(type_: PositionType) -> StartingPosition:
            if type_ is PositionType.LATEST:
                # The KCL pins nothing: it begins at the tip each time until its first checkpoint.
                # Here that is the instant at which the row was seen: later records are not lost,
                # and earlier ones the KCL would not read either.
                key, now = item[KEY]["S"], self._context.clock.now()
                return StartingPosition.at_timestamp(self._seen_at.setdefault(key, now))
            if self._initial is not None:
                return StartingPosition.at_timestamp(self._initial)
            self._warn_once(
                "AT_TIMESTAMP",
                f"{self} has shards at AT_TIMESTAMP, of which the Kinesis Client Library has the "
                "instant in its configuration: they are read from the beginning of the retention. "
                f"Set {InitialPositionConfig.position.full_key} = AT_TIMESTAMP, and its timestamp, "
                "to read from that instant",
            )
            return StartingPosition.trim_horizon()

        return beginning

    def _stream_of(self, row: LeaseRow, key: str | None) -> StreamIdentity | None:
        """Return of which stream a row is; ``None`` for one that is not read."""
        if key is not None and key not in self._by_key:
            self._warn_once(
                key,
                f"{self} has leases of {key} (account, stream, creation), which is not among the "
                "streams that are read as they exist now: they are left alone",
            )
            return None
        if key is not None:
            identity: StreamIdentity | None = self._by_key[key]
        elif row.stream_arn is not None:
            identity = self._streams.get(row.stream_arn)
        else:
            identity = next(iter(self._streams.values())) if len(self._streams) == 1 else None
        if identity is None or row.stream_arn not in (None, identity.arn):
            raise CheckpointError(
                f"{self} has a lease {row.key} of {row.stream_arn or 'a stream it does not name'}, "
                f"and {', '.join(sorted(self._streams)) or 'no stream'} is read. A table belongs "
                "to one application: set kinesis.checkpoint.application, or "
                "kinesis.checkpoint.dynamodb.table, to another."
            )
        return identity

    def _warn_once(self, about: str, message: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            _LOGGER.warning("%s. This is logged once.", message)

    def _marks_of(self, stored: Iterable[StoredCheckpoint]) -> dict[ShardKey, StoredCheckpoint]:
        """Return the mark of every stream that has a row, and those that were written."""
        created_at: dict[ShardKey, datetime] = {}
        for one in stored:
            mark = ShardKey(one.checkpoint.shard.stream_arn, _MARK)
            known = created_at.get(mark, one.checkpoint.stream_created_at)
            created_at[mark] = max(known, one.checkpoint.stream_created_at)
        return {
            mark: StoredCheckpoint(
                checkpoint=Checkpoint(
                    shard=mark,
                    stream_created_at=instant,
                    progress=ShardProgress(position=StartingPosition.trim_horizon()),
                ),
                version=CheckpointVersion(number=0, writer=str(self)),
            )
            for mark, instant in created_at.items()
        } | self._marks

    async def _apply(self, changes: Sequence[Change]) -> list[Refusal]:
        rows = []
        for attempt, checkpoint in changes:
            if attempt.shard.shard_id != _MARK:
                rows.append((attempt, checkpoint))
            elif checkpoint is None:
                self._marks.pop(attempt.shard, None)
            else:
                self._marks[attempt.shard] = StoredCheckpoint(
                    checkpoint=checkpoint, version=attempt.version
                )
        return await write_all(rows, self._write)

    async def _write(self, attempt: Attempt, checkpoint: Checkpoint | None) -> Refusal | None:
        key = self._key_of(attempt.shard)
        if checkpoint is None:
            item = await self._client.write_item("DeleteItem", **row_condition(key, attempt))
        else:
            now = self._context.clock.now()
            update = row_update(key, attempt, checkpoint, now, self._initial)
            item = await self._client.write_item("UpdateItem", **update)
        return None if item is None else _refusal(attempt, item)

    def _key_of(self, shard: ShardKey) -> str:
        if shard in self._keys:
            return self._keys[shard]
        if shard.stream_arn not in self._streams:
            raise CheckpointError(
                f"{self} keeps leases of {', '.join(sorted(self._streams)) or 'no stream'}, not of "
                f"{shard.stream_arn}: name_streams has to be called with each stream that is read."
            )
        if len(self._streams) > 1 or self._has_stream_keys:
            return f"{self._stream_keys[shard.stream_arn]}:{shard.shard_id}"
        return shard.shard_id


def _stored(row: LeaseRow, shard: ShardKey, stream_created_at: datetime) -> StoredCheckpoint:
    checkpoint = Checkpoint(
        shard=shard,
        stream_created_at=stream_created_at,
        progress=row.progress,
        lease=row.lease,
    )
    return StoredCheckpoint(checkpoint=checkpoint, version=row.version)


def _refusal(attempt: Attempt, item: Mapping[str, Any]) -> Refusal:
    if not item:
        return Refusal(attempt=attempt, stored=None)
    return Refusal(attempt=attempt, stored=version_of(item), written_at=written_at(item))


def _table_of(application: str) -> str:
    if len(application) < _SHORTEST_TABLE:
        raise InvalidOptionError(
            f"{CheckpointConfig.application.full_key} = {application} cannot be the name of a "
            f"table, which has at least {_SHORTEST_TABLE} characters: set "
            f"{DynamoDbCheckpointConfig.table.full_key} as well"
        )
    return application

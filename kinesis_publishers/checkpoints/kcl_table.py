"""Checkpoints and leases in the lease table of the Kinesis Client Library, which may use it too."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, Self

from attrs import define, evolve, field

from kinesis_publishers.abc import CheckpointStoreContext, JoinedWrite, OpenTransaction
from kinesis_publishers.checkpoints import kcl_rows
from kinesis_publishers.checkpoints.dynamodb import DynamoDbCheckpointStore
from kinesis_publishers.checkpoints.dynamodb_table import (
    DynamoDbTable,
    Item,
    ItemRequest,
    Values,
    item_of,
    update_of,
    values_of,
)
from kinesis_publishers.checkpoints.stored_form import instant_of
from kinesis_publishers.checkpoints.versions import Attempt, Change, Refusal, VersionedStore
from kinesis_publishers.config import (
    AwsConfig,
    DynamoDbCheckpointConfig,
    InitialPositionConfig,
    Properties,
)
from kinesis_publishers.errors import AccessDeniedError, CheckpointError
from kinesis_publishers.model import (
    WHOLE_STREAM,
    Checkpoint,
    CheckpointVersion,
    CheckpointWrite,
    Positions,
    PositionType,
    ShardKey,
    StartingPosition,
    StoredCheckpoint,
    StreamIdentity,
)

_LOGGER = logging.getLogger(__name__)

_KEYS: Final = {kcl_rows.KEY: "HASH"}
# Version 3 of the KCL adds it to a table that has none, which takes minutes.
_INDEXES: Final = {"LeaseOwnerToLeaseKeyIndex": {"leaseOwner": "HASH", kcl_rows.KEY: "RANGE"}}

_ONE_APPLICATION: Final = (
    "a table belongs to one application. Set kinesis.checkpoint.application, or "
    "kinesis.checkpoint.dynamodb.table, to another."
)


@define(eq=False)
class KclRows:
    """The rows of the streams that are read: which shard each belongs to, and what a change writes.

    Only the key of a row says which stream it belongs to.
    """

    _where: object
    _context: CheckpointStoreContext
    _initial: Positions | None
    # By ARN, and by the key in the table: a table of one stream has rows without one.
    _streams: dict[str, StreamIdentity] = field(factory=dict, init=False)
    _by_key: dict[str | None, StreamIdentity] = field(factory=dict, init=False)
    # Of the existing rows.
    _keys: dict[ShardKey, str] = field(factory=dict, init=False)
    # When a row at LATEST was first seen.
    _seen_at: dict[ShardKey, datetime] = field(factory=dict, init=False)
    _warned: set[str] = field(factory=set, init=False)

    def __str__(self) -> str:
        return str(self._where)

    def name_streams(self, streams: Collection[StreamIdentity]) -> None:
        self._streams = {one.arn: one for one in streams}
        if len({kcl_rows.stream_key(one) for one in streams}) < len(self._streams):
            raise CheckpointError(
                f"Two of the streams {', '.join(sorted(self._streams))} have the same key in "
                f"{self}, which has no region: read each with a kinesis.checkpoint.application of "
                "its own."
            )
        self._find_keys(())

    def _find_keys(self, known: Collection[str]) -> None:
        """Find the keys of the streams, given the ``known`` ones of the table."""
        streams = [*self._streams.values()]
        keyed = {kcl_rows.key_in_table(one, known): one for one in streams}
        alone = {None: streams[0]} if len(streams) == 1 else {}
        # A new row has the first key of its stream.
        self._by_key = keyed | alone if known else alone | keyed

    def stored(self, items: Iterable[Item]) -> dict[ShardKey, StoredCheckpoint]:
        """Return what the items of a table say, with the mark of each stream."""
        leases = [one for one in items if kcl_rows.is_lease(one)]
        lease_keys = [one.get(kcl_rows.KEY, {}).get("S", "") for one in leases]
        self._find_keys({key for one in lease_keys if (key := kcl_rows.split_key(one)[0])})
        self._keys = {}
        found = [one for one in map(self._stored_in, leases) if one is not None]
        return {one.checkpoint.shard: one for one in found} | _marks_of(found)

    def _stored_in(self, item: Item) -> StoredCheckpoint | None:
        """Return what a lease says; ``None`` if its stream is not read."""
        try:
            values = values_of(item)
            state = json.loads(values.get(kcl_rows.STATE, "{}"))
            if (place := self._place_of(values[kcl_rows.KEY], state)) is None:
                return None
            shard, created = place
            known = state.get("stream_created_at")
            checkpoint = Checkpoint(
                shard=shard,
                stream_created_at=created if known is None else instant_of(known),
                progress=kcl_rows.progress_in(values, state, partial(self._beginning, shard)),
                lease=kcl_rows.lease_in(values, state),
            )
            return StoredCheckpoint(checkpoint=checkpoint, version=kcl_rows.version_of(values))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise CheckpointError(
                f"{self} has a row that is no lease of the Kinesis Client Library ({error!r}): "
                f"{item!r:.500}. If the table is of something else, set "
                "kinesis.checkpoint.dynamodb.table to another. If the row is damaged, restore it; "
                "or set its checkpoint to TRIM_HORIZON and remove its kpState, and the shard is "
                "read from the beginning of the retention. Do not remove it: a shard without a row "
                "may count as read."
            ) from error

    def _place_of(
        self, lease_key: str, state: Mapping[str, Any]
    ) -> tuple[ShardKey, datetime] | None:
        key, shard_id = kcl_rows.split_key(lease_key)
        arn, ours = state.get("stream"), self._context.application
        if ours and (other := state.get("application", ours)) != ours:
            raise CheckpointError(
                f"{self} has a lease {lease_key} of the application {other}, and this one is "
                f"{ours}: {_ONE_APPLICATION} To take positions over, use `kinesis-publishers "
                "leases import --from kcl --table`."
            )
        identity = self._by_key.get(key)
        if identity is None and key is not None:
            self._warn_once(
                key,
                f"{self} has leases of {key} (account, stream, creation), which is not among the "
                "streams that are read as they exist now: they are left alone",
            )
            return None
        identity = identity or self._streams.get(arn or "")
        if identity is None or arn not in (None, identity.arn):
            raise CheckpointError(
                f"{self} has a lease {lease_key} of {arn or 'a stream it does not name'}, "
                f"and {', '.join(sorted(self._streams)) or 'no stream'} is read: {_ONE_APPLICATION}"
            )
        shard = ShardKey(identity.arn, shard_id)
        if self._keys.setdefault(shard, lease_key) != lease_key:
            raise CheckpointError(
                f"{self} has two rows of {shard}, {self._keys[shard]} and {lease_key}: remove the "
                "one that is no longer written."
            )
        return shard, kcl_rows.created_at(key, identity)

    def _instant(self, stream_arn: str) -> datetime | None:
        return None if self._initial is None else self._initial.of_stream(stream_arn).timestamp

    def _beginning(self, shard: ShardKey, type_: PositionType) -> StartingPosition:
        if type_ is PositionType.LATEST:
            # Until its first checkpoint, the KCL begins at the tip each time. Here it is pinned to
            # the instant at which the row was first seen: later records are not lost, and the KCL
            # would not read earlier ones either.
            now = self._context.clock.now()
            return StartingPosition.at_timestamp(self._seen_at.setdefault(shard, now))
        if (instant := self._instant(shard.stream_arn)) is not None:
            return StartingPosition.at_timestamp(instant)
        self._warn_once(
            "AT_TIMESTAMP",
            f"{self} has shards at AT_TIMESTAMP, of which the Kinesis Client Library has the "
            "instant in its configuration: they are read from the beginning of the retention. "
            f"Set {InitialPositionConfig.position.full_key} = AT_TIMESTAMP, and its timestamp, "
            "to read from that instant",
        )
        return StartingPosition.trim_horizon()

    def _warn_once(self, about: str, message: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            _LOGGER.warning("%s. This is logged once.", message)

    def request(self, attempt: Attempt, checkpoint: Checkpoint | None) -> ItemRequest:
        key = self._key_of(attempt.shard)
        if checkpoint is None:
            return "DeleteItem", kcl_rows.row_condition(key, attempt)
        now = self._context.clock.now()
        state = kcl_rows.row_state(self._context.application, attempt, checkpoint, now)
        instant = self._instant(attempt.shard.stream_arn)
        return "UpdateItem", kcl_rows.row_update(key, attempt, checkpoint, state, instant)

    def _key_of(self, shard: ShardKey) -> str:
        if shard in self._keys:
            return self._keys[shard]
        for key, identity in self._by_key.items():
            if identity.arn == shard.stream_arn:
                return shard.shard_id if key is None else f"{key}:{shard.shard_id}"
        raise CheckpointError(
            f"{self} keeps leases of {', '.join(sorted(self._streams)) or 'no stream'}, not of "
            f"{shard.stream_arn}: name_streams has to be called with each stream that is read."
        )


class KclLeaseTable(VersionedStore):
    """Keeps checkpoints and leases as the KCL does: one table for each application.

    As a ``ForeignTable`` it needs :meth:`name_streams`. The mark that a stream was begun is not
    stored: it follows from the stream's rows.
    """

    storage: DynamoDbTable

    def __init__(
        self,
        context: CheckpointStoreContext,
        aws: AwsConfig,
        config: DynamoDbCheckpointConfig,
        initial: Positions | None = None,
        former: DynamoDbCheckpointConfig | None = None,
    ) -> None:
        """Make a store that refuses rows of other applications, unless ``context`` names none.

        Streams begin at ``initial``. A reader without leases would have had checkpoints in the
        table ``former``.
        """
        super().__init__(context, DynamoDbTable(aws, config, context.clock, _KEYS, _INDEXES))
        self._rows = KclRows(self, context, initial)
        self._former = former
        # The rows of the table, and the last report to a leader of the KCL.
        self._items: list[Item] = []
        self._reported: Values | None = None

    @classmethod
    def from_properties(cls, properties: Properties, context: CheckpointStoreContext) -> Self:
        config, former = DynamoDbCheckpointConfig.from_properties(properties), None
        if not properties.is_given(DynamoDbCheckpointConfig.table):
            former = DynamoDbCheckpointConfig(
                table=config.table, endpoint_url=config.endpoint_url, create_table=False
            )
            named = {DynamoDbCheckpointConfig.table: context.application}
            config = DynamoDbCheckpointConfig.from_properties(properties.with_values(named))
        initial = InitialPositionConfig.from_properties(properties).positions
        return cls(context, AwsConfig.from_properties(properties), config, initial, former)

    def name_streams(self, streams: Collection[StreamIdentity]) -> None:
        self._rows.name_streams(streams)

    async def load(self) -> dict[ShardKey, StoredCheckpoint]:
        self._items = [item async for item in self.storage.read_items("Scan")]
        return self._rows.stored(self._items)

    async def report(self, worker: str, *, is_leaving: bool = False) -> bool:
        key, now = {kcl_rows.KEY: worker}, self._context.clock.now()
        row = None if is_leaving else kcl_rows.worker_row(self._items, worker, now)
        if row is None and self._reported is not None:
            await self.storage.call("DeleteItem", dict, Key=item_of(key))
        elif row is not None and row != self._reported:
            await self.storage.call("UpdateItem", dict, **update_of(key, row))
        self._reported = row
        return row is not None

    async def check_first_use(self) -> None:
        if self._former is None:
            return
        former = DynamoDbCheckpointStore(self._context, self.storage.aws, self._former)
        try:
            async with former:
                has_checkpoints = await anext(former.items(Limit=1), None) is not None
        except (CheckpointError, AccessDeniedError):
            # There is no such table, or this application may not use it.
            return
        if has_checkpoints:
            raise CheckpointError(
                f"{self} has no leases, and {former} has checkpoints of the application "
                f"{self._context.application}, made without leases. To continue there, set "
                "kinesis.lease.format = own; or copy them into the KCL's form: pipe "
                "`kinesis-publishers leases list --json`, with properties without leases, into "
                "`kinesis-publishers leases import -`."
            )

    def join(self, write: CheckpointWrite, transaction: OpenTransaction) -> JoinedWrite:
        # There is no owner with leases.
        self.storage.check_transaction(transaction)
        attempt = self._book.attempt_joined(write.shard, write.expected)
        items = [self._rows.request(attempt, write.checkpoint)]
        execute = self.storage.joined(transaction, items)
        return JoinedWrite(version=attempt.version, execute=execute)

    async def _apply(self, changes: Sequence[Change]) -> list[Refusal]:
        of_shards = [one for one in changes if one[0].shard.shard_id != WHOLE_STREAM]
        return await self.storage.apply(of_shards, self._rows.request, _version_of)


def _version_of(found: Values) -> tuple[CheckpointVersion | None, str | None]:
    return (kcl_rows.version_of(found), kcl_rows.written_at(found)) if found else (None, None)


def _marks_of(stored: Iterable[StoredCheckpoint]) -> dict[ShardKey, StoredCheckpoint]:
    """Return the mark of every stream that has a row: of its last creation."""
    marks = {}
    for row in sorted(stored, key=lambda one: one.checkpoint.stream_created_at):
        checkpoint = row.checkpoint
        mark = Checkpoint.mark(checkpoint.shard.stream_arn, checkpoint.stream_created_at)
        marks[mark.shard] = evolve(row, checkpoint=mark)
    return marks

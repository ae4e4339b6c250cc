"""Which shards of the configured streams there are, and how far each of them has been read."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from attrs import define, evolve, field

from kinesis_publishers.assembly import Services
from kinesis_publishers.engine.data_loss import recreated_message
from kinesis_publishers.engine.lineage import (
    gone_shards,
    pinned_progress,
    resumed_progress,
    startable,
    starting_progress,
)
from kinesis_publishers.errors import CheckpointError, DataLossError, StreamRecreatedError
from kinesis_publishers.events import ShardsDiscovered, StreamPrepared
from kinesis_publishers.model import (
    ChildShard,
    PositionType,
    Shard,
    ShardKey,
    ShardProgress,
    StartingPosition,
    StreamIdentity,
    StreamProgress,
)
from kinesis_publishers.progress.rows import Identities, Progress

_LOGGER = logging.getLogger(__name__)

_ENDED = ShardProgress(position=StartingPosition.trim_horizon(), is_ended=True)

TakeOver: TypeAlias = Callable[[Identities], Awaitable[dict[str, StreamProgress]]]


@define(eq=False)
class ShardTable:
    """Keeps the listing of the streams and the progress of their shards.

    Args:
        resume: how far each stream (by ARN) had been read before; other streams begin at the
            configured initial position.
        leaves_others: whether ``resume`` may name streams that are not configured.
        take_over: takes the streams (by ARN) when they are known, and returns what replaces
            ``resume``.

    Attributes:
        identities: the streams that are read, by ARN.
        listed: the shards that the service listed last, those that are still in use, and those
            that are newer than the listing.
        others: shards that the service has listed and that do not exist for this reader.
        progress: how far each known shard has been read; written by what reads it.
        left: the same for ``others``: a later reader of them continues there.
        listed_at: when the last listing began, by the service's clock.
        latest_at: when a stream was begun at LATEST, if one was.
    """

    _services: Services
    _resume: dict[str, StreamProgress]
    _leaves_others: bool = field(default=False, kw_only=True)
    _take_over: TakeOver | None = field(default=None, kw_only=True)
    identities: dict[str, StreamIdentity] = field(factory=dict, init=False)
    listed: dict[ShardKey, Shard] = field(factory=dict, init=False)
    others: dict[ShardKey, Shard] = field(factory=dict, init=False)
    progress: dict[ShardKey, ShardProgress] = field(factory=dict, init=False)
    left: dict[ShardKey, ShardProgress] = field(factory=dict, init=False)
    listed_at: datetime = field(default=datetime.min.replace(tzinfo=UTC), init=False)
    latest_at: datetime | None = field(default=None, init=False)
    _left_out: dict[str, StreamProgress] = field(factory=dict, init=False)

    def renewed(self) -> ShardTable:
        """Return one that is not prepared, and continues where this one is."""
        resume = self._resume | self.by_stream(self.progress)
        return ShardTable(self._services, resume, leaves_others=self._leaves_others)

    async def add(self, *streams: str) -> tuple[str, ...]:
        """Find streams (names or ARNs) and fix where their shards begin; return their ARNs.

        It raises what :meth:`KinesisDataFetcher.prepare` raises, and adds no stream then.
        """
        clock = self._services.clock
        began_at, found = clock.monotonic(), dict[str, StreamIdentity]()
        for stream in streams:
            identity = (await self._services.discovery.describe(stream)).identity
            found[identity.arn] = identity
            self._services.data_loss.note_identity(identity)
        try:
            self.identities |= found
            if self._take_over is not None:
                stored = await self._take_over(found)
                others = {arn: one for arn, one in self._resume.items() if arn not in found}
                self._resume = others | stored
            self._check_resumed_streams()
            # When this began, by the service's clock: its first answers have told the time.
            now = clock.now() - timedelta(seconds=clock.monotonic() - began_at)
            self.listed_at = now
            for identity in found.values():
                await self._prepare_stream(identity, now)
                self._report_prepared(identity.arn, now)
        except BaseException:
            for arn in found:
                self._forget(arn)
            raise
        return tuple(found)

    def drop(self, stream_arn: str) -> None:
        """Leave a stream out from now on; it continues where it is if it is added again."""
        progress = evolve(self.by_stream(self.progress)[stream_arn], is_left_out=True)
        self._forget(stream_arn)
        self._resume[stream_arn] = self._left_out[stream_arn] = progress

    def _forget(self, stream_arn: str) -> None:
        self.identities.pop(stream_arn, None)
        for shards in (self.listed, self.others, self.progress, self.left):
            for key in [one for one in shards if one.stream_arn == stream_arn]:
                del shards[key]

    def _report_prepared(self, stream_arn: str, now: datetime) -> None:
        shards = sum(key.stream_arn == stream_arn for key in self.progress)
        is_resumed = stream_arn in self._resume
        self._services.events(
            StreamPrepared(stream_arn=stream_arn, shards=shards, is_resumed=is_resumed)
        )
        initial = self._services.initial.of_stream(stream_arn)
        start = "where they were left" if is_resumed else str(initial)
        if start == PositionType.LATEST.value:
            self.latest_at = now
            start += f" ({now:%Y-%m-%d %H:%M:%S} UTC)"
        name = self.identities[stream_arn].name
        # While nothing comes, nothing else says that reading has begun.
        _LOGGER.info("Reading %s from %s.", name, start)

    def _check_resumed_streams(self) -> None:
        if self._leaves_others:
            return
        left_out = sorted(self._resume.keys() - self.identities.keys())
        names, configured = ", ".join(left_out), ", ".join(sorted(self.identities))
        # What was dropped here was read here.
        if {*left_out} - self._left_out.keys() and len(left_out) == len(self._resume):
            raise CheckpointError(
                f"The stored progress belongs to other streams ({names}) than those that are "
                f"configured ({configured}): use a checkpoint of its own for each set of streams."
            )
        for arn in left_out:
            # Once: it stays where it is until it is configured again.
            if not self._resume[arn].is_left_out:
                self._services.data_loss.report(
                    ShardKey(arn, "*"),
                    f"the stream has been read before and is no longer configured ({configured}).",
                    kind=DataLossError,
                )
            self._resume[arn] = evolve(self._resume[arn], is_left_out=True)
        self._left_out = {arn: self._resume[arn] for arn in left_out}

    async def _prepare_stream(self, identity: StreamIdentity, now: datetime) -> None:
        resume = self._resume.get(identity.arn)
        if resume is None:
            await self._begin_stream(identity, now)
            return
        known = {
            ShardKey(identity.arn, id_): resumed_progress(one) for id_, one in resume.shards.items()
        }
        if resume.identity.created_at != identity.created_at:
            self._services.data_loss.report(
                ShardKey(identity.arn, "*"),
                recreated_message(resume.identity.created_at, identity.created_at),
                kind=StreamRecreatedError,
            )
            known = {}
        listed = await self._services.discovery.list_shards(identity.arn)
        self._services.assigner.check_listing(listed)
        self._add_listed(listed, known=known)
        for key in gone_shards((key for key in known if not known[key].is_ended), listed):
            if self._is_left(key, listed):
                del self.progress[key]
                continue
            self._services.data_loss.report_unread(key, known[key])
            self.progress[key] = known[key].ended()

    def _is_left(self, key: ShardKey, listed: Iterable[Shard]) -> bool:
        """Return whether an earlier run left out a shard that is gone, as this one would.

        A reader that leaves out all children of a shard leaves the shard out, too: others read it.
        """
        children = [one for one in listed if key in one.parent_keys]
        is_left = bool(children) and not any(map(self._services.assigner.reads, children))
        if is_left:
            self._warn_of_left(key)
        return is_left

    def _warn_of_left(self, key: ShardKey) -> None:
        _LOGGER.warning(
            "%s has left the retention. This reader leaves it out, and does not know whether "
            "another one has read it to its end.",
            key,
        )

    async def _begin_stream(self, identity: StreamIdentity, now: datetime) -> None:
        services, arn = self._services, identity.arn
        initial = pinned_progress(ShardProgress(position=services.initial.of_stream(arn)), now)
        named = services.initial.of_shards(arn)
        # With positions for single shards, closed ones may be among them: list everything.
        since = None if named else initial.position.timestamp
        listed = await services.discovery.list_shards(arn, since=since)
        services.assigner.check_listing(listed)
        unread = [shard_id for shard_id, position in named.items() if position is not None]
        services.data_loss.check_named(arn, unread, listed)
        known = {
            shard.key: _ENDED
            if (position := named[shard.shard_id]) is None
            else pinned_progress(ShardProgress(position=position), now)
            for shard in listed
            if shard.shard_id in named
        }
        self._add_listed(listed, initial=initial, known=known)

    async def discover(
        self, *, in_use: Collection[ShardKey] = (), given_up: Collection[ShardKey] = ()
    ) -> None:
        """List the shards again: add what is new, forget what has left the retention.

        Shards ``in_use`` stay until their reader has seen the end. Shards ``given_up`` are
        read no further on purpose: losing them is no loss.

        Raises:
            DataLossError: a shard was not read to its end and is no longer listed, or some records
                have belonged to none of the shards for minutes.
        """
        listed_at = self._services.clock.now()
        for arn in self.identities:
            listed = await self._services.discovery.list_shards(arn)
            self._services.data_loss.audit(arn, listed, self._services.clock.monotonic())
            begins = {shard.key: shard.starting_sequence_number for shard in listed}
            known = {k: one for k, one in self.listed.items() if k.stream_arn == arn}
            gone = gone_shards(known, listed)
            # A stream that was created again has shards of the same ids, which begin elsewhere.
            if any(begins.get(k) != one.starting_sequence_number for k, one in known.items()):
                await self._services.data_loss.check_identity(arn)
            for key in (one for one in gone if one not in in_use):
                del self.listed[key]
                progress = self.progress.pop(key, None)
                if progress is not None and not (progress.is_ended or key in given_up):
                    self._services.data_loss.report_unread(key, progress)
            others = [k for k in self.others if k.stream_arn == arn]
            for key in gone_shards(others, listed):
                del self.others[key]
                progress = self.left.pop(key, None)
                if progress is not None and not progress.is_ended:
                    self._warn_of_left(key)
            self._add_listed(listed)
        self.listed_at = listed_at

    def add_children(self, stream_arn: str, children: Iterable[ChildShard]) -> None:
        """Add the shards that the last answer of a shard has named; a listing may be late.

        One whose other parent is not known is left to that parent's end, or to a listing: a parent
        that is not listed would count as one that has left the retention.
        """
        if stream_arn not in self.identities:
            return
        shards = [Shard.of_child(stream_arn, child) for child in children]
        known = self.listed.keys()
        new = [one for one in shards if one.key not in known and known >= {*one.parent_keys}]
        self._add_listed(new)

    def _add_listed(
        self,
        listed: Iterable[Shard],
        initial: ShardProgress | None = None,
        known: Progress | None = None,
    ) -> None:
        """Add shards, and how far some are ``known`` to have been read already."""
        here = {shard.key: shard for shard in listed}
        shards = {key: one for key, one in here.items() if self._services.assigner.reads(one)}
        self.others.update({key: one for key, one in here.items() if key not in shards})
        self.progress.update(known or {})
        # Of others, too: where a shard begins follows from where its parents and children are.
        begun = starting_progress(here.values(), self.left | self.progress, initial)
        self.progress.update(begun)
        left = self.others.keys() & self.progress.keys()
        self.left.update({key: self.progress.pop(key) for key in left})
        self.listed.update(shards)
        if added := begun.keys() & shards.keys():
            self._services.events(
                ShardsDiscovered(
                    stream_arn=next(iter(added)).stream_arn,
                    shard_ids=tuple(sorted(key.shard_id for key in added)),
                )
            )

    def startable(self) -> list[Shard]:
        """Return the shards that may be read now, in a fixed order within each stream."""
        return startable(
            self.listed.values(),
            self.progress,
            parents_first=self._services.discovery.config.parents_first,
        )

    def by_stream(self, progress: Progress) -> dict[str, StreamProgress]:
        """Return ``progress``, and what this reader leaves, as what ``resume`` takes."""
        shards: dict[str, dict[str, ShardProgress]] = {arn: {} for arn in self.identities}
        for key, one in {**self.left, **progress}.items():
            if key.stream_arn in shards:
                shards[key.stream_arn][key.shard_id] = one
        read = {
            arn: StreamProgress(identity=identity, shards=shards[arn])
            for arn, identity in self.identities.items()
        }
        return self._left_out | read

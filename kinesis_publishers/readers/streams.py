"""The streams that a fetcher reads: found at its start, added and dropped while it runs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from kinesis_publishers.assembly import Services
from kinesis_publishers.errors import KinesisPublishersError
from kinesis_publishers.model import StreamProgress
from kinesis_publishers.model.sources import stream_name_of
from kinesis_publishers.progress.checkpointer import Checkpointer
from kinesis_publishers.readers.guard import ConsumerGuard
from kinesis_publishers.readers.shard_table import ShardTable


class FetchedStreams:
    """Adds streams to what a fetcher reads, and drops them; the others are not touched.

    ``leave`` stops reading a stream (by ARN), and records what has been processed of it.

    Attributes:
        names: the streams, by name or ARN.
        are_changed: whether streams must be added or dropped.
    """

    def __init__(
        self,
        services: Services,
        resume: Mapping[str, StreamProgress] | None,
        checkpointer: Checkpointer | None,
        guard: ConsumerGuard | None,
        leave: Callable[[str], Awaitable[None]],
    ) -> None:
        self.names = services.streams
        self._factory = services.factory
        self._checkpointer, self._guard, self._leave = checkpointer, guard, leave
        self.shards = ShardTable(
            services,
            dict(resume or {}),
            leaves_others=checkpointer is not None,
            take_over=None if checkpointer is None else checkpointer.take_over,
        )
        self.is_prepared = False
        self._changes: deque[Callable[[], Awaitable[None]]] = deque()

    def renew(self) -> None:
        """Begin again with all streams, each where it is."""
        self.shards = self.shards.renewed()
        self.is_prepared = False

    async def prepare(self) -> None:
        """Find the streams, as :meth:`KinesisDataFetcher.prepare` says."""
        self._changes.clear()
        await self._add(*self.names)
        self.is_prepared = True

    def add(self, stream: str) -> None:
        """Make the next :meth:`change` add a stream, unless it is read already."""
        if self._name_of(stream) is None:
            self.names = (*self.names, stream)
            self._changes.append(partial(self._add, stream))

    def drop(self, stream: str) -> None:
        """Make the next :meth:`change` drop a stream; ``ValueError`` if it is not read."""
        known = self._name_of(stream)
        if known is None:
            raise ValueError(f"{stream} is not read: there are {', '.join(sorted(self.names))}")
        self.names = tuple(one for one in self.names if one != known)
        self._changes.append(partial(self._drop, known))

    def _name_of(self, stream: str) -> str | None:
        # As in the configuration, a name is unique.
        name = stream_name_of(stream)
        return next((one for one in self.names if stream_name_of(one) == name), None)

    @property
    def are_changed(self) -> bool:
        return bool(self._changes)

    async def change(self) -> None:
        """Add and drop what was asked for, in that order."""
        while self._changes:
            await self._changes[0]()
            self._changes.popleft()

    async def _add(self, *streams: str) -> None:
        added = await self.shards.add(*streams)
        await self.write_first_checkpoints()
        if self._guard is not None:
            # Before anything is registered: whenever this process is killed, either the guard holds
            # a lease on its consumers, or it has not made any.
            await asyncio.to_thread(self._guard.hold, self.shards.identities)
        await self._factory.prepare(added)

    async def _drop(self, stream: str) -> None:
        identities = self.shards.identities.items()
        for arn in [arn for arn, one in identities if stream in (arn, one.name)]:
            await self._leave(arn)
            self.shards.drop(arn)
            await self.write_first_checkpoints()

    async def write_first_checkpoints(self) -> None:
        """Write where new shards begin, before they are read."""
        if self._checkpointer is not None:
            shards = self.shards
            there, known = shards.others | shards.listed, shards.left | shards.progress
            try:
                await self._checkpointer.follow(shards.identities, there, known)
            except KinesisPublishersError as error:
                # It is written with the next round. What has no first checkpoint is not read.
                if not (self.is_prepared and self._checkpointer.stored.is_bearable(error)):
                    raise

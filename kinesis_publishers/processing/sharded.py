"""Records of each shard by themselves: ``async for shard in shards(properties)``."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self, cast

from kinesis_publishers.config import Properties, Scalar
from kinesis_publishers.model import Shard, ShardKey
from kinesis_publishers.processing.deliveries import ENDS, HookCall, Item
from kinesis_publishers.processing.feed import DeliveryFeed
from kinesis_publishers.processing.handed_out import HandedOut
from kinesis_publishers.processing.reading import RecordStream, read


def shards(
    properties: Properties | Mapping[str, Scalar] | None = None, **arguments: Any
) -> ShardStreams:
    """Read each shard of the configured streams by itself.

    Use it as ``async with shards(properties) as streams`` and ``async for stream in streams``: a
    :class:`ShardStream` comes when its shard has its first records. Let a task read each of them,
    and ask for the next stream again and again: that also hands on what comes for the others. A
    shard whose records no task takes is read no further, and holds up no other. A child comes when
    the records of its parents have been processed.

    A shard that another worker has taken ends its stream; if it returns, it comes again. One that
    is handed over lets its stream wait until it returns.

    The arguments and errors are those of :func:`~kinesis_publishers.read`.
    """
    return ShardStreams(read(properties, **arguments))


class ShardStream(RecordStream[Any]):
    """The records of one shard, in their order; used like a :class:`RecordStream`.

    Attributes:
        shard: the shard.
    """

    shard: Shard


class ShardStreams(AsyncIterator[ShardStream]):
    """The shards that :func:`shards` reads; opened by ``async with``, for one task."""

    def __init__(self, all_records: RecordStream[Any]) -> None:
        self._all = all_records
        self._open: dict[ShardKey, _ShardFeed] = {}

    async def __aenter__(self) -> Self:
        await self._all.__aenter__()
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        for one in self._open.values():
            one.end()
        await self._all.__aexit__(kind, error, traceback)

    def pause(self) -> None:
        """Read nothing more, and let the next records of all shards wait; leases are kept."""
        self._all.pause()

    def resume(self) -> None:
        """Continue after :meth:`pause`."""
        self._all.resume()

    def stop(self) -> None:
        """End all streams after their current records."""
        self._all.stop()

    async def __anext__(self) -> ShardStream:
        """Return the next shard; what comes for the others meanwhile goes to their streams."""
        feed = self._all.feed
        while (item := await feed.next()) is not None:
            key = item.key if isinstance(item, HandedOut) else item.shard
            is_end = isinstance(item, HookCall) and item.hook in ENDS
            open_one = self._open.get(key) if key is not None else None
            if open_one is not None and (is_end or isinstance(item, HandedOut)):
                open_one.add(item)
                if is_end:
                    del self._open[open_one.shard.key]
            elif isinstance(item, HandedOut):
                self._open[item.key] = one = _ShardFeed(feed, item.work.delivery.shard)
                one.add(item)
                return self._stream_of(one)
            else:
                await self._all.call_hook(item)
        for one in self._open.values():
            one.end()
        raise StopAsyncIteration

    def _stream_of(self, one: _ShardFeed) -> ShardStream:
        # To a stream, the part of a feed is a feed.
        stream = self._all.part(cast("DeliveryFeed", one), ShardStream)
        stream.shard = one.shard
        return stream


class _ShardFeed:
    """The part of a feed that is about one shard; what it does not define is the feed's."""

    def __init__(self, feed: DeliveryFeed, shard: Shard) -> None:
        self._feed, self.shard = feed, shard
        self._items: deque[Item] = deque()
        self._has_news, self._is_over = asyncio.Event(), False
        feed.followers.add(self._has_news)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        # The others are still read.
        self._feed.raise_if_store_failed()

    def add(self, item: Item) -> None:
        """Hand on an item; the end of the shard is the last one."""
        self._items.append(item)
        self._has_news.set()
        if isinstance(item, HookCall):
            self.end()

    def end(self) -> None:
        """End the stream after what waits for it."""
        self._is_over = True
        self._has_news.set()

    async def next(self) -> Item | None:
        """Return the next item of the shard, ``None`` at its end."""
        while not self._feed.is_stopping:
            if self._items:
                return self._items.popleft()
            if self._is_over or self._feed.raise_if_over():
                break
            self._has_news.clear()
            await self._has_news.wait()
        self._feed.followers.discard(self._has_news)
        return None

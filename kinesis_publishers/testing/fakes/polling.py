"""The named behaviours of polling: each returns a data plane that shows one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.testing.fakes.planes import FakeDataPlane
from kinesis_publishers.testing.fakes.samples import SUCCESSOR, sample_records
from kinesis_publishers.testing.fakes.shards import (
    Answer,
    ExpiringIterators,
    ShardBehaviour,
    StoredShard,
    ThrottledCalls,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers.model import Record, StartingPosition

__all__ = [
    "empty_shard",
    "expired_iterator_after",
    "records_in_calls",
    "throttled",
]


def empty_shard(answers: int) -> FakeDataPlane:
    """A shard without records that ends with its ``answers``-th answer."""
    return FakeDataPlane(_EmptyShard(answers))


def records_in_calls(
    records: int | Sequence[Record], calls: int, millis_behind: int = 0
) -> FakeDataPlane:
    """A shard that hands out ``records`` over ``calls`` GetRecords and has then ended.

    The answers are as equal in size as they can be. Reading may begin at any position.

    Args:
        records: how many of :func:`~kinesis_publishers.testing.fakes.sample_records`, or these.
        calls: how many answers they come in, at least one record each.
        millis_behind: the lag of every answer but the last, which is at the tip.
    """
    return FakeDataPlane(_shard_in_calls(records, calls, millis_behind))


def expired_iterator_after(answers: int, *, records: int | Sequence[Record] = 100) -> FakeDataPlane:
    """A shard whose iterator expires, once, after so many answers.

    It holds ``records``, in two answers more than that, and has then ended. The test fails if
    GetRecords is called again without a new iterator.
    """
    shard = _shard_in_calls(records, answers + 2, 0)
    return FakeDataPlane(ExpiringIterators(shard, after=answers))


def throttled(times: int, *, records: int | Sequence[Record] = 10) -> FakeDataPlane:
    """A shard that refuses ``times`` GetRecords, then hands out ``records`` and has ended."""
    return FakeDataPlane(ThrottledCalls(_shard_in_calls(records, 1, 0), times=times))


def _shard_in_calls(records: int | Sequence[Record], calls: int, millis_behind: int) -> StoredShard:
    held = sample_records(records) if isinstance(records, int) else list(records)
    if len(held) < calls:
        raise ValueError(f"{len(held)} records cannot come in {calls} answers of at least one each")
    return StoredShard(
        held,
        page_ends=[len(held) * number // calls for number in range(1, calls + 1)],
        is_closed=True,
        child_shards=(SUCCESSOR,),
        millis_behind_latest=millis_behind,
    )


class _EmptyShard(ShardBehaviour):
    def __init__(self, answers: int) -> None:
        self._answers_left = answers

    async def locate(self, position: StartingPosition) -> int:
        return 0

    async def read(self, index: int, limit: int) -> Answer:
        self._answers_left -= 1
        if self._answers_left > 0:
            return Answer(next_index=0)
        return Answer(next_index=None, child_shards=(SUCCESSOR,))

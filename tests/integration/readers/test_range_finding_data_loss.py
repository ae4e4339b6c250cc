"""Days of simulated time: what the retention removes unread is an error, what was idle is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import Properties
from kinesis_publishers.errors import (
    DataLossError,
    PositionTrimmedError,
    StreamNotFoundError,
    StreamRecreatedError,
)
from kinesis_publishers.events import DataLossTolerated
from kinesis_publishers.readers import Ends, KinesisRangeFinder, ReadLimit
from kinesis_publishers.testing.local_kinesis import Behaviour
from tests.integration.readers.simulated_world import STREAM, SimulatedWorld

if TYPE_CHECKING:
    from kinesis_publishers import Event

HOUR = 3600.0
PROPERTIES = Properties.parse(
    {
        "aws.region": "us-east-1",
        "kinesis.streams": STREAM,
        "kinesis.stream.describe.maxretries": "1",
        "kinesis.list.shards.maxretries": "1",
    }
)


class Days(SimulatedWorld):
    """A finder that looks, with days going by."""

    def __init__(self) -> None:
        super().__init__(Behaviour())
        self.events: list[Event] = []
        self.finder = self.new_finder()

    def new_finder(
        self, *, fails_on_data_loss: bool = True, resume: bool = False
    ) -> KinesisRangeFinder:
        parts = self.parts(PROPERTIES, self.events.append, fails_on_data_loss=fails_on_data_loss)
        return KinesisRangeFinder(parts, resume=self.finder.progress if resume else None)

    async def begin(self) -> None:
        await self.within_time(self.finder.prepare())

    async def restart(self, *, fails_on_data_loss: bool = True) -> None:
        self.finder = self.new_finder(fails_on_data_loss=fails_on_data_loss, resume=True)
        await self.begin()

    async def look(self) -> Ends:
        await self.clock.advance(1.0)
        return await self.within_time(self.finder.find(ReadLimit()))

    async def look_until_found(self, shards: int) -> Ends:
        """Look again and again, until a round has something new of so many shards."""
        for _ in range(30):
            found = await self.look()
            if len(found) >= shards:
                return found
        raise AssertionError("nothing was found")

    async def look_for_hours(self, hours: int) -> None:
        for _ in range(hours):
            await self.clock.advance(HOUR)
            assert not await self.look()

    @property
    def losses(self) -> list[str]:
        return [one.message for one in self.events if isinstance(one, DataLossTolerated)]

    async def look_for_what_is_left(self) -> Ends:
        """Look until both shards have something new; it begins with what they still hold."""
        ends = await self.look_until_found(2)
        with self.service.lock:
            records = self.service.state.read(STREAM)
        left = {of[0].sequence_number for of in records.values() if of}
        assert {end.first.sequence_number for end in ends.values() if end.first} == left
        return ends


@pytest.fixture
async def days() -> Days:
    """A query that has read everything so far."""
    days = Days()
    days.put(30)
    await days.begin()
    assert await days.look()
    return days


async def test_records_that_were_removed_unread_are_an_error_that_says_what_to_do(
    days: Days,
) -> None:
    days.put(30)
    await days.clock.advance(30 * HOUR)
    days.put(30)
    await days.restart()
    with pytest.raises(PositionTrimmedError, match=r"orders/shardId-0.*keeps records for 24 hours"):
        await days.look()


async def test_tolerated_loss_is_reported_and_what_is_left_is_read_from_its_first_record(
    days: Days,
) -> None:
    days.put(30)
    await days.clock.advance(30 * HOUR)
    days.put(30)
    await days.restart(fails_on_data_loss=False)
    ends = await days.look_for_what_is_left()
    assert {message.partition(":")[0] for message in days.losses} == {str(key) for key in ends}


@pytest.mark.parametrize("is_restarted", [False, True], ids=["at work", "after a restart"])
async def test_a_shard_that_is_idle_for_longer_than_the_retention_has_lost_nothing(
    days: Days, is_restarted: bool
) -> None:
    await days.look_for_hours(30)
    days.put(30)
    if is_restarted:
        await days.restart()
    await days.look_for_what_is_left()
    assert days.losses == []


async def test_a_shard_that_has_left_the_retention_unread_is_an_error(days: Days) -> None:
    days.put(30)
    days.reshard(3)
    await days.clock.advance(30 * HOUR)
    with pytest.raises(DataLossError, match=r"shardId-0.*not read to its end.*no longer listed"):
        await days.restart()


async def test_where_that_is_tolerated_its_children_are_read(days: Days) -> None:
    days.put(30)
    days.reshard(4)
    await days.clock.advance(30 * HOUR)
    days.put(60)
    await days.restart(fails_on_data_loss=False)
    await days.look_until_found(3)
    assert len(days.losses) == 2


async def test_a_stream_that_is_deleted_under_the_query_is_named(days: Days) -> None:
    with days.service.lock:
        state = days.service.state
        state.delete(state.find(STREAM))
    await days.clock.advance(60.0)
    with pytest.raises(StreamNotFoundError, match="orders"):
        await days.look()


def keep_for(days: Days, hours: int) -> None:
    with days.service.lock:
        days.service.state.find_active(STREAM).retention_hours = hours


async def test_a_retention_that_is_shortened_under_a_query_that_is_behind_is_an_error(
    days: Days,
) -> None:
    keep_for(days, 168)
    for _ in range(3):
        days.put(30)
        await days.clock.advance(24 * HOUR)
    days.put(30)
    keep_for(days, 24)
    with pytest.raises(PositionTrimmedError, match=r"removed unread|no longer available"):
        await days.look_until_found(2)


def create_again(days: Days) -> None:
    with days.service.lock:
        state = days.service.state
        state.delete(state.find(STREAM))
        state.create(STREAM, "PROVISIONED", 2)


@pytest.mark.parametrize("seconds", [0.0, 60.0, HOUR])
async def test_a_stream_that_is_created_again_under_the_query_is_an_error_that_says_so(
    days: Days, seconds: float
) -> None:
    create_again(days)
    days.put(30)
    await days.clock.advance(seconds)
    with pytest.raises(StreamRecreatedError, match="deleted and created again"):
        await days.look_until_found(2)


async def test_where_that_is_tolerated_the_new_stream_is_read_from_its_first_record(
    days: Days,
) -> None:
    await days.restart(fails_on_data_loss=False)
    create_again(days)
    days.put(30)
    await days.look_for_what_is_left()
    (loss,) = days.losses
    assert "deleted and created again" in loss


async def test_shards_that_are_far_behind_ask_for_the_retention_together(days: Days) -> None:
    keep_for(days, 168)
    days.reshard(8)
    days.put(400)
    for _ in range(30):
        await days.look()
    await days.clock.advance(60.0)
    days.put(400)
    await days.clock.advance(48 * HOUR)
    began_at = days.clock.monotonic()
    await days.look_until_found(5)
    assert days.clock.monotonic() - began_at < 4.0

"""What ``tail`` shows on a terminal: approved screens, in ``screens/``.

A change of a screen is a change of what people see.
``python -m tests.unit.cli.test_cli_tail_screens`` writes them again: look at the difference.
"""

from __future__ import annotations

import asyncio
import io
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeAlias

import pytest
from attrs import evolve
from rich.console import Console

from kinesis_publishers import RecordBatch, SequenceNumber, Shard, ShardProgress, StartingPosition
from kinesis_publishers.cli.tail.screen import Screen
from kinesis_publishers.cli.tail.session import LiveTable
from kinesis_publishers.engine.delivery import ShardStatus
from kinesis_publishers.model import StreamIdentity, StreamProgress
from kinesis_publishers.testing.manual_clock import ManualClock

_APPROVED: Final = Path(__file__).parent / "screens"
_WIDTHS: Final = (70, 100, 140)
_HEIGHT: Final = 24
_ORDER: Final = b'{"order": %d, "customer": "customer-%d", "path": "C:\\\\new", "price": 12.50}'


class Desk:
    """A tail at a clock that stands still unless it is told to go on; it reads what it is given."""

    def __init__(self, *streams: str, newest: int = 0) -> None:
        self.clock = ManualClock()
        begin = Screen(begin=StartingPosition.latest(), place="local server", has_keys=True)
        self.table = LiveTable(
            Console(file=io.StringIO()), begin, deque(maxlen=newest), clock=self.clock
        )
        self._arns = [f"arn:aws:kinesis:eu-west-1:123456789012:stream/{one}" for one in streams]
        self._progress: dict[Shard, ShardProgress] = {}
        self._reading: dict[Shard, ShardStatus] = {}
        self._count = 0

    def shards(self, count: int, *, stream: int = 0) -> list[Shard]:
        """Add open shards, which are read to their tips."""
        shards = [
            Shard(stream_arn=self._arns[stream], shard_id=f"shardId-{number:012}")
            for number in range(count)
        ]
        for shard in shards:
            self._progress[shard] = ShardProgress(
                position=StartingPosition.at_timestamp(self.clock.now())
            )
            self.answers(shard)
        return shards

    def waits(self, shard: Shard) -> None:
        self._progress[shard] = ShardProgress(position=StartingPosition.trim_horizon())

    def ends(self, shard: Shard) -> None:
        self._progress[shard] = evolve(self._progress[shard], is_ended=True)
        del self._reading[shard]

    def answers(self, shard: Shard, *, behind: float = 0.0) -> None:
        """Let the service answer: it says how far the answer is behind the tip, in seconds."""
        status = ShardStatus(
            shard=shard,
            progress=self._progress[shard],
            millis_behind_latest=int(behind * 1000),
            read_until=self.clock.now() - timedelta(seconds=behind),
        )
        self._reading[shard] = status
        self.table.observe(status)

    async def reads(self, shard: Shard, *payloads: bytes, behind: float = 0.0) -> None:
        numbers = []
        for _ in payloads:
            self._count += 1
            numbers.append(
                f"{49680446949996045053483017002410023063463770344411627538 + self._count}"
            )
        arrived = self.clock.now() - timedelta(seconds=behind)
        batch = RecordBatch(
            shard=shard,
            requested_at=self.clock.now(),
            payloads=payloads,
            partition_keys=["k"] * len(payloads),
            sequence_numbers=numbers,
            arrival_epoch_seconds=[arrived.timestamp()] * len(payloads),
        )
        await self.table.show(batch)
        self._progress[shard] = ShardProgress(
            position=StartingPosition.after(SequenceNumber(numbers[-1]))
        )
        self.answers(shard, behind=behind)

    async def reads_for(self, seconds: int, rates: dict[Shard, int], **how: float) -> None:
        """Read so many orders of each shard in each of some seconds, give or take a half."""
        for second in range(seconds):
            await self.clock.advance(1.0)
            for place, (shard, rate) in enumerate(rates.items()):
                count = rate * (4 + (second // 3 + place) ** 2 % 5) // 6
                orders = [_ORDER % (self._count + one, one % 97) for one in range(count)]
                await self.reads(shard, *orders, **how)

    def screen(self) -> Screen:
        streams = {}
        for arn in self._arns:
            identity = StreamIdentity(name="", arn=arn, created_at=self.clock.now())
            shards = {
                shard.shard_id: progress
                for shard, progress in self._progress.items()
                if shard.stream_arn == arn
            }
            streams[arn] = StreamProgress(identity=identity, shards=shards)
        return self.table.screen(streams, self._reading.values())


async def idle() -> Desk:
    desk = Desk("orders")
    shards = desk.shards(2)
    await desk.clock.advance(75.0)
    for shard in shards:
        desk.answers(shard)
    return desk


async def one_hot_shard() -> Desk:
    desk = Desk("orders")
    first, *others = desk.shards(4)
    await desk.reads_for(40, dict.fromkeys(others, 30) | {first: 400})
    desk.table.press("s")
    return desk


async def near_the_limit_and_behind() -> Desk:
    desk = Desk("orders")
    busy, late, later = desk.shards(3)
    await desk.reads_for(20, {busy: 20})
    await desk.reads(busy, *[b"<order>" * 14_000] * 100)
    await desk.reads(late, b"\x1b[31mnot a colour\x07\n", behind=12.5)
    await desk.reads(later, b"\x08\x96\x01\xff\xfe binary", behind=7384.0)
    return desk


async def paused() -> Desk:
    desk = Desk("orders")
    (shard,) = desk.shards(1)
    await desk.reads_for(10, {shard: 10})
    desk.screen()
    desk.table.press(" ")
    await desk.reads_for(10, {shard: 500})
    return desk


async def closed_shards() -> Desk:
    desk = Desk("orders")
    left, right, child = desk.shards(3)
    await desk.reads_for(5, {left: 10, right: 10, child: 4})
    desk.ends(left)
    desk.waits(evolve(child, shard_id="shardId-000000000003"))
    return desk


async def more_shards_than_lines() -> Desk:
    desk = Desk("orders", newest=2)
    shards = desk.shards(40)
    await desk.reads_for(4, {shard: 2 + place % 9 for place, shard in enumerate(shards)})
    for _ in range(2):
        desk.table.press("s")
    desk.table.press("r")
    return desk


async def several_streams() -> Desk:
    desk = Desk("orders", "a-stream-with-a-name-of-many-words")
    await desk.reads_for(4, dict.fromkeys(desk.shards(2) + desk.shards(1, stream=1), 12))
    return desk


_Scene: TypeAlias = Callable[[], Awaitable[Desk]]
_SCENES: Final[dict[str, _Scene]] = {
    scene.__name__: scene
    for scene in (
        idle,
        one_hot_shard,
        near_the_limit_and_behind,
        paused,
        closed_shards,
        more_shards_than_lines,
        several_streams,
    )
}


async def drawn(scene: _Scene) -> str:
    desk = await scene()
    screen = evolve(desk.screen(), height=_HEIGHT)
    parts = []
    for width in _WIDTHS:
        console = Console(file=io.StringIO(), width=width, color_system=None)
        with console.capture() as capture:
            console.print(screen)
        lines = [line.rstrip() for line in capture.get().splitlines()]
        assert len(lines) <= _HEIGHT
        parts += [f"[{width} columns]", *lines, ""]
    return "\n".join(parts)


@pytest.mark.parametrize("name", _SCENES)
async def test_the_screen_is_the_approved_one(name: str) -> None:
    # Otherwise: python -m tests.unit.cli.test_cli_tail_screens
    approved = (_APPROVED / f"{name}.txt").read_text(encoding="utf-8")
    assert await drawn(_SCENES[name]) == approved


def test_the_documentation_shows_an_approved_screen() -> None:
    page = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text(encoding="utf-8")
    shown = page.partition("screens/one_hot_shard.txt -->\n\n```text\n")[2].partition("\n```")[0]
    approved = (_APPROVED / "one_hot_shard.txt").read_text(encoding="utf-8")
    assert f"[100 columns]\n{shown}\n\n" in approved


def test_no_approved_screen_is_left_over() -> None:
    assert {path.stem for path in _APPROVED.iterdir()} == set(_SCENES)


if __name__ == "__main__":
    for _name, _scene in _SCENES.items():
        (_APPROVED / f"{_name}.txt").write_text(asyncio.run(drawn(_scene)), encoding="utf-8")

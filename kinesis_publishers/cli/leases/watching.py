"""``leases watch``: who reads which shard, how far behind, and how shards move, as it happens."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from datetime import datetime
from typing import TYPE_CHECKING, Final

from attrs import define, field
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from kinesis_publishers.cli.leases.rows import (
    Rows,
    describe_owner,
    describe_progress,
    load_rows,
    open_store,
    shards_of,
)
from kinesis_publishers.cli.shared.console import new_table
from kinesis_publishers.cli.shared.formats import format_behind, format_bytes
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import Properties
from kinesis_publishers.leases.rules import lease_of
from kinesis_publishers.model import ShardKey

if TYPE_CHECKING:
    from rich.table import Table

_PERIOD_SECONDS: Final = 1.0
_NEWEST_MOVES: Final = 8


async def watch(properties: Properties, console: Console, clock: Clock) -> None:
    """Show the leases once a second, until cancelled."""
    board = LeaseBoard()
    # The last state stays on the terminal.
    async with open_store(properties) as store:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                rows = shards_of(await load_rows(store, properties))
                live.update(board.drawn(rows, clock.now()), refresh=True)
                await clock.sleep(_PERIOD_SECONDS)


@define
class LeaseBoard:
    """Draws rows, and remembers how shards have moved from one drawing to the next."""

    _owners: dict[ShardKey, str] = field(factory=dict, init=False)
    _moves: deque[str] = field(factory=lambda: deque(maxlen=_NEWEST_MOVES), init=False)

    def drawn(self, rows: Rows, now: datetime) -> RenderableType:
        """Return the workers, the shards that have not ended, and the newest moves."""
        self._note_moves(rows, now)
        if not rows:
            return Text("The application has stored nothing for these streams.")
        running = {k: row for k, row in rows.items() if not row.checkpoint.progress.is_ended}
        ended = len(rows) - len(running)
        rest = [Text(f"and {ended} shards that have ended")] if ended else []
        moves = [Text(line, no_wrap=True, overflow="ellipsis") for line in self._moves]
        return Group(_workers(running), _shards(running, now), *rest, *moves)

    def _note_moves(self, rows: Rows, now: datetime) -> None:
        owners = {key: describe_owner(lease_of(row)) for key, row in rows.items()}
        for key, owner in owners.items():
            before = self._owners.get(key)
            if before not in (None, owner):
                self._moves.append(f"{now:%H:%M:%S}  {key}  {before} => {owner}")
        self._owners = owners


def _workers(rows: Rows) -> Table:
    leases, leaving, rates = Counter[str](), Counter[str](), defaultdict[str, int](int)
    for row in rows.values():
        lease = lease_of(row)
        holder = lease.holder or "-"
        leases[holder] += 1
        leaving[holder] += lease.leaving is not None
        rates[holder] += lease.bytes_per_second or 0
    table = new_table("Worker", "Shards", "Hands over", "Bytes/s", no_wrap=True)
    for worker, count in sorted(leases.items()):
        handed = str(leaving[worker] or "")
        table.add_row(worker, str(count), handed, format_bytes(rates[worker]))
    return table


def _shards(rows: Rows, now: datetime) -> Table:
    table = new_table("Shard", "Owner", "Behind", "Bytes/s", "Position", no_wrap=True)
    has_one_stream = len({key.stream_arn for key in rows}) == 1
    for key, row in rows.items():
        as_of, rate = row.checkpoint.progress.as_of, lease_of(row).bytes_per_second
        behind = None if as_of is None else max(0.0, (now - as_of).total_seconds())
        table.add_row(
            key.shard_id if has_one_stream else str(key),
            describe_owner(lease_of(row)),
            format_behind(behind),
            "" if rate is None else format_bytes(rate),
            describe_progress(row.checkpoint.progress),
        )
    return table

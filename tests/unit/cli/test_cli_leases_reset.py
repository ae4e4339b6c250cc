"""``leases reset``: from where shards are read again, and what has to be read again with them."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import SequenceNumber, ShardProgress, StartingPosition
from kinesis_publishers.cli.leases.changing import changes, reset_targets
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.model import (
    Checkpoint,
    CheckpointVersion,
    Lease,
    PositionType,
    StoredCheckpoint,
)
from kinesis_publishers.testing.fakes import sample_shard
from tests.unit.cli.lease_support import (
    BEGINNING,
    WITH_LEASES,
    Application,
    after,
    shard_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable


_NOW = datetime(2026, 11, 22, tzinfo=UTC)
_HORIZON = StartingPosition.trim_horizon()
# 0 was split into 1 and 2, which were merged to 3; 4 is alone.
_LISTED = [
    sample_shard(0, is_closed=True),
    sample_shard(1, parent=0, is_closed=True),
    sample_shard(2, parent=0, is_closed=True),
    sample_shard(3, parent=1, adjacent_parent=2),
    sample_shard(4),
]


def reset(
    progress: dict[int, ShardProgress], selected: list[int], position: StartingPosition
) -> dict[int, ShardProgress]:
    """Return the new progress of the shards of ``_LISTED`` that change, by their numbers."""
    keys = {number: _LISTED[number].key for number in range(len(_LISTED))}
    rows = {
        keys[number]: StoredCheckpoint(
            checkpoint=Checkpoint(shard=keys[number], stream_created_at=_NOW, progress=one),
            version=CheckpointVersion(number=1, writer="w"),
        )
        for number, one in progress.items()
    }
    listed = {shard.key: shard for shard in _LISTED}
    chosen = {keys[number]: rows[keys[number]] for number in selected}
    new = changes(rows, reset_targets(chosen, position, listed, _NOW))
    return {number: new[key].progress for number, key in keys.items() if key in new}


_READ = {
    0: after(9).ended(),
    1: after(19).ended(),
    2: after(29).ended(),
    3: after(39),
    4: after(49),
}


def test_what_follows_a_shard_that_is_read_again_is_read_again_from_its_beginning() -> None:
    position = StartingPosition.after(SequenceNumber("5"))
    assert reset(_READ, [0], position) == {
        0: ShardProgress(position=position),
        **dict.fromkeys((1, 2, 3), BEGINNING),
    }


def test_one_parent_of_a_merged_shard_is_enough() -> None:
    assert reset(_READ, [1], _HORIZON) == dict.fromkeys((1, 3), BEGINNING)


def test_shards_that_are_selected_get_the_position_that_was_asked_for() -> None:
    position = StartingPosition.at_timestamp(_NOW)
    expected = ShardProgress(position=position)
    assert reset(_READ, [0, 3], position) == {
        0: expected,
        3: expected,
        **dict.fromkeys((1, 2), BEGINNING),
    }


def test_a_shard_that_has_not_ended_has_nothing_that_was_read_after_it() -> None:
    progress = {0: after(9).ended(), 1: after(19), 2: after(29).ended(), 3: BEGINNING}
    assert reset(progress, [1], _HORIZON) == {1: BEGINNING}


def test_at_the_tip_there_is_nothing_to_read_again() -> None:
    latest = ShardProgress(position=StartingPosition.at_timestamp(_NOW), as_of=_NOW)
    assert reset(_READ, [0], StartingPosition.latest()) == {0: latest}


def test_descendants_without_a_row_get_none() -> None:
    assert reset({0: after(9).ended(), 1: after(19)}, [0], _HORIZON) == dict.fromkeys(
        (0, 1), BEGINNING
    )


def test_a_shard_that_is_there_already_does_not_change() -> None:
    assert reset({4: BEGINNING}, [4], _HORIZON) == {}


def test_the_records_of_a_key_come_again_in_their_order(application: Application) -> None:
    places, expected = [], []
    # Of two shards, of the one that they are merged to, and of one of its halves.
    for shard_count in (2, 1, 2):
        application.server.reshard("orders", shard_count)
        records = [("key", b"%d" % number) for number in range(len(expected), len(expected) + 10)]
        places += application.server.put_many("orders", records)
        expected += [data for _, data in records]
    assert application.read(30) == expected
    first, _ = places[0]
    result = application("reset", first, "--to", "TRIM_HORIZON", "--yes")
    assert result.exit_code == 0, result.stderr
    assert application.read(30) == expected


def test_the_tip_is_pinned_to_the_instant_of_the_command(application: Application) -> None:
    application.server.put_many("orders", [("key", b"old")])
    application.save(*(application.checkpoint(number) for number in (0, 1, "*")))
    application.save(application.checkpoint("*", BEGINNING.ended()))
    assert application("reset", "--all", "--to", "latest", "--yes").exit_code == 0
    progress = application.row(0).progress
    assert progress.position.type is PositionType.AT_TIMESTAMP
    assert progress.position.timestamp == progress.as_of == application.row(1).progress.as_of
    application.server.put_many("orders", [("key", b"new")])
    assert application.read(1) == [b"new"]


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("TRIM_HORIZON", _HORIZON),
        ("AT_TIMESTAMP:2026-11-22T00:00:00Z", StartingPosition.at_timestamp(_NOW)),
        (f"AT_TIMESTAMP:{_NOW.timestamp():.0f}", StartingPosition.at_timestamp(_NOW)),
        ("AT_SEQUENCE_NUMBER:495", StartingPosition.at(SequenceNumber("495"))),
        ("after_sequence_number:495", StartingPosition.after(SequenceNumber("495"))),
    ],
)
def test_each_kind_of_position(
    application: Application, text: str, position: StartingPosition
) -> None:
    lease = Lease(parents=("p",), watermark=_NOW, is_idle=True)
    application.save(application.checkpoint(0, after(7), lease))
    assert application("reset", shard_name(0), "--to", text, "--yes").exit_code == 0
    assert application.row(0) == application.checkpoint(
        0, ShardProgress(position=position), Lease(parents=("p",))
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--all", "--to", "AT_SEQUENCE_NUMBER:7"], "is a position of one shard: name one"),
        (["--all", "--to", "YESTERDAY"], "got 'YESTERDAY', expected TRIM_HORIZON, LATEST"),
        (["--all", "--to", "AT_TIMESTAMP"], "expected TRIM_HORIZON, LATEST"),
        (["--all", "--to", "AT_TIMESTAMP:soon"], "expected TRIM_HORIZON, LATEST"),
        (["--all", "--to", "TRIM_HORIZON:7"], "expected TRIM_HORIZON, LATEST"),
        (["a", "--to", "AT_SEQUENCE_NUMBER:x7"], "expected TRIM_HORIZON, LATEST"),
        (["--to", "LATEST"], "Choose shards"),
        (["--all", "--to", "AT_TIMESTAMP:9999-01-01T00:00:00Z"], "lies in the future"),
    ],
)
def test_wrong_usage(application: Application, arguments: list[str], message: str) -> None:
    application.save(application.checkpoint(0))
    result = application("reset", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_dry_run_shows_what_would_change_and_changes_nothing(application: Application) -> None:
    application.save(application.checkpoint(0, after(7)), application.checkpoint(1, after(8)))
    before = application.rows()
    result = application("reset", "--all", "--to", "TRIM_HORIZON", "--dry-run")
    assert (result.exit_code, result.stderr) == (0, "Nothing was changed.\n")
    assert [line.split() for line in result.stdout.splitlines()[2:]] == [
        [shard_name(0), "-", "-", "1", "7", "TRIM_HORIZON"],
        [shard_name(1), "-", "-", "1", "8", "TRIM_HORIZON"],
    ]
    assert application.rows() == before


def test_it_asks_first(application: Application) -> None:
    application.save(application.checkpoint(0, after(7)))
    refused = application("reset", "--all", "--to", "TRIM_HORIZON", stdin="\n")
    assert refused.exit_code == 1
    assert "Not confirmed: nothing was changed" in refused.stderr
    assert application.row(0).progress == after(7)


def test_a_shard_that_has_left_the_retention_is_left_out(application: Application) -> None:
    application.save(application.checkpoint(0, after(7)), application.checkpoint("shardId-gone"))
    result = application("reset", "--all", "--to", "TRIM_HORIZON", "--yes")
    assert "Left out, for they have left the retention: orders/shardId-gone." in result.stderr
    assert application.row(0).progress == BEGINNING


@pytest.mark.parametrize("way", ["--yes", "--dry-run"])
def test_while_a_worker_renews_the_lease_nothing_is_changed(
    application: Application, way: str
) -> None:
    lease = Lease(owner="host/1")
    application.save(
        application.checkpoint(0, after(7), lease), application.checkpoint(1, after(8))
    )
    with application.worker(0):
        result = application("reset", "--all", "--to", "TRIM_HORIZON", way, *WITH_LEASES)
    assert result.exit_code == 1
    assert "TRIM_HORIZON" in result.stdout
    assert f"being read: orders/{shard_name(0)} (host/1). Stop the workers" in result.stderr
    assert application.row(0) == application.checkpoint(0, after(7), lease)
    assert application.row(1).progress == after(8)


def test_the_lease_of_a_dead_worker_stops_nobody(application: Application) -> None:
    application.save(application.checkpoint(0, after(7), Lease(owner="host/1", leaving="host/2")))
    result = application("reset", "--all", "--to", "TRIM_HORIZON", "--yes", *WITH_LEASES)
    assert result.exit_code == 0
    assert "Waiting 1 s to see whether workers renew" in result.stderr
    assert application.row(0) == application.checkpoint(0, BEGINNING, Lease())


def test_a_worker_that_takes_the_shard_at_the_last_moment_keeps_it(
    application: Application, before_writes: list[Callable[[], None]]
) -> None:
    application.save(application.checkpoint(0, after(7), Lease()))
    with ExitStack() as stack:

        def take() -> None:
            application.own(0, "host/1")
            stack.enter_context(application.worker(0))

        before_writes.append(take)
        result = application("reset", "--all", "--to", "TRIM_HORIZON", "--yes", *WITH_LEASES)
    assert result.exit_code == 1
    assert f"being read: orders/{shard_name(0)} (host/1)" in result.stderr
    assert application.row(0) == application.checkpoint(0, after(7), Lease(owner="host/1"))


@pytest.mark.parametrize("is_there", [False, True])
def test_a_worker_that_begins_while_others_are_waited_for_is_not_reset(
    application: Application, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    position = ShardProgress(position=StartingPosition.at_timestamp(_NOW))
    application.save(
        application.checkpoint(0, after(7), Lease(owner="dead")),
        application.checkpoint(1, position if is_there else after(8), Lease()),
    )
    taken = application.checkpoint(1, after(9), Lease(owner="host/1"))
    sleep = SystemClock.sleep

    async def begin(clock: SystemClock, seconds: float) -> None:
        monkeypatch.setattr(SystemClock, "sleep", sleep)
        await asyncio.to_thread(application.save, taken)
        await sleep(clock, seconds)

    monkeypatch.setattr(SystemClock, "sleep", begin)
    to = f"AT_TIMESTAMP:{_NOW.isoformat()}"
    result = application("reset", "--all", "--to", to, "--yes", *WITH_LEASES)
    assert result.exit_code == 1
    assert f"being read: orders/{shard_name(1)} (host/1)" in result.stderr
    assert application.row(0).progress == after(7)
    assert application.row(1).progress == after(9)


def test_force_takes_the_shard_from_a_worker_that_renews_it(
    application: Application, before_writes: list[Callable[[], None]]
) -> None:
    lease = Lease(owner="host/1")
    application.save(application.checkpoint(0, after(7), lease))
    before_writes.append(lambda: application.save(application.checkpoint(0, after(8), lease)))
    result = application("reset", "--all", "--to", "TRIM_HORIZON", "--yes", "--force")
    assert (result.exit_code, result.stderr) == (0, "Positions set: 1.\n")
    assert application.row(0) == application.checkpoint(0, BEGINNING, Lease())


def test_a_single_reader_that_begins_at_the_last_moment_reads_on(
    application: Application, before_writes: list[Callable[[], None]]
) -> None:
    application.save(application.checkpoint(0, after(7)))
    application.save(application.checkpoint("*", BEGINNING.ended()))
    begun = application.checkpoint("*")
    before_writes.append(lambda: application.save(begun))
    result = application("reset", "--all", "--to", "LATEST", "--yes")
    assert result.exit_code == 1
    assert "which has not noted that it has stopped" in result.stderr
    assert application.row(0).progress == after(7)


def test_a_single_reader_that_has_not_stopped_is_refused_or_replaced(
    application: Application,
) -> None:
    application.save(application.checkpoint(0, after(7)), application.checkpoint("*"))
    writer = application.rows()[application.key("*")].version.writer
    for way in ("--yes", "--dry-run"):
        refused = application("reset", "--all", "--to", "TRIM_HORIZON", way)
        assert refused.exit_code == 1
        assert f"orders ({writer}, which has not noted that it has stopped)" in refused.stderr
    forced_dry = application("reset", "--all", "--to", "TRIM_HORIZON", "--force", "--dry-run")
    assert (forced_dry.exit_code, forced_dry.stderr) == (0, "Nothing was changed.\n")
    forced = application("reset", "--all", "--to", "TRIM_HORIZON", "--yes", "--force")
    assert forced.exit_code == 0
    # Another owner: the reader's next write is refused, and the next reader need not wait.
    mark = application.rows()[application.key("*")]
    assert mark.version.writer != writer
    assert mark.checkpoint.progress.is_ended

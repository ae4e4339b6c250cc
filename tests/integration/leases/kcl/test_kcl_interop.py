"""Workers of this project and of the KCL on one table: one after the other, and at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.leases.kcl.aggregates import put_two_aggregates
from tests.integration.leases.kcl.kcl_application import (
    FOREIGN_ROWS,
    STREAM,
    UNKNOWN_ATTRIBUTES,
    Row,
    lease_row,
    shard_id,
)
from tests.integration.leases.kcl.our_worker import OurWorker

if TYPE_CHECKING:
    from tests.integration.leases.kcl.kcl_application import KclApplication
    from tests.integration.leases.kcl.worker_events import WorkerEvent, WorkerEvents

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("kcl")]

_SOAK = pytest.mark.soak

PLACES = [
    pytest.param(2, id="the first of an aggregate", marks=_SOAK),
    pytest.param(6, id="the last of an aggregate", marks=_SOAK),
    pytest.param(7, id="an unaggregated record", marks=_SOAK),
    pytest.param(9, id="the middle of an aggregate"),
]


@pytest.mark.parametrize("count", PLACES[1:])
def test_ours_goes_on_where_the_kcl_has_stopped(kcl: KclApplication, count: int) -> None:
    positions = put_two_aggregates(kcl.server)
    kcl.create_table(lease_row(0, entityType="LEASE"))
    theirs = kcl.start("theirs", checkpoint_every=count)
    checkpoint = {"S": positions[count - 1][0]}
    kcl.wait_for_rows(lambda rows: rows[shard_id(0)]["checkpoint"] == checkpoint)
    theirs.kill()
    with OurWorker.running(kcl, "ours") as ours:
        kcl.wait_until(lambda: len(ours.records) == len(positions) - count)
    assert [record.position for record in ours.records] == positions[count:]


@pytest.mark.parametrize("count", PLACES)
def test_the_kcl_goes_on_where_ours_has_stopped(kcl: KclApplication, count: int) -> None:
    positions = put_two_aggregates(kcl.server)
    with OurWorker.running(kcl, "ours", stop_after=count):
        pass
    theirs = kcl.start("theirs")
    kcl.wait_until(lambda: len(theirs.records) == len(positions) - count)
    assert [record.position for record in theirs.records] == positions[count:]


def put_numbers(kcl: KclApplication, first: int) -> set[bytes]:
    values = {str(number).encode() for number in range(first, first + 40)}
    kcl.server.put_many(STREAM, [(value.decode(), value) for value in values])
    return values


def read_by(*workers: WorkerEvents) -> list[bytes]:
    return [record.data for worker in workers for record in worker.records]


def owned_by(rows: dict[str, Row], worker: str) -> int:
    """Say how many shards a worker has, and nobody asks for."""
    owners = [row for row in rows.values() if row.get("leaseOwner") == {"S": worker}]
    return sum("checkpointOwner" not in row for row in owners)


def create_table(kcl: KclApplication, shards: int) -> None:
    kcl.server.create_stream(STREAM, shards)
    unknown = UNKNOWN_ATTRIBUTES
    rows = [lease_row(number, entityType="LEASE", **unknown) for number in range(shards)]
    kcl.create_table(*rows, *FOREIGN_ROWS)


def check_survivors(kcl: KclApplication, shards: int) -> None:
    """Check that no other process has written what only others know."""
    rows = kcl.rows()
    assert [rows["*"], rows["stranger"]] == FOREIGN_ROWS
    for number in range(shards):
        row = rows[shard_id(number)]
        assert {name: row[name] for name in UNKNOWN_ATTRIBUTES} == UNKNOWN_ATTRIBUTES


def test_ours_asks_the_kcl_for_shards_and_nothing_is_read_twice(kcl: KclApplication) -> None:
    create_table(kcl, 4)
    written = put_numbers(kcl, 0)
    theirs = kcl.start("theirs")
    kcl.wait_until(lambda: len(theirs.records) == len(written))
    with OurWorker.running(kcl, "ours") as ours:
        kcl.wait_for_rows(lambda rows: owned_by(rows, "ours") == 2)
        kcl.wait_until(lambda: len(theirs.of("leaseLost")) == 2)
        assert len(theirs.of("shutdownRequested")) == 2
        written |= put_numbers(kcl, 100)
        kcl.wait_until(lambda: set(read_by(theirs, ours)) == written)
    assert len(read_by(theirs, ours)) == len(written)
    assert 0 < len(ours.records) < 40
    check_survivors(kcl, 4)


def given_by_leader(kcl: KclApplication, worker: str) -> int:
    """Say how often the leader of the KCL has given a shard that a worker has to another one."""
    return kcl.log("theirs").count(f"to {worker}.")


def test_a_leader_of_the_kcl_gives_shards_to_ours_until_it_leaves(kcl: KclApplication) -> None:
    # With four, the leader would move the last one or not, depending on rounding.
    create_table(kcl, 5)
    written = put_numbers(kcl, 0)
    theirs = kcl.start("theirs", version="3X")
    kcl.wait_until(lambda: len(theirs.records) == len(written))
    with OurWorker.running(kcl, "ours") as ours:
        # By how busy the machine is it gives a third one, too, at once or later.
        kcl.wait_for_rows(lambda rows: owned_by(rows, "ours") >= 2, 120)
        # In this order: it says that it gives one before it asks for it.
        assert 2 <= len(theirs.of("shutdownRequested")) <= given_by_leader(kcl, "ours")
        written |= put_numbers(kcl, 100)
        kcl.wait_until(lambda: set(read_by(theirs, ours)) == written)
        assert 0 < len(ours.records) < 40
    assert "ours" not in kcl.rows()
    kcl.wait_for_rows(lambda rows: owned_by(rows, "theirs") == 5)
    written |= put_numbers(kcl, 200)
    kcl.wait_until(lambda: set(read_by(theirs, ours)) == written)
    assert len(read_by(theirs, ours)) == len(written)
    check_survivors(kcl, 5)


def test_a_leader_of_the_kcl_takes_shards_from_ours(kcl: KclApplication) -> None:
    create_table(kcl, 4)
    written = put_numbers(kcl, 0)
    with OurWorker.running(kcl, "ours") as ours:
        kcl.wait_until(lambda: len(ours.records) == len(written))
        # The other strategy waits until the machine is not busy.
        theirs = kcl.start("theirs", version="3X", strategy="LEASE_COUNT_BASED")
        kcl.wait_for_rows(lambda rows: owned_by(rows, "theirs") == 2, 120)
        assert given_by_leader(kcl, "theirs") == 2
        written |= put_numbers(kcl, 100)
        kcl.wait_until(lambda: set(read_by(theirs, ours)) == written)
    assert len(read_by(theirs, ours)) == len(written)
    assert theirs.records
    check_survivors(kcl, 4)


def test_the_kcl_takes_shards_from_ours(kcl: KclApplication) -> None:
    create_table(kcl, 4)
    written = put_numbers(kcl, 0)
    with OurWorker.running(kcl, "ours") as ours:
        kcl.wait_until(lambda: len(ours.records) == len(written))
        theirs = kcl.start("theirs")
        kcl.wait_for_rows(lambda rows: owned_by(rows, "theirs") == 2)
        # It does not ask in the mode of 2.x.
        kcl.wait_until(lambda: len(ours.of("leaseLost")) == 2)
        written |= put_numbers(kcl, 100)
        kcl.wait_until(lambda: set(read_by(theirs, ours)) == written)
    kcl.wait_for_rows(lambda rows: owned_by(rows, "theirs") == 4)
    written |= put_numbers(kcl, 200)
    kcl.wait_until(lambda: set(read_by(theirs, ours)) == written)
    check_survivors(kcl, 4)


def test_ours_takes_over_from_a_killed_worker_of_the_kcl(kcl: KclApplication) -> None:
    create_table(kcl, 4)
    written = put_numbers(kcl, 0)
    theirs = kcl.start("theirs")
    kcl.wait_until(lambda: len(theirs.records) == len(written))
    with OurWorker.running(kcl, "ours") as ours:
        kcl.wait_for_rows(lambda rows: owned_by(rows, "ours") == 2)
        theirs.kill()
        kcl.wait_for_rows(lambda rows: owned_by(rows, "ours") == 4)
        written |= put_numbers(kcl, 100)
        kcl.wait_until(lambda: set(read_by(theirs, ours)) == written)
    check_survivors(kcl, 4)


def check_order(records: list[WorkerEvent], kcl: KclApplication) -> None:
    """Check that nothing of a shard was read before all of its parents."""
    rows = kcl.rows()
    times: dict[str, list[float]] = {}
    for record in records:
        times.setdefault(record.shard, []).append(record.at)
    assert len(times) > 4
    for shard, read_at in times.items():
        for parent in rows[shard].get("parentShardId", {"SS": []})["SS"]:
            assert max(times.get(parent, [0])) < min(read_at)


def test_children_wait_for_parents_that_another_make_reads(kcl: KclApplication) -> None:
    create_table(kcl, 2)
    theirs = kcl.start("theirs")
    kcl.wait_until(lambda: len(theirs.of("initialized")) == 2)
    with OurWorker.running(kcl, "ours") as ours:
        kcl.wait_for_rows(lambda rows: owned_by(rows, "ours") == 1)
        written = put_numbers(kcl, 0)
        kcl.server.reshard(STREAM, 4)
        written |= put_numbers(kcl, 100)
        kcl.server.reshard(STREAM, 2)
        written |= put_numbers(kcl, 200)
        kcl.wait_until(lambda: set(read_by(theirs, ours)) == written)
    assert theirs.records
    assert ours.records
    check_order([*theirs.records, *ours.records], kcl)
    check_survivors(kcl, 2)


def has_position(row: Row) -> bool:
    return row.get("checkpoint", {"S": ""})["S"].isdigit()


def test_ours_goes_on_in_all_streams_of_a_table(kcl: KclApplication) -> None:
    names = []
    client = kcl.server.client()
    for stream in ("orders", "bills"):
        kcl.server.create_stream(stream)
        kcl.server.put_many(stream, [("a", f"old {stream}".encode())])
        found = client.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
        account = found["StreamARN"].split(":")[4]
        created_at = int(found["StreamCreationTimestamp"].timestamp())
        names.append(f"{account}:{stream}:{created_at}")
    client.close()
    theirs = kcl.start("theirs", streams=",".join(names))
    kcl.wait_until(lambda: bool(theirs.records))
    # Until its position is stored, it may lose a lease and be given the record again.
    kcl.wait_for_rows(lambda rows: sum(map(has_position, rows.values())) == 2, 90)
    theirs.stop()
    kept = {key: row for key, row in kcl.rows().items() if key.endswith(shard_id(0))}
    assert kept.keys() == {f"{name}:{shard_id(0)}" for name in names}
    for name in names:
        row = kept[f"{name}:{shard_id(0)}"]
        assert (row["streamName"], row["shardId"]) == ({"S": name}, {"S": shard_id(0)})
    for stream in ("orders", "bills"):
        kcl.server.put_many(stream, [("a", f"new {stream}".encode())])
    with OurWorker.running(kcl, "ours", streams="orders,bills") as ours:
        kcl.wait_until(lambda: len(ours.records) == 2)
    assert sorted(read_by(ours)) == [b"new bills", b"new orders"]
    assert {key for key in kcl.rows() if key.endswith(shard_id(0))} == kept.keys()

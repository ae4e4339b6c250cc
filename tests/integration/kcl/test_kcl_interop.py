"""Workers of this project and of the KCL on one table: one after the other, and at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.kcl.aggregates import put_two_aggregates
from tests.integration.kcl.kcl_application import (
    shard_id,
)
from tests.integration.kcl.our_worker import OurWorker

if TYPE_CHECKING:
    from tests.integration.kcl.kcl_application import KclApplication

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("kcl")]

PLACES = [
    pytest.param(2, id="the first of an aggregate"),
    pytest.param(6, id="the last of an aggregate"),
    pytest.param(7, id="an unaggregated record"),
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
    assert ours.positions == positions[count:]


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


def owned_by(rows: dict[str, Row], worker: str) -> int:
    """Say how many shards a worker has, and nobody asks for."""
    owners = [row for row in rows.values() if row.get("leaseOwner") == {"S": worker}]
    return sum("checkpointOwner" not in row for row in owners)


def test_shards_move_in_both_directions(kcl: KclApplication) -> None:
    kcl.server.create_stream(STREAM, 4)
    rows = [lease_row(number, entityType="LEASE", **UNKNOWN_ATTRIBUTES) for number in range(4)]
    kcl.create_table(*rows, *FOREIGN_ROWS)
    written = put_numbers(kcl, 0)
    theirs = kcl.start("theirs")
    kcl.wait_until(lambda: len(theirs.records) == len(written))
    with OurWorker.running(kcl, "ours") as ours:
        # Ours asks, and theirs hands over.
        kcl.wait_for_rows(lambda rows: owned_by(rows, "ours") == 2)
        kcl.wait_until(lambda: len(theirs.of("shutdownRequested")) == 2)
        written |= put_numbers(kcl, 100)
        kcl.wait_until(lambda: len(theirs.records) + len(ours.records) == len(written))
        assert theirs.records
        assert ours.records
        theirs.kill()
        kcl.wait_for_rows(lambda rows: owned_by(rows, "ours") == 4)
        written |= put_numbers(kcl, 200)
        kcl.wait_until(lambda: len(theirs.records) + len(ours.records) >= len(written))
        # Theirs takes without asking.
        again = kcl.start("again")
        kcl.wait_until(lambda: len(ours.lost) >= 1)
        kcl.wait_for_rows(lambda rows: owned_by(rows, "again") == 2)
        written |= put_numbers(kcl, 300)
        everything = lambda: [one.data for one in (*theirs.records, *ours.records, *again.records)]
        kcl.wait_until(lambda: set(everything()) == written)
    kcl.wait_for_rows(lambda rows: owned_by(rows, "again") == 4)
    rows = kcl.rows()
    assert [rows["*"], rows["stranger"]] == FOREIGN_ROWS
    for number in range(4):
        row = rows[shard_id(number)]
        assert {name: row[name] for name in UNKNOWN_ATTRIBUTES} == UNKNOWN_ATTRIBUTES

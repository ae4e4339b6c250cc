"""What the KCL writes as a checkpoint, and where it begins when it finds one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.leases.kcl.aggregates import put_two_aggregates
from tests.integration.leases.kcl.kcl_application import STREAM, lease_row, shard_id

if TYPE_CHECKING:
    from tests.integration.leases.kcl.kcl_application import KclApplication

# What the KCL does alone changes with its version only, which the project of its worker pins.
pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("kcl")]


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(6, id="the last of an aggregate"),
        pytest.param(7, id="an unaggregated record"),
        pytest.param(9, id="the middle of an aggregate"),
    ],
)
def test_a_checkpoint_is_the_position_of_a_record(kcl: KclApplication, count: int) -> None:
    sequence, sub = put_two_aggregates(kcl.server)[count - 1]
    kcl.create_table(lease_row(0))
    worker = kcl.start("one", checkpoint_every=count)
    kcl.wait_until(lambda: len(worker.records) == 10)
    kcl.wait_for_rows(lambda rows: rows[shard_id(0)]["checkpoint"] == {"S": sequence})
    assert kcl.row(0)["checkpointSubSequenceNumber"] == {"N": str(sub)}


@pytest.mark.parametrize(
    ("record", "sub", "first"),
    [
        pytest.param(0, 0, 1, id="an unaggregated record"),
        pytest.param(0, 7, 1, id="a part that an unaggregated record has not"),
        pytest.param(1, 0, 2, id="the first of an aggregate"),
        pytest.param(1, 1, 3, id="the middle of an aggregate"),
        pytest.param(1, 4, 6, id="the last of an aggregate"),
        pytest.param(1, 2**31, 6, id="beyond the last of an aggregate"),
    ],
)
def test_it_begins_after_its_checkpoint(
    kcl: KclApplication, record: int, sub: int, first: int
) -> None:
    positions = put_two_aggregates(kcl.server)
    sequence = positions[record][0]
    kcl.create_table(lease_row(0, sequence, sub))
    worker = kcl.start("one")
    kcl.wait_until(lambda: len(worker.records) == len(positions) - first)
    (begin,) = worker.of("initialized")
    assert begin.position == (sequence, sub)
    assert [record.position for record in worker.records] == positions[first:]


def test_latest_is_where_the_worker_finds_it(kcl: KclApplication) -> None:
    put_two_aggregates(kcl.server)
    kcl.create_table(lease_row(0, "LATEST"))
    worker = kcl.start("one")
    kcl.wait_until(lambda: bool(worker.of("initialized")))
    kcl.server.put_many(STREAM, [("key", b"new")])
    kcl.wait_until(lambda: bool(worker.records))
    assert [record.data for record in worker.records] == [b"new"]


def test_an_instant_is_the_one_that_the_worker_is_configured_with(kcl: KclApplication) -> None:
    positions = put_two_aggregates(kcl.server)
    kcl.create_table(lease_row(0, "AT_TIMESTAMP"))
    worker = kcl.start("one", position="2020-01-01T00:00:00Z")
    kcl.wait_until(lambda: len(worker.records) == len(positions))


@pytest.mark.parametrize("checkpoint", ["AT_TIMESTAMP", "SHARD_END"])
def test_it_keeps_a_lease_that_it_cannot_read_or_need_not(
    kcl: KclApplication, checkpoint: str
) -> None:
    """Without an instant of its own, it fails again and again and goes on renewing."""
    put_two_aggregates(kcl.server)
    kcl.create_table(lease_row(0, checkpoint))
    worker = kcl.start("one")
    kcl.wait_for_rows(lambda _: int(kcl.row(0)["leaseCounter"]["N"]) > 10)
    assert kcl.row(0)["leaseOwner"] == {"S": "one"}
    assert kcl.row(0)["checkpoint"] == {"S": checkpoint}
    assert not worker.events

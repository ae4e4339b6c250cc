"""What a worker of ours does where a leader of the KCL shares the shards out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve

from kinesis_publishers.config import LeaseConfig, LeaseFormat
from kinesis_publishers.leases.leases import Leases
from kinesis_publishers.model import Shard
from kinesis_publishers.testing.contracts.checkpoint_store import store_context
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.checkpoints.kcl_support import ORDERS, SHARD, Item, KclTable, lease_item

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_publishers.checkpoints.kcl_table import KclLeaseTable


def mode_item(version: str) -> Item:
    """Return the row in which the KCL has its mode."""
    return {
        "leaseKey": {"S": "Migration3.0"},
        "entityType": {"S": "CLIENT_VERSION_MIGRATION"},
        "cv": {"S": f"CLIENT_VERSION_{version}"},
    }


OWN_MODE = mode_item("3X")
OPERATING: dict[str, Any] = {"M": {"C": {"L": [{"N": "100"}]}}}


@pytest.fixture
async def store(table: KclTable, manual_clock: ManualClock) -> AsyncIterator[KclLeaseTable]:
    context = evolve(store_context("billing"), clock=manual_clock)
    async with table.store(context=context) as store:
        yield store


def metrics_item(worker: str, clock: ManualClock, *percent: float, age: int = 0) -> Item:
    """Return the row of a worker of the KCL that was so busy lately."""
    written_at = {"N": str(int(clock.now().timestamp()) - age)}
    return {
        "leaseKey": {"S": worker},
        "entityType": {"S": "WORKER_METRIC_STATS"},
        "opr": OPERATING,
        "sts": {"M": {"C": {"L": [{"N": str(one)} for one in percent]}}},
        "lut": written_at,
        "slu": written_at,
        "sup": {"N": "1"},
    }


def put_shares(table: KclTable, **shares: int) -> None:
    """Give each worker so many shards."""
    for worker, count in shares.items():
        for number in range(count):
            table.put(lease_item(f"shardId-{worker}-{number}", leaseOwner={"S": worker}))


async def report(store: KclLeaseTable, worker: str = "ours") -> bool:
    await store.load()
    return await store.report(worker)


@pytest.mark.parametrize(
    ("shares", "busy"),
    [
        ({"theirs": 4}, 0),
        ({"theirs": 3, "ours": 1}, 10),
        ({"theirs": 2, "ours": 2}, 30),
        ({"theirs": 2, "others": 2, "ours": 2}, 38),
        ({"ours": 4}, 120),
    ],
)
async def test_ours_counts_as_busy_as_the_kcl_is_with_as_many_shards(
    table: KclTable,
    store: KclLeaseTable,
    manual_clock: ManualClock,
    shares: dict[str, int],
    busy: float,
) -> None:
    put_shares(table, **shares)
    # The KCL's moving average is 30; -1 is a measurement that failed.
    table.put(OWN_MODE, metrics_item("theirs", manual_clock, 20, -1, 40))
    if "others" in shares:
        table.put(metrics_item("others", manual_clock, 46))
    # Has been killed, and has left its row.
    table.put(metrics_item("dead", manual_clock, 90, age=60))
    assert await report(store)
    row = table.row("ours")
    ((found,),) = ([float(one["N"]) for one in each["L"]] for each in row.pop("sts")["M"].values())
    assert found == busy
    now = {"N": str(int(manual_clock.now().timestamp()))}
    assert row == {
        "leaseKey": {"S": "ours"},
        "entityType": {"S": "WORKER_METRIC_STATS"},
        "opr": OPERATING,
        "lut": now,
        "slu": now,
        "sup": {"N": "1"},
        "kpWorker": {"N": "1"},
    }


async def test_other_workers_of_ours_say_nothing_of_how_busy_the_kcl_is(
    table: KclTable, store: KclLeaseTable, manual_clock: ManualClock
) -> None:
    put_shares(table, theirs=1, second=3, ours=1)
    table.put(OWN_MODE, metrics_item("theirs", manual_clock, 30))
    assert await report(store, "second")
    table.put(metrics_item("theirs", manual_clock, 60))
    assert await report(store)
    rows = [table.get(worker) for worker in ("second", "ours")]
    assert [row and row["sts"] for row in rows] == [
        {"M": {"C": {"L": [{"N": busy}]}}} for busy in ("90.000", "60.000")
    ]


@pytest.mark.parametrize(
    ("mode", "age"),
    [("UPGRADE_FROM_2X", 0), ("2X", 0), ("3X", 60), ("3X", None), ("3X_WITH_ROLLBACK", 60)],
)
async def test_without_a_leader_at_work_nothing_is_reported(
    table: KclTable, store: KclLeaseTable, manual_clock: ManualClock, mode: str, age: int | None
) -> None:
    table.put(mode_item(mode))
    if age is not None:
        table.put(metrics_item("theirs", manual_clock, 30, age=age))
    assert not await report(store)
    assert table.get("ours") is None
    table.put(mode_item("3X_WITH_ROLLBACK"), metrics_item("theirs", manual_clock, 30))
    assert await report(store)


async def test_a_worker_that_leaves_or_has_lost_its_leader_removes_its_row(
    table: KclTable, store: KclLeaseTable, manual_clock: ManualClock
) -> None:
    table.put(OWN_MODE, metrics_item("theirs", manual_clock, 30))
    assert await report(store)
    assert not await store.report("ours", is_leaving=True)
    assert table.get("ours") is None
    assert await report(store)
    await manual_clock.advance(60)
    assert not await report(store)
    assert table.get("ours") is None


@pytest.fixture
async def leases(store: KclLeaseTable, manual_clock: ManualClock) -> Leases:
    config = LeaseConfig(
        is_enabled=True,
        worker_id="ours",
        failover_seconds=10,
        handover_seconds=30,
        max_leases=None,
        format=LeaseFormat.KCL,
    )
    leases = Leases(store, config, manual_clock)
    await leases.take_over({ORDERS.arn: ORDERS})
    shards = [Shard(stream_arn=ORDERS.arn, shard_id=SHARD.shard_id)]
    await leases.follow({ORDERS.arn: ORDERS}, {one.key: one for one in shards}, {})
    leases.shards.mine(shards)
    return leases


async def test_what_a_leader_gives_is_read_once_the_former_owner_has_handed_it_over(
    table: KclTable, manual_clock: ManualClock, leases: Leases
) -> None:
    # Many more shards than ours has: without a leader, it would ask.
    put_shares(table, theirs=4)
    table.put(lease_item(leaseOwner={"S": "theirs"}))
    table.put(OWN_MODE, metrics_item("theirs", manual_clock, 30))
    before = table.get()
    await leases.taker.look()
    assert table.get() == before
    given = {"leaseOwner": {"S": "ours"}, "checkpointOwner": {"S": "theirs"}}
    table.update(is_counted=False, **given)
    await leases.taker.look()
    assert not leases.shards.may_deliver(SHARD)
    table.update(checkpointOwner=None)
    await leases.taker.look()
    assert leases.shards.may_deliver(SHARD)
    # The leader wants it back.
    table.update(is_counted=False, leaseOwner={"S": "theirs"}, checkpointOwner={"S": "ours"})
    await leases.taker.look()
    assert leases.shards.leaving() == {SHARD}
    await leases.shards.release([SHARD])
    row = table.row()
    assert row["leaseOwner"] == {"S": "theirs"}
    assert "checkpointOwner" not in row
    assert table.get("ours")
    await leases.close()
    assert table.get("ours") is None


async def test_a_row_of_the_kcl_in_the_name_of_ours_is_left_alone_without_a_leader(
    table: KclTable, leases: Leases
) -> None:
    table.put(lease_item(leaseOwner={"S": "ours"}))
    before = table.get()
    await leases.taker.look()
    assert table.get() == before
    assert not leases.shards.may_deliver(SHARD)

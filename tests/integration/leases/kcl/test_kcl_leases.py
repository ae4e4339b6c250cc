"""How a worker of the KCL treats rows that others write to, or that are not its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.leases.kcl.kcl_application import (
    FAILOVER_MILLIS,
    FOREIGN_ROWS,
    STREAM,
    UNKNOWN_ATTRIBUTES,
    Row,
    lease_row,
    shard_id,
)

if TYPE_CHECKING:
    from tests.integration.leases.kcl.kcl_application import KclApplication

# What the KCL does alone changes with its version only, which the project of its worker pins.
pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("kcl")]


def put_one(kcl: KclApplication, shards: int = 1) -> str:
    """Put ten records; return the sequence number of the last."""
    kcl.server.create_stream(STREAM, shards)
    records = [(f"key {number}", b"value") for number in range(10)]
    return kcl.server.put_many(STREAM, records)[-1][1]


def add_to_counter(kcl: KclApplication, number: int) -> None:
    kcl.dynamodb.update_item(
        TableName=kcl.name,
        Key={"leaseKey": {"S": shard_id(number)}},
        UpdateExpression="ADD leaseCounter :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
    )


def tell_of_worker(kcl: KclApplication, worker: str, cpu: int) -> None:
    """Write what a worker tells of its machine, which is how a leader knows of it."""
    now = {"N": str(int(time.time()))}
    kcl.put(
        {
            "leaseKey": {"S": worker},
            "entityType": {"S": "WORKER_METRIC_STATS"},
            "opr": {"M": {"C": {"L": [{"N": "100"}]}}},
            "sts": {"M": {"C": {"L": [{"N": str(cpu)}] * 5}}},
            "lut": now,
            "slu": now,
            "sup": {"N": "1"},
        }
    )


def test_what_it_does_not_know_survives(kcl: KclApplication) -> None:
    last = put_one(kcl)
    kcl.create_table(lease_row(0, **UNKNOWN_ATTRIBUTES), *FOREIGN_ROWS)
    worker = kcl.start("one")
    kcl.wait_for_rows(lambda rows: rows[shard_id(0)]["checkpoint"] == {"S": last})
    worker.stop()
    rows = kcl.rows()
    row = rows[shard_id(0)]
    assert row["checkpoint"] == {"S": last}
    assert {name: row[name] for name in UNKNOWN_ATTRIBUTES} == UNKNOWN_ATTRIBUTES
    assert "entityType" not in row, "A lease without it is one of an old KCL, and stays so."
    assert [rows["*"], rows["stranger"]] == FOREIGN_ROWS


def test_a_live_owner_keeps_its_lease_until_its_counter_stands(kcl: KclApplication) -> None:
    put_one(kcl, 2)
    kcl.create_table(lease_row(0, leaseOwner="other"), lease_row(1))
    worker = kcl.start("one")
    # Three passes of its taker, once it has its own.
    kcl.wait_for_rows(lambda rows: "leaseOwner" in rows[shard_id(1)])
    end = time.monotonic() + 6 * FAILOVER_MILLIS / 1000
    while time.monotonic() < end:
        add_to_counter(kcl, 0)
        time.sleep(0.5)
    row = kcl.row(0)
    assert row["leaseOwner"] == {"S": "other"}
    kcl.wait_for_rows(lambda rows: rows[shard_id(0)]["leaseOwner"] == {"S": "one"}, 20)
    taken = kcl.row(0)
    assert int(taken["leaseCounter"]["N"]) > int(row["leaseCounter"]["N"])
    assert taken["ownerSwitchesSinceCheckpoint"] == {"N": "1"}
    kcl.wait_until(lambda: len(worker.records) == 10)
    kcl.wait_for_rows(lambda rows: rows[shard_id(0)]["ownerSwitchesSinceCheckpoint"] == {"N": "0"})


def test_a_stolen_lease_is_lost_at_its_next_renewal(kcl: KclApplication) -> None:
    put_one(kcl)
    kcl.create_table(lease_row(0))
    worker = kcl.start("one")
    kcl.wait_until(lambda: len(worker.records) == 10)
    kcl.update(0, leaseOwner="thief")
    add_to_counter(kcl, 0)
    kcl.wait_until(lambda: bool(worker.of("leaseLost")))
    assert not worker.of("shutdownRequested")


def test_it_hands_over_when_asked_in_the_mode_of_2x(kcl: KclApplication) -> None:
    put_one(kcl)
    kcl.create_table(lease_row(0))
    worker = kcl.start("one", checkpoint_every=100)
    kcl.wait_until(lambda: len(worker.records) == 10)
    before = int(kcl.row(0)["leaseCounter"]["N"])
    kcl.update(0, leaseOwner="thief", checkpointOwner="one")
    kcl.wait_until(lambda: bool(worker.of("leaseLost")))
    assert worker.of("shutdownRequested")
    row = kcl.row(0)
    assert row["checkpoint"] == {"S": worker.records[-1].sequence}
    assert row["leaseOwner"] == {"S": "thief"}
    assert "checkpointOwner" not in row
    assert int(row["leaseCounter"]["N"]) > before


def test_a_hand_over_between_the_dead_is_taken_by_force(kcl: KclApplication) -> None:
    put_one(kcl)
    kcl.create_table(lease_row(0, leaseOwner="dead", checkpointOwner="dead too"))
    worker = kcl.start("one")
    kcl.wait_until(lambda: len(worker.records) == 10)
    assert kcl.row(0)["leaseOwner"] == {"S": "one"}
    assert "checkpointOwner" not in kcl.row(0)


def test_the_leader_of_3x_gives_leases_to_a_worker_that_tells_of_itself(
    kcl: KclApplication,
) -> None:
    """It asks the owner, which checkpoints before it lets go."""
    put_one(kcl, 4)
    kcl.create_table(*map(lease_row, range(4)))
    worker = kcl.start("one", version="3X", checkpoint_every=100)
    kcl.wait_until(lambda: len(worker.records) == 10)
    given: list[Row] = []

    def other_has_one(rows: dict[str, Row]) -> bool:
        tell_of_worker(kcl, "one", 95)
        tell_of_worker(kcl, "other", 1)
        given[:] = [row for row in rows.values() if row.get("leaseOwner") == {"S": "other"}]
        return bool(given) and "checkpointOwner" not in given[0]

    kcl.wait_for_rows(other_has_one, 90)
    shard = given[0]["leaseKey"]["S"]
    # On a busy machine it gives another one meanwhile.
    assert shard in [requested.shard for requested in worker.of("shutdownRequested")]
    of_shard = [record.sequence for record in worker.records if record.shard == shard]
    assert given[0]["checkpoint"] == {"S": of_shard[-1] if of_shard else "TRIM_HORIZON"}
    assert kcl.rows()["Leader"]["ownerName"] == {"S": "one"}

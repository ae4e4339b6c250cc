"""Workers of the KCL read LocalKinesis; what their table then has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.leases.kcl.kcl_application import STREAM, lease_row, shard_id

if TYPE_CHECKING:
    from tests.integration.leases.kcl.kcl_application import KclApplication, Row
    from tests.integration.leases.kcl.kcl_worker import KclWorker

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("kcl")]

VALUES = [f"value {number}".encode() for number in range(60)]


def put_values(kcl: KclApplication, shards: int) -> None:
    kcl.server.create_stream(STREAM, shards)
    kcl.server.put_many(STREAM, [(value.decode(), value) for value in VALUES])


def read_by(*workers: KclWorker) -> list[bytes]:
    return sorted(record.data for worker in workers for record in worker.records)


def test_a_worker_makes_the_table_and_reads_all(kcl: KclApplication) -> None:
    put_values(kcl, 4)
    worker = kcl.start("one")
    kcl.wait_until(lambda: bool(worker.records))
    last = {
        shard: {"S": records[-1].sequence_number}
        for shard, records in kcl.server.records(STREAM).items()
    }
    # Until then it may lose a lease and be given the records again.
    kcl.wait_for_rows(
        lambda rows: last == {key: row["checkpoint"] for key, row in rows.items() if key in last}
    )
    worker.stop()

    assert {*read_by(worker)} == {*VALUES}
    check_table(kcl)
    rows = kcl.rows()
    for number in range(4):
        check_lease(number, rows[shard_id(number)], last[shard_id(number)])
    # One table holds all kinds of rows since 3.5.
    assert set(rows) == {*last, "Migration3.0", "one"}
    assert rows["Migration3.0"]["entityType"] == {"S": "CLIENT_VERSION_MIGRATION"}
    assert rows["Migration3.0"]["cv"] == {"S": "CLIENT_VERSION_UPGRADE_FROM_2X"}
    assert rows["one"]["entityType"] == {"S": "WORKER_METRIC_STATS"}
    assert set(rows["one"]) == {"leaseKey", "entityType", "lut", "slu", "sts", "opr", "sup"}


def check_table(kcl: KclApplication) -> None:
    table = kcl.dynamodb.describe_table(TableName=kcl.name)["Table"]
    assert table["KeySchema"] == [{"AttributeName": "leaseKey", "KeyType": "HASH"}]
    assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    (index,) = table["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "LeaseOwnerToLeaseKeyIndex"
    assert index["KeySchema"] == [
        {"AttributeName": "leaseOwner", "KeyType": "HASH"},
        {"AttributeName": "leaseKey", "KeyType": "RANGE"},
    ]
    assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}
    others = [name for name in kcl.dynamodb.list_tables()["TableNames"] if kcl.name in name]
    assert others == [kcl.name]


def check_lease(number: int, row: Row, last: dict[str, str]) -> None:
    """Check the row of one of four shards that a worker has read and left."""
    quarter = 2**126
    assert int(row.pop("leaseCounter")["N"]) > 1
    row.pop("throughputKBps", None)  # Renewals write it once it is known.
    assert row == {
        "leaseKey": {"S": shard_id(number)},
        # A graceful shutdown gives back no lease.
        "leaseOwner": {"S": "one"},
        "checkpoint": last,
        "checkpointSubSequenceNumber": {"N": "0"},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "startingHashKey": {"S": str(quarter * number)},
        "endingHashKey": {"S": str(quarter * (number + 1) - 1)},
        "entityType": {"S": "LEASE"},
    }


@pytest.mark.soak
def test_a_second_worker_steals_its_share(kcl: KclApplication) -> None:
    put_values(kcl, 4)
    kcl.create_table(*map(lease_row, range(4)))
    one = kcl.start("one")
    kcl.wait_until(lambda: len(one.records) >= len(VALUES))
    two = kcl.start("two")
    kcl.wait_until(lambda: len(two.of("initialized")) == 2)
    kcl.wait_until(lambda: len(one.of("leaseLost")) == 2)
    kcl.server.put_many(STREAM, [(value.decode(), value + b" again") for value in VALUES])
    more = sorted(value + b" again" for value in VALUES)
    kcl.wait_until(lambda: set(more) <= set(read_by(one, two)))

    assert {event.shard for event in two.of("initialized")} == {
        event.shard for event in one.of("leaseLost")
    }
    assert not one.of("shutdownRequested"), "The mode of 2.x steals without asking."
    assert {record.data for record in one.records} & {
        record.data for record in two.records
    } == set()


def test_a_split_and_a_merge(kcl: KclApplication) -> None:
    kcl.server.create_stream(STREAM)
    kcl.server.put_many(STREAM, [("a", b"first")])
    kcl.create_table(lease_row(0))
    worker = kcl.start("one")
    kcl.wait_until(lambda: len(worker.records) == 1)
    kcl.server.reshard(STREAM, 2)
    kcl.wait_until(lambda: len(worker.of("initialized")) == 3)
    kcl.server.reshard(STREAM, 1)
    kcl.wait_until(lambda: len(worker.of("initialized")) == 4)

    rows = kcl.rows()
    for number, parents, children in [
        (0, [], [1, 2]),
        (1, [0], [3]),
        (2, [0], [3]),
        (3, [1, 2], []),
    ]:
        row = rows[shard_id(number)]
        # Sets, which DynamoDB does not allow to be empty.
        assert sorted(row.get("parentShardId", {"SS": []})["SS"]) == [*map(shard_id, parents)]
        assert sorted(row.get("childShardIds", {"SS": []})["SS"]) == [*map(shard_id, children)]
        checkpoint = "SHARD_END" if children else "TRIM_HORIZON"
        assert row["checkpoint"] == {"S": checkpoint}
        assert row["checkpointSubSequenceNumber"] == {"N": "0"}
        assert row["leaseOwner"] == {"S": "one"}, "It keeps and renews what has ended, too."
    begun = [event.shard for event in worker.events if event.event in ("initialized", "shardEnded")]
    assert begun[:2] == [shard_id(0)] * 2
    assert begun[-1] == shard_id(3)


def test_fan_out_over_plain_http(kcl: KclApplication) -> None:
    put_values(kcl, 2)
    kcl.create_table(*map(lease_row, range(2)))
    worker = kcl.start("one", fan_out="true")
    kcl.wait_until(lambda: {*read_by(worker)} == {*VALUES})

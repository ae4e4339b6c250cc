"""Who may write a row of the KCL's lease table, and which tables are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from attrs import evolve

from kinesis_publishers import ShardKey
from kinesis_publishers.checkpoints.dynamodb import DynamoDbCheckpointStore
from kinesis_publishers.checkpoints.kcl_table import KclLeaseTable
from kinesis_publishers.config import BillingMode, DynamoDbCheckpointConfig, Properties
from kinesis_publishers.errors import (
    CheckpointError,
    ConfigErrors,
    RetriesExhaustedError,
    StaleCheckpointError,
)
from kinesis_publishers.model import CheckpointVersion, Lease
from kinesis_publishers.testing.contracts.checkpoint_store import store_context
from tests.unit.checkpoints.kcl_support import (
    AWS,
    ORDERS,
    PAYMENTS,
    SHARD,
    KclTable,
    kcl_table,
    lease_item,
    write_of,
)

if TYPE_CHECKING:
    from kinesis_publishers import StreamIdentity
    from tests.unit.checkpoints.dynamodb_proxy import DynamoDbProxy

OURS = Lease(owner="ours-1")
HANDED_OVER = {"leaseOwner": {"S": "kcl-worker-1"}, "checkpointOwner": {"S": "ours-1"}}


@pytest.fixture
def watched(table: KclTable, proxy: DynamoDbProxy) -> KclTable:
    """The same table, behind the proxy."""
    return evolve(table, config=evolve(table.config, endpoint_url=proxy.url))


async def take(store: KclLeaseTable, lease: Lease = OURS) -> CheckpointVersion:
    """Write over what is stored."""
    known = (await store.load()).get(SHARD)
    write = write_of(lease=lease, expected=known.version if known else None)
    return (await store.save([write]))[SHARD]


async def assert_is_stale(store: KclLeaseTable, known: CheckpointVersion | None) -> None:
    with pytest.raises(StaleCheckpointError):
        await store.save([write_of(lease=OURS, expected=known)])


@pytest.mark.parametrize("owner", [{"S": "kcl-worker-1"}, None], ids=["owned", "free"])
@pytest.mark.parametrize("leaving", [{"S": "kcl-worker-2"}, None], ids=["leaving", "settled"])
async def test_a_lease_of_the_kcl_is_taken_once(
    table: KclTable, owner: dict[str, str] | None, leaving: dict[str, str] | None
) -> None:
    table.put(lease_item(leaseOwner=owner, checkpointOwner=leaving))
    async with table.store() as first, table.store() as second:
        known = (await second.load())[SHARD].version
        taken = await take(first)
        assert taken.number == known.number + 1
        await assert_is_stale(second, known)
        assert (await second.load())[SHARD].version == taken


CHANGES_OF_THE_KCL = {
    "renewed": {},
    "taken": {"leaseOwner": {"S": "kcl-worker-1"}},
    "checkpoint": {"checkpoint": {"S": "12"}, "checkpointSubSequenceNumber": {"N": "0"}},
    "evicted": {"leaseOwner": None},
    # Without a new counter: its owner goes on with renewing.
    "hand-over": {"is_counted": False, **HANDED_OVER},
}


@pytest.mark.parametrize("change", CHANGES_OF_THE_KCL.values(), ids=CHANGES_OF_THE_KCL)
@pytest.mark.parametrize("first", [None, lease_item()], ids=["of ours", "of the KCL"])
async def test_every_change_of_the_kcl_makes_a_version_stale(
    table: KclTable, change: dict[str, Any], first: dict[str, Any] | None
) -> None:
    if first:
        table.put(first)
    async with table.store() as store:
        known = (await store.load())[SHARD].version if first else await take(store)
        table.update(**change)
        await assert_is_stale(store, known)
        found = (await store.load())[SHARD].version
        assert found != known
        assert found.is_foreign
        await take(store)


async def test_what_the_kcl_learns_of_a_shard_leaves_its_version(table: KclTable) -> None:
    children = {"SS": ["shardId-000000000004", "shardId-000000000005"]}
    async with table.store() as store:
        known = await take(store)
        table.update(is_counted=False, childShardIds=children)
        await store.save([write_of(lease=OURS, expected=known)])
        lease = (await store.load())[SHARD].checkpoint.lease
    assert lease == evolve(OURS, children=tuple(children["SS"]))


async def test_our_own_hand_over_is_no_write_of_the_kcl(table: KclTable) -> None:
    asked = Lease(owner="ours-2", leaving="ours-1")
    async with table.store() as first, table.store() as second:
        await take(first)
        known = await take(second, asked)
        found = (await first.load())[SHARD]
        assert (found.version, found.checkpoint.lease) == (known, asked)
        # Until it has finished, the former owner renews.
        renewal = write_of(lease=asked, expected=known)
        known = (await first.save([renewal]))[SHARD]
        assert (await second.load())[SHARD].version == known
        # The former owner removes itself, as the KCL does: that is counted.
        table.update(checkpointOwner=None)
        await assert_is_stale(second, known)
        assert (await first.load())[SHARD].version.is_foreign


ASKED = Lease(owner="ours-1", leaving="kcl-worker-1", switches=3)


async def test_a_worker_of_the_kcl_is_asked_for_a_shard_as_the_kcl_asks(
    watched: KclTable, proxy: DynamoDbProxy
) -> None:
    """Without a new counter: it renews on the one that it knows."""
    watched.put(lease_item())
    proxy.faults = {"UpdateItem": ["cut"]}
    async with watched.store() as store:
        known = (await store.load())[SHARD].version
        watched.update()
        made = (await store.save([write_of(lease=ASKED, expected=known)]))[SHARD]
        assert watched.get() == lease_item(
            leaseCounter={"N": "42"},
            leaseOwner={"S": "ours-1"},
            checkpointOwner={"S": "kcl-worker-1"},
        )
        await assert_is_stale(store, made)
        found = (await store.load())[SHARD]
        assert found.version == CheckpointVersion(
            number=42, writer='KCL ["ours-1", "kcl-worker-1"]'
        )
        assert found.checkpoint.lease is not None
        assert found.checkpoint.lease.holder == "kcl-worker-1"
        watched.update(checkpointOwner=None)
        await take(store)


@pytest.mark.parametrize("owner", ["kcl-worker-2", None])
async def test_a_worker_of_the_kcl_that_has_lost_the_shard_is_not_asked(
    table: KclTable, owner: str | None
) -> None:
    table.put(lease_item())
    async with table.store() as store:
        known = (await store.load())[SHARD].version
        table.update(leaseOwner=owner and {"S": owner})
        stored = table.get()
        with pytest.raises(StaleCheckpointError):
            await store.save([write_of(lease=ASKED, expected=known)])
    assert table.get() == stored


@pytest.mark.parametrize("first", [None, lease_item()], ids=["new", "of the KCL"])
async def test_a_write_without_an_answer_is_known_again(
    watched: KclTable, proxy: DynamoDbProxy, first: dict[str, Any] | None
) -> None:
    if first:
        watched.put(first)
    proxy.faults = {"UpdateItem": ["cut"], "DeleteItem": ["cut"]}
    async with watched.store() as store:
        version = await take(store)
        assert (await store.load())[SHARD].version == version
        await store.remove({SHARD: version})
    assert not any(proxy.faults.values())
    assert watched.get() is None


@pytest.mark.parametrize("change", CHANGES_OF_THE_KCL.values(), ids=CHANGES_OF_THE_KCL)
async def test_a_write_without_an_answer_does_not_undo_what_the_kcl_wrote_after_it(
    watched: KclTable, proxy: DynamoDbProxy, change: dict[str, Any]
) -> None:
    context = store_context("billing")
    context = evolve(context, retry=evolve(context.retry, max_retries=0))
    async with watched.store(context=context) as store:
        proxy.faults = {"UpdateItem": ["cut"]}
        with pytest.raises(RetriesExhaustedError):
            await store.save([write_of(lease=OURS)])
        watched.update(**change)
        stored = watched.get()
        await assert_is_stale(store, None)
        assert watched.get() == stored


async def test_a_lease_that_the_kcl_has_removed_is_not_created_again(table: KclTable) -> None:
    async with table.store() as store:
        known = await take(store)
        table.delete()
        await assert_is_stale(store, known)
        assert table.get() is None
        await store.remove({SHARD: known})


async def test_a_lease_of_the_kcl_is_removed_as_it_was_read(table: KclTable) -> None:
    table.put(lease_item())
    async with table.store() as store:
        known = (await store.load())[SHARD].version
        table.update()
        with pytest.raises(StaleCheckpointError, match=r"42 by KCL \[\"kcl-worker-1\", null\]"):
            await store.remove({SHARD: known})
        await store.remove({SHARD: (await store.load())[SHARD].version})
    assert table.get() is None


async def test_the_refusal_says_when_another_worker_of_ours_has_written(table: KclTable) -> None:
    async with table.store() as store, table.store() as other:
        known = await take(store)
        await take(other)
        with pytest.raises(StaleCheckpointError, match=r"has written it at 20\d\d-"):
            await store.save([write_of(lease=OURS, expected=known)])


@pytest.mark.parametrize(
    "damage",
    [
        {"checkpoint": None},
        {"checkpoint": {"S": "SOMEWHERE"}},
        {"leaseCounter": None},
        {"leaseCounter": {"S": "many"}},
        {"kpState": {"S": "{"}},
        {"kpState": {"S": '{"position": "AFTER_SEQUENCE_NUMBER"}'}},
        {"endingHashKey": None},
        {"leaseOwner": {"N": "5"}},
        {"checkpointOwner": {"NULL": True}},
        {"ownerSwitchesSinceCheckpoint": {"S": "2"}},
        {"parentShardId": {"S": "shardId-000000000000"}},
    ],
    ids=str,
)
async def test_a_row_that_is_no_lease_is_refused(table: KclTable, damage: dict[str, Any]) -> None:
    table.put(lease_item(**damage))
    async with table.store() as store:
        with pytest.raises(CheckpointError, match=r"a row that is no lease .*restore it"):
            await store.load()


async def test_a_table_of_another_stream_is_refused(table: KclTable) -> None:
    async with table.store() as store:
        await take(store)
    async with table.store(PAYMENTS) as store:
        with pytest.raises(CheckpointError, match=f"of {ORDERS.arn}, and {PAYMENTS.arn} is read"):
            await store.load()


@pytest.mark.parametrize("read", [ORDERS, PAYMENTS], ids=["the same stream", "another stream"])
async def test_a_table_of_another_application_is_refused(
    table: KclTable, read: StreamIdentity
) -> None:
    """It would begin at the other's checkpoints, and take turns with its workers."""
    table.put(lease_item())
    reports = store_context("reports")
    async with table.store() as store, table.store(read, context=reports) as other:
        if read is ORDERS:
            # The KCL's own name for it is nowhere in the table.
            assert SHARD in await other.load()
        known = await take(store)
        # As the KCL renews it.
        table.update()
        with pytest.raises(CheckpointError, match=r"application billing, and this one is reports"):
            await other.load()
        assert (await store.load())[SHARD].version.number == known.number + 1
    nobody = store_context("")
    async with table.store(context=nobody) as store:
        assert SHARD in await store.load()


async def test_a_row_that_may_be_of_either_stream_is_refused(table: KclTable) -> None:
    table.put(lease_item())
    async with table.store(ORDERS, PAYMENTS) as store:
        with pytest.raises(CheckpointError, match="of a stream it does not name"):
            await store.load()


async def test_a_shard_with_two_rows_is_refused(table: KclTable) -> None:
    table.put(lease_item(), lease_item(f"123456789012:orders:1779960600:{SHARD.shard_id}"))
    async with table.store() as store:
        with pytest.raises(CheckpointError, match=r"two rows of .*remove the one"):
            await store.load()


async def test_a_stream_that_was_not_named_has_no_row(table: KclTable) -> None:
    async with table.store() as store:
        with pytest.raises(CheckpointError, match="name_streams has to be called"):
            await store.save([write_of(shard=ShardKey(f"{ORDERS.arn}2", SHARD.shard_id))])


async def test_a_missing_table_is_created_with_the_index_of_version_3(table: KclTable) -> None:
    config = evolve(
        table.config,
        table=f"{table.config.table}-new",
        billing_mode=BillingMode.PROVISIONED,
        read_capacity=5,
        write_capacity=6,
    )
    async with evolve(table, config=config).store() as store:
        await take(store)
    found = table.client.describe_table(TableName=config.table)["Table"]
    assert found["KeySchema"] == [{"AttributeName": "leaseKey", "KeyType": "HASH"}]
    (index,) = found["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "LeaseOwnerToLeaseKeyIndex"
    assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}
    assert index["KeySchema"] == [
        {"AttributeName": "leaseOwner", "KeyType": "HASH"},
        {"AttributeName": "leaseKey", "KeyType": "RANGE"},
    ]
    for one in (found, index):
        capacity = one["ProvisionedThroughput"]
        assert (capacity["ReadCapacityUnits"], capacity["WriteCapacityUnits"]) == (5, 6)


async def test_a_table_that_is_created_has_the_tags(moto_url: str) -> None:
    """DynamoDB Local takes them, and does not list them."""
    with kcl_table(moto_url) as table:
        name = f"{table.config.table}-new"
        config = evolve(table.config, table=name, tags=(("team", "data"),))
        async with evolve(table, config=config).store():
            found = table.client.describe_table(TableName=name)["Table"]
        tags = table.client.list_tags_of_resource(ResourceArn=found["TableArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "data"}]


def _of(options: dict[str, str], application: str = "billing") -> KclLeaseTable:
    properties = Properties.parse(
        {
            "kinesis.streams": "orders",
            "aws.region": "eu-west-1",
            "kinesis.checkpoint.application": application,
            "kinesis.checkpoint.store": "dynamodb",
            **options,
        }
    )
    return KclLeaseTable.from_properties(properties, store_context(application))


def test_the_table_has_the_name_of_the_application_unless_it_is_given() -> None:
    assert str(_of({})) == "the DynamoDB table billing"
    named = _of({"kinesis.checkpoint.dynamodb.table": "leases"}, "b")
    assert str(named) == "the DynamoDB table leases"
    with pytest.raises(ConfigErrors, match=r"dynamodb\.table: got 'b1', expected 3 to 255 letters"):
        _of({}, "b1")


async def test_checkpoints_that_were_made_without_leases_are_not_forgotten(
    table: KclTable, dynamodb_url: str
) -> None:
    table_of_own = f"own-form-{uuid4()}"
    own = DynamoDbCheckpointConfig(table=table_of_own, endpoint_url=dynamodb_url, create_table=True)
    async with table.store(
        former=DynamoDbCheckpointConfig(
            table=own.table, endpoint_url=dynamodb_url, create_table=False
        )
    ) as store:
        await store.check_first_use()  # there is no such table
        async with DynamoDbCheckpointStore(store_context("reports"), AWS, own) as former:
            await former.save([write_of()])
        await store.check_first_use()  # it has those of another application
        async with DynamoDbCheckpointStore(store_context("billing"), AWS, own) as former:
            await former.save([write_of()])
        with pytest.raises(CheckpointError) as raised:
            await store.check_first_use()
    for part in ("own-form", "billing", "kinesis.lease.format = own"):
        assert part in str(raised.value)

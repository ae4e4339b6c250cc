"""``leases import --from``: literal rows of other programs become the rows of an application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import boto3
import pytest

from kinesis_publishers import SequenceNumber, ShardProgress, StartingPosition
from kinesis_publishers.model import HashRange, Lease, PositionType
from tests.unit.cli.lease_support import BEGINNING, Application, after, shard_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from click.testing import Result

_NUMBER = "49590338271490256608559692538361571095921575989136588898"
_KCL_KEYS = {"leaseKey": "HASH"}
_BENTO_KEYS = {"StreamID": "HASH", "ShardID": "RANGE"}
_HARLOW_KEYS = {"namespace": "HASH", "shard_id": "RANGE"}


@pytest.fixture
def table(dynamodb_url: str) -> Iterator[Callable[..., str]]:
    """Creates a table with these keys and items, and returns its name."""
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    client = boto3.client("dynamodb", "us-east-1", endpoint_url=dynamodb_url, **keys)

    def create(keys: Mapping[str, str], *items: Mapping[str, Any]) -> str:
        name = f"foreign-{uuid4()}"
        client.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": one, "KeyType": kind} for one, kind in keys.items()],
            AttributeDefinitions=[{"AttributeName": one, "AttributeType": "S"} for one in keys],
        )
        for item in items:
            client.put_item(TableName=name, Item=item)
        return name

    yield create
    client.close()


@pytest.fixture
def take(
    application: Application, dynamodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Imports from a table of DynamoDB."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamodb_url)

    def run(program: str, table: str, *arguments: str) -> Result:
        return application("import", "--from", program, "--table", table, *arguments)

    return run


def kcl_lease(key: str, checkpoint: str, sub: int = 0, **more: Any) -> dict[str, Any]:
    """A lease as DynamoDBLeaseSerializer of the KCL 3.5 writes it."""
    return {
        "leaseKey": {"S": key},
        "leaseOwner": {"S": "ip-10-0-0-1:4711"},
        "leaseCounter": {"N": "1234"},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "checkpoint": {"S": checkpoint},
        "checkpointSubSequenceNumber": {"N": str(sub)},
        "startingHashKey": {"S": "0"},
        "endingHashKey": {"S": "170141183460469231731687303715884105727"},
        "throughputKBps": {"N": "12.5"},
        **more,
    }


def bento_row(stream: str, shard: str, **more: Any) -> dict[str, Any]:
    """A row as awsKinesisCheckpointer of Bento and of Redpanda Connect writes it."""
    return {
        "StreamID": {"S": stream},
        "ShardID": {"S": shard},
        "ClientID": {"S": "V1StGXR8_Z5jdHi6B"},
        "LeaseTimeout": {"S": "2026-06-16T06:57:02.123456789-07:00"},
        **more,
    }


def at(number: str, sub: int) -> ShardProgress:
    return ShardProgress(position=StartingPosition.at(SequenceNumber(number, sub)))


def test_leases_of_the_kcl(
    application: Application, table: Callable[..., str], take: Callable[..., Result]
) -> None:
    application.server.reshard("orders", 1)
    name = table(
        _KCL_KEYS,
        kcl_lease(shard_name(0), "SHARD_END", childShardIds={"SS": [shard_name(2)]}),
        kcl_lease(shard_name(1), _NUMBER, 7),
        kcl_lease(shard_name(2), "TRIM_HORIZON"),
        {"leaseKey": {"S": "WORKER"}, "entityType": {"S": "WORKER_METRIC_STATS"}},
    )
    result = take("kcl", name)
    assert (result.exit_code, result.stderr) == (0, "Imported: 3 shards.\n")
    assert [line.split() for line in result.stdout.splitlines()[2:]] == [
        [f"orders/{shard_name(0)}", "SHARD_END"],
        [f"orders/{shard_name(1)}", f"{_NUMBER}:7"],
        [f"orders/{shard_name(2)}", "TRIM_HORIZON"],
    ]
    rows = application.rows()
    assert {key.shard_id: row.checkpoint for key, row in rows.items()} == {
        shard_name(0): application.checkpoint(0, BEGINNING.ended()),
        shard_name(1): application.checkpoint(1, at(_NUMBER, 7)),
        shard_name(2): application.checkpoint(2, BEGINNING),
        "*": application.checkpoint("*", BEGINNING.ended()),
    }


def test_leases_of_several_streams_have_the_stream_in_their_keys(
    application: Application,
    table: Callable[..., str],
    take: Callable[..., Result],
    caplog: pytest.LogCaptureFixture,
) -> None:
    application.server.create_stream("others")
    epoch = int(application.identity.created_at.timestamp())
    name = table(
        _KCL_KEYS,
        kcl_lease(f"123456789012:orders:{epoch}:{shard_name(1)}", _NUMBER),
        # Of a stream of this name that was deleted before.
        kcl_lease(f"123456789012:orders:{epoch - 9}:{shard_name(0)}", _NUMBER),
        kcl_lease(f"123456789012:unknown:{epoch}:{shard_name(0)}", _NUMBER),
    )
    result = take("kcl", name, "--stream", "orders", "--stream", "others")
    assert result.exit_code == 0
    assert f"leases of 123456789012:orders:{epoch - 9}" in caplog.text
    assert "leases of 123456789012:unknown" in caplog.text
    assert "no row is about these streams: others" in result.stderr
    assert application.row(1).progress == at(_NUMBER, 0)
    assert application.row(0).progress == BEGINNING


def test_a_lease_at_the_tip_is_pinned_and_one_at_a_timestamp_needs_it(
    application: Application,
    table: Callable[..., str],
    take: Callable[..., Result],
    caplog: pytest.LogCaptureFixture,
) -> None:
    leases = (kcl_lease(shard_name(0), "LATEST"), kcl_lease(shard_name(1), "AT_TIMESTAMP"))
    name = table(_KCL_KEYS, *leases)
    assert take("kcl", name, "--dry-run").exit_code == 0
    assert "Set kinesis.stream.initpos = AT_TIMESTAMP, and its timestamp" in caplog.text
    position = ("-P", "kinesis.stream.initpos=AT_TIMESTAMP")
    instant = ("-P", "kinesis.stream.initpos.timestamp=2026-11-22T00:00:00Z")
    assert take("kcl", name, *position, *instant).exit_code == 0
    latest, timestamp = (application.row(number).progress for number in (0, 1))
    assert latest.position.type is PositionType.AT_TIMESTAMP
    assert str(timestamp.position) == "AT_TIMESTAMP 2026-11-22T00:00:00+00:00"


def test_leases_of_zio(
    application: Application, table: Callable[..., str], take: Callable[..., Result]
) -> None:
    # As DynamoDbLeaseRepository.toDynamoItem writes them; a new lease may have no checkpoint.
    parents = {"parentShardIds": {"SS": [shard_name(0)]}}
    null = {"checkpoint": {"NULL": True}, "checkpointSubSequenceNumber": {"NULL": True}}
    name = table(
        _KCL_KEYS,
        {
            "leaseKey": {"S": shard_name(0)},
            "leaseCounter": {"N": "5"},
            "checkpoint": {"S": _NUMBER},
            "checkpointSubSequenceNumber": {"N": "3"},
            "leaseOwner": {"S": "worker1"},
            **parents,
        },
        {"leaseKey": {"S": shard_name(1)}, "leaseCounter": {"N": "0"}, **null},
    )
    assert take("zio", name).exit_code == 0
    assert [application.row(number).progress for number in (0, 1)] == [at(_NUMBER, 3), BEGINNING]


def test_rows_of_bento(
    application: Application, table: Callable[..., str], take: Callable[..., Result]
) -> None:
    application.server.reshard("orders", 1)
    # The row of a shard that was read to its end is deleted; one that was claimed has no number.
    name = table(
        _BENTO_KEYS,
        bento_row("orders", shard_name(2), SequenceNumber={"S": _NUMBER}),
        bento_row(application.identity.arn, shard_name(1)),
        bento_row("others", shard_name(0), SequenceNumber={"S": "7"}),
    )
    result = take("bento", name)
    assert result.exit_code == 0
    assert "its descendants were read" in result.stdout
    assert [application.row(number).progress for number in (0, 1, 2)] == [
        BEGINNING.ended(),
        BEGINNING,
        after(_NUMBER),
    ]


def test_a_table_of_harlow(
    application: Application, table: Callable[..., str], take: Callable[..., Result]
) -> None:
    def row(namespace: str, shard: str) -> dict[str, Any]:
        named = {"namespace": namespace, "shard_id": shard, "sequence_number": _NUMBER}
        return {key: {"S": value} for key, value in named.items()}

    shards = (row("app-orders", shard_name(0)), row("app-orders", "shardId-gone"))
    name = table(_HARLOW_KEYS, *shards, row("billing-orders", shard_name(1)))
    result = take("harlow", name, "--from-application", "app")
    assert result.exit_code == 0
    assert "or are of other streams: app-orders shardId-gone." in result.stderr
    assert [application.row(number).progress for number in (0, 1)] == [after(_NUMBER), BEGINNING]


def test_reading_goes_on_after_the_last_record_of_the_other_program(
    application: Application, table: Callable[..., str], take: Callable[..., Result]
) -> None:
    records = [("key", b"%d" % number) for number in range(10)]
    shard, number = application.server.put_many("orders", records)[4]
    name = table(_BENTO_KEYS, bento_row("orders", shard, SequenceNumber={"S": number}))
    assert take("bento", name).exit_code == 0
    assert application.read(5) == [b"%d" % number for number in range(5, 10)]


def test_with_leases_the_rows_have_what_workers_need(
    application: Application, table: Callable[..., str], take: Callable[..., Result]
) -> None:
    application.server.reshard("orders", 1)
    name = table(_KCL_KEYS, kcl_lease(shard_name(2), _NUMBER))
    assert take("kcl", name, "-P", "kinesis.lease.enabled=true").exit_code == 0
    assert application.row(2).lease == Lease(
        parents=(shard_name(0), shard_name(1)), hash_range=HashRange()
    )


def test_a_dry_run_changes_nothing(
    application: Application, table: Callable[..., str], take: Callable[..., Result]
) -> None:
    name = table(_KCL_KEYS, kcl_lease(shard_name(0), _NUMBER))
    result = take("kcl", name, "--dry-run")
    assert (result.exit_code, result.stderr) == (0, "Nothing was changed.\n")
    assert [line.split(maxsplit=2) for line in result.stdout.splitlines()[2:]] == [
        [f"orders/{shard_name(0)}", f"{_NUMBER}:0"],
        [f"orders/{shard_name(1)}", "TRIM_HORIZON", "from its beginning"],
    ]
    assert not application.path.exists()


def test_rows_that_are_there_are_replaced_only_by_force(
    application: Application, table: Callable[..., str], take: Callable[..., Result]
) -> None:
    application.save(application.checkpoint(0, after(7)), application.checkpoint("*"))
    name = table(_KCL_KEYS, kcl_lease(shard_name(0), _NUMBER))
    refused = take("kcl", name)
    assert refused.exit_code == 1
    assert f"has rows for 1 of these shards, as orders/{shard_name(0)}" in refused.stderr
    assert application.row(0).progress == after(7)
    assert take("kcl", name, "--force").exit_code == 0
    assert application.row(0).progress == at(_NUMBER, 0)


def test_even_force_writes_over_nothing_that_came_in_between(
    application: Application,
    table: Callable[..., str],
    take: Callable[..., Result],
    before_writes: list[Callable[[], None]],
) -> None:
    application.save(application.checkpoint(0, after(7)))
    before_writes.append(lambda: application.save(application.checkpoint(0, after(8))))
    result = take("kcl", table(_KCL_KEYS, kcl_lease(shard_name(0), _NUMBER)), "--force")
    assert result.exit_code == 1
    assert "another reader has written it" in result.stderr
    assert application.row(0).progress == after(8)


def test_a_table_of_another_program_is_refused(
    table: Callable[..., str], take: Callable[..., Result]
) -> None:
    bento = table(_BENTO_KEYS, bento_row("orders", shard_name(0)))
    assert "is no lease of the Kinesis Client Library" in take("kcl", bento).stderr
    assert "No row is about a shard of these streams" in take("harlow", bento).stderr
    assert "the DynamoDB table not-there does not exist" in take("kcl", "not-there").stderr
    assert "the DynamoDB table not-there does not exist" in take("bento", "not-there").stderr


def test_a_position_that_is_none_names_its_row(
    table: Callable[..., str], take: Callable[..., Result]
) -> None:
    result = take("kcl", table(_KCL_KEYS, kcl_lease(shard_name(0), "SOMEWHERE")))
    assert "has a row that is no lease of the Kinesis Client Library" in result.stderr
    assert "SOMEWHERE" in result.stderr
    row = bento_row("orders", shard_name(0), SequenceNumber={"S": "SOMEWHERE"})
    result = take("bento", table(_BENTO_KEYS, row))
    assert f"orders {shard_name(0)} cannot be used" in result.stderr
    assert "'SOMEWHERE'" in result.stderr


def test_two_rows_of_a_shard_are_refused(
    application: Application, table: Callable[..., str], take: Callable[..., Result]
) -> None:
    # The stream was named by its ARN later.
    keys = (application.identity.name, application.identity.arn)
    name = table(_BENTO_KEYS, *(bento_row(one, shard_name(0)) for one in keys))
    result = take("bento", name)
    assert result.exit_code == 1
    assert f"is about orders/{shard_name(0)}, as one before it" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Name a FILE (- for standard input), or a program"),
        (["-", "--from", "kcl"], "Name a FILE (- for standard input), or a program"),
        (["-", "--table", "billing"], "Name a FILE (- for standard input), or a program"),
        (["not-there.jsonl"], "not-there.jsonl cannot be read: No such file"),
        (["--from", "gokini"], "'gokini' is not one of"),
    ],
)
def test_wrong_usage_makes_no_call(
    application: Application, arguments: list[str], message: str
) -> None:
    before = len(application.server.calls())
    result = application("import", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(application.server.calls()) == before

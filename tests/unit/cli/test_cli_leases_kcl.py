"""``leases`` on the KCL's own table: its workers find there what the commands have changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import boto3
import pytest

from tests.unit.cli.cli_support import run_command
from tests.unit.cli.lease_support import BEGINNING, Application, shard_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from click.testing import Result

_NUMBER = "49590338271490256608559692538361571095921575989136588898"


@pytest.fixture
def table(dynamodb_url: str) -> Iterator[Any]:
    """A table as the KCL makes it."""
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    resource = boto3.resource("dynamodb", "us-east-1", endpoint_url=dynamodb_url, **keys)
    yield resource.create_table(
        TableName=f"leases-of-the-kcl-{uuid4()}",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
    )
    resource.meta.client.close()


@pytest.fixture
def leases(application: Application, table: Any, dynamodb_url: str) -> Callable[..., Result]:
    """Runs commands with the table as the store."""
    text = application.run.path.read_text()
    lines = [line for line in text.splitlines() if "sqlite" not in line]
    pairs = {
        "kinesis.checkpoint.store": "dynamodb",
        "kinesis.checkpoint.dynamodb.table": table.name,
        "kinesis.checkpoint.dynamodb.endpoint": dynamodb_url,
        "kinesis.checkpoint.dynamodb.tags": "team=data",
        "kinesis.lease.enabled": "true",
        "kinesis.lease.failovermillis": "1000",
    }
    application.run.path.write_text(
        "\n".join([*lines, *(f"{key}={value}" for key, value in pairs.items()), ""])
    )
    return application


def lease(key: str, checkpoint: str, **more: Any) -> dict[str, Any]:
    return {
        "leaseKey": key,
        "leaseOwner": "ip-10-0-0-1:4711",
        "leaseCounter": 1234,
        "ownerSwitchesSinceCheckpoint": 0,
        "checkpoint": checkpoint,
        "checkpointSubSequenceNumber": 7,
        "throughputKBps": 12,
        **more,
    }


def item(table: Any, shard: int) -> Mapping[str, Any]:
    return table.get_item(Key={"leaseKey": shard_name(shard)})["Item"]


def test_the_list_has_the_leases_of_the_kcl(table: Any, leases: Callable[..., Result]) -> None:
    table.put_item(Item=lease(shard_name(1), _NUMBER, parentShardId={shard_name(0)}))
    result = leases("list", "--json")
    fields = json.loads(result.stdout)
    assert fields["owner"] == "ip-10-0-0-1:4711"
    assert (fields["sequence_number"], fields["sub_sequence_number"]) == (_NUMBER, 7)
    assert (fields["version"], fields["bytes_per_second"]) == (1234, 12 * 1024)
    assert fields["parents"] == [shard_name(0)]


def test_releasing_is_as_the_kcl_does_it(table: Any, leases: Callable[..., Result]) -> None:
    table.put_item(Item=lease(shard_name(0), _NUMBER, unknown="kept"))
    assert leases("release", "--all", "--yes").exit_code == 0
    released = item(table, 0)
    assert "leaseOwner" not in released
    assert (released["leaseCounter"], released["unknown"]) == (1235, "kept")
    assert released["checkpoint"] == _NUMBER


def test_a_reset_is_a_checkpoint_of_the_kcl(table: Any, leases: Callable[..., Result]) -> None:
    table.put_item(Item=lease(shard_name(0), _NUMBER))
    result = leases("reset", "--all", "--to", "TRIM_HORIZON", "--yes")
    assert result.exit_code == 0, result.stderr
    assert item(table, 0)["checkpoint"] == "TRIM_HORIZON"
    assert "leaseOwner" not in item(table, 0)


def test_checkpoints_of_another_store_become_leases_of_the_kcl(
    application: Application, table: Any, leases: Callable[..., Result]
) -> None:
    application.save(application.checkpoint(0), application.checkpoint(1, BEGINNING.ended()))
    text = application.run.path.read_text()
    lines = [line for line in text.splitlines() if "dynamodb" not in line and "lease" not in line]
    former = application.run.path.with_name("former.properties")
    former.write_text("\n".join([*lines, f"kinesis.checkpoint.sqlite.path={application.path}"]))
    listed = run_command("leases", "list", "--json", "--config", str(former)).stdout
    result = leases("import", "-", stdin=listed)
    assert result.exit_code == 0, result.stderr
    assert [item(table, number)["checkpoint"] for number in (0, 1)] == ["TRIM_HORIZON", "SHARD_END"]
    assert item(table, 0)["startingHashKey"] == "0"
    again = leases("import", "-", stdin=listed)
    assert "has rows for 2 of these shards" in again.stderr
    # Another application may take them over, but not use the same table.
    reports = ("--application", "reports")
    taken = leases("import", "--from", "kcl", "--table", table.name, *reports, "--dry-run")
    assert (taken.exit_code, shard_name(0) in taken.stdout) == (0, True), taken.stderr
    listed = leases("list", *reports)
    assert listed.exit_code == 1
    assert "of the application billing, and this one is reports" in listed.stderr

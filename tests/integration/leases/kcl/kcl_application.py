"""An application of the Kinesis Client Library: a stream, its lease table and workers."""

from __future__ import annotations

import time
from contextlib import ExitStack
from threading import Condition
from typing import TYPE_CHECKING, Any, TypeAlias

import boto3

from tests.integration.leases.kcl.kcl_worker import KclWorker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Self

    from kinesis_publishers.testing.local_kinesis import LocalKinesis

__all__ = [
    "FAILOVER_MILLIS",
    "FOREIGN_ROWS",
    "STREAM",
    "UNKNOWN_ATTRIBUTES",
    "KclApplication",
    "Row",
    "lease_row",
    "shard_id",
]

STREAM = "orders"
# The KCL takes free shards every two failover times. In less, a busy machine renews too late.
FAILOVER_MILLIS = 3000
# An item as DynamoDB writes it: {"leaseCounter": {"N": "3"}, ...}.
Row: TypeAlias = dict[str, dict[str, Any]]
UNKNOWN_ATTRIBUTES: Row = {"note": {"M": {"by": {"S": "us"}}}, "writer": {"S": "somebody"}}
FOREIGN_ROWS: list[Row] = [
    {"leaseKey": {"S": "*"}, "entityType": {"S": "UNHEARD_OF"}, "leaseCounter": {"N": "5"}},
    {"leaseKey": {"S": "stranger"}, "entityType": {"S": "WORKER_METRIC_STATS"}},
]


def shard_id(number: int) -> str:
    return f"shardId-{number:012d}"


def lease_row(number: int, checkpoint: str = "TRIM_HORIZON", sub: int = 0, **more: object) -> Row:
    """Return the least that the KCL needs; ``more`` are strings, or values as DynamoDB's."""
    return {
        "leaseKey": {"S": shard_id(number)},
        "leaseCounter": {"N": "0"},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "checkpoint": {"S": checkpoint},
        "checkpointSubSequenceNumber": {"N": str(sub)},
        **{k: v if isinstance(v, dict) else {"S": str(v)} for k, v in more.items()},
    }


class KclApplication:
    """Runs workers of one application on one stream of ``server``; kills them at the end.

    Its table is named as the application.
    """

    def __init__(
        self, libraries: Path, logs: Path, server: LocalKinesis, dynamodb_url: str, name: str
    ) -> None:
        self._libraries = libraries
        self._logs = logs
        self._dynamodb_url = dynamodb_url
        self._resources = ExitStack()
        self._workers: list[KclWorker] = []
        self.changed = Condition()
        self.server = server
        self.name = name
        keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
        self.dynamodb: Any = boto3.client(
            "dynamodb", "us-east-1", endpoint_url=dynamodb_url, **keys
        )

    def __enter__(self) -> Self:
        self._resources.callback(self.dynamodb.close)
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def start(self, worker: str, **settings: object) -> KclWorker:
        """Start a worker of this id; ``KclWorker.java`` lists the settings."""
        running = KclWorker.running(
            self._libraries,
            self._logs / f"{worker}.log",
            self.changed,
            kinesis=self.server.endpoint_url,
            dynamodb=self._dynamodb_url,
            application=self.name,
            worker=worker,
            **{"streams": STREAM, "failover_millis": FAILOVER_MILLIS, **settings},
        )
        self._workers.append(self._resources.enter_context(running))
        return self._workers[-1]

    def log(self, worker: str) -> str:
        """Return what a worker has logged."""
        return (self._logs / f"{worker}.log").read_text()

    def create_table(self, *rows: Row) -> None:
        """Create the table as the KCL does; with rows, a worker begins with them at once."""
        self.dynamodb.create_table(
            TableName=self.name,
            KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        for row in rows:
            self.put(row)

    def put(self, row: Row) -> None:
        self.dynamodb.put_item(TableName=self.name, Item=row)

    def update(self, number: int, **attributes: str) -> None:
        """Set strings of a shard's row, and nothing else of it."""
        names = {f"#{name}": name for name in attributes}
        self.dynamodb.update_item(
            TableName=self.name,
            Key={"leaseKey": {"S": shard_id(number)}},
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in attributes),
            ExpressionAttributeNames=names,
            ExpressionAttributeValues={f":{name}": {"S": v} for name, v in attributes.items()},
        )

    def rows(self) -> dict[str, Row]:
        items = self.dynamodb.scan(TableName=self.name, ConsistentRead=True)["Items"]
        return {item["leaseKey"]["S"]: item for item in items}

    def row(self, number: int) -> Row:
        return self.rows()[shard_id(number)]

    def wait_for_rows(
        self, condition: Callable[[dict[str, Row]], bool], seconds: float = 150
    ) -> None:
        """Return when the table's rows meet the condition."""
        deadline = time.monotonic() + seconds
        while not condition(rows := self.rows()):
            assert time.monotonic() < deadline, f"{rows}\n{self._told()}"
            time.sleep(0.05)

    def wait_until(self, condition: Callable[[], bool], seconds: float = 90) -> None:
        """Return when what workers have told meets the condition; fail once they are silent."""
        with self.changed:
            while not condition():
                assert self.changed.wait(seconds), self._told()

    def _told(self) -> str:
        logs = [log.read_text()[-5000:] for log in self._logs.glob("*.log")]
        return "\n".join([*(str(worker.events) for worker in self._workers), *logs])
